"""Facts as Warpmeter records them."""

import json

from lives import plain
from seconds import SECOND

NO_PRICES = {"currency": "USD", "models": [], "other": None}


def head():
    settings = {
        "node": "imported", "window": SECOND, "lateness": SECOND // 4, "process_lateness": 3 * SECOND,
        "retain": 300 * SECOND, "no_work_after": 300 * SECOND, "infer_allocation": False, "equal_split": False,
        "redistribute": False, "prices": NO_PRICES,
    }
    return {"warpmeter_recording": 2, "settings": settings}


def sample(at, source, fact):
    return {"at": at, "source": source, "fact": fact}


def up(at, source):
    return sample(at, source, {"health": {"state": "up", "reason": ""}})


def gpu_id(device):
    """A UUID that is none of a real GPU's."""
    return f"GPU-00000000-0000-4000-8000-{device:012d}"


def pod_uid(number):
    return f"00000000-0000-4000-9000-{number:012d}"


def scope(number):
    return {"pod": {"uid": pod_uid(number), "container": f"{number:064x}"}}


def inventory(at, models):
    gpus = [{
        "id": gpu_id(device), "index": device, "minor": device, "pci_bus_id": f"00000000:{device:02x}:00.0", "model": model,
        "memory_bytes": None, "down": None, "mig": None,
        "authority": {"engine": "gpm", "sm": None, "processes": "process_utilization"},
    } for device, model in sorted(models.items())]
    return sample(at, "nvidia", {"inventory": {"driver": None, "gpus": gpus}})


def pods(at, names, grants):
    """`grants`: devices by number of pod. A device that several hold is in as many replicas."""
    holders = {}
    for number in sorted(grants):
        for device in sorted(grants[number]):
            holders.setdefault(device, []).append(number)
    described = []
    for number, name in enumerate(names, 1):
        parts = []
        for device in sorted(grants.get(number, ())):
            who = holders[device]
            part = "whole" if len(who) == 1 else {"replica": who.index(number)}
            parts.append({"container": "main", "device": {"gpu": gpu_id(device)}, "part": part})
        described.append({
            "uid": pod_uid(number), "namespace": "imported", "name": name,
            "containers": [{"name": "main", "id": f"{number:064x}"}], "grants": parts,
        })
    replicas = [{"device": {"gpu": gpu_id(device)}, "count": len(who)} for device, who in holders.items() if len(who) > 1]
    return sample(at, "pods", {"pods": {"pods": described, "replicas": replicas}})


def identity(pid, start):
    """A process: what tells two of the same id apart is when they began."""
    return {"pid": plain(pid), "start": start}


def process(at, pid, start, number, devices):
    opened = {"control": bool(devices), "minors": sorted(devices)}
    fact = {"id": identity(pid, start), "scope": scope(number), "opened": opened}
    return sample(at, "host", {"process": fact})


def reading(at, device, during, busy, processes):
    """`busy`: nanoseconds of the interval in which a kernel ran."""
    part = {
        "mig": None, "engine": {"ratio": ppb(busy, during)}, "corroboration": None, "sm_active": None, "sm_occupied": None,
        "tensor": None, "dram": None, "memory_used": None,
        "processes": [{"pid": plain(pid), "memory": None} for pid in sorted(processes)],
    }
    return sample(at, "nvidia", {"reading": {"gpu": gpu_id(device), "during": during, "board": {}, "parts": [part]}})


def process_use(at, device, during, busy):
    samples = [{"pid": plain(pid), "during": during, "sm": ppb(time, during)} for pid, time in sorted(busy.items())]
    return sample(at, "nvidia", {"process_use": {"gpu": gpu_id(device), "until": during[1], "samples": samples}})


def ppb(busy, during):
    return (busy * 1_000_000_000 + (during[1] - during[0]) // 2) // (during[1] - during[0])


def tick(at, wall):
    return sample(at, "daemon", {"tick": {"wall": wall}})


def write(path, samples):
    """Writes a recording. A file that is there is kept."""
    with open(path, "x") as file:
        for line in [head(), *samples]:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
