#!/usr/bin/env python3
"""Records one run twice, by the daemon's probes and by perf, imports the second recording and sets both results side by
side: `live.py DIRECTORY-OF-PROGRAMS [SECONDS] [cpu|disk]`. Needs root, perf, the simulated driver's programs, and Linux's uprobes.

perf sees the calls by probes of its own on the simulated driver; what the device did is from the simulator's log.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import check

HERE = Path(__file__).resolve().parent
CALLS = {"cuLaunchKernel": "launch", "cuCtxSynchronize": "sync", "cuMemcpyHtoD_v2": "copy"}
SCHED = "sched:sched_switch sched:sched_waking sched:sched_process_fork irq:softirq_entry irq:softirq_exit " \
    "irq:irq_handler_entry irq:irq_handler_exit irq_vectors:local_timer_entry irq_vectors:local_timer_exit"
# The loader asks for its processor time without pause: number 228, which nothing waits in.
CALLED = "-e raw_syscalls:sys_enter --filter id!=228 -e raw_syscalls:sys_exit --filter id!=228 -e wmimport:*".split()
UID, CONTAINER = "00000000-0000-4000-8000-0000000000aa", "aa" * 32
PROBE = re.compile(r"^\s*\S.*?\s+(\d+)/(\d+)\s+\[\d+\]\s+(\d+)\.(\d+):\s+wmimport:(\w+?)(__return)?:")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def cgroup():
    """A cgroup as a container runtime makes it for a pod."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"):
        path = Path(root, f"warpmeter-import-{os.getpid()}", f"kubepods/burstable/pod{UID}", CONTAINER)
        if Path(root, "cgroup.procs").exists():
            path.mkdir(parents=True)
            return path
    raise SystemExit("live.py: no cgroup can be made here")


def probe(library):
    """Sets probes of perf's own on the library."""
    for name in CALLS:
        run("perf", "probe", "-q", "-x", library, "-a", f"wmimport:{name}={name}", "-a", f"wmimport:{name}={name}%return")


def remove_probes():
    subprocess.run(["perf", "probe", "-q", "-d", "wmimport:*"], check=False)


def chrome(probes, oracle, output):
    """A Chrome trace of what perf's probes saw and the simulator logged."""
    events, open_calls, launches, number = [], {}, [], 0
    for line in open(probes):
        found = PROBE.match(line)
        if not found:
            continue
        pid, tid = int(found[1]), int(found[2])
        micros = int(found[3]) * 10**6 + int(found[4]) / 1000
        if found[6]:
            name, began = open_calls.pop(tid, (None, 0))
            if name == found[5]:
                number += 1
                if CALLS[name] != "sync":
                    launches.append((began, number))
                events.append({"ph": "X", "cat": "cuda_driver", "name": name, "pid": pid, "tid": tid, "ts": began,
                               "dur": micros - began, "args": {"correlation": number}})
        else:
            open_calls[tid] = (found[5], micros)
    for line in open(oracle):
        busy = json.loads(line)
        start, end = busy["start_ns"] / 1000, busy["end_ns"] / 1000
        cause = max((launch for launch in launches if launch[0] <= start), default=(0, 0))[1]
        events.append({"ph": "X", "cat": "kernel", "name": "busy", "pid": 0, "tid": 7, "ts": start, "dur": end - start,
                       "args": {"device": 0, "stream": 7, "correlation": cause}})
    output.write_text(json.dumps({"traceEvents": events}))


def cut(recording, imported, output):
    """What the daemon saw in the time that was imported: beside it, it saw the program start and end."""
    spans = [sample["fact"]["probes"]["during"] for sample in map(json.loads, list(open(imported))[1:]) if "probes" in sample["fact"]]
    start, end = spans[0][0], spans[-1][1]
    lines = list(open(recording))
    with open(output, "w") as file:
        file.write(lines[0])
        for line in lines[1:]:
            sample = json.loads(line)
            (kind, fact), = sample["fact"].items()
            if kind == "reading" and not (start <= fact["during"][0] and fact["during"][1] <= end):
                continue
            if kind == "probes" and (fact["during"][1] <= start or fact["during"][0] >= end):
                continue
            if kind == "tick" and not start <= sample["at"] <= end + 600_000_000:
                continue
            # What was known before is known from the beginning on.
            if kind not in ("reading", "probes"):
                sample["at"] = max(sample["at"], start)
            file.write(json.dumps(sample) + "\n")


def shares(metrics):
    """Shares of the pod's time by state."""
    found = {}
    for name, labels, value in check.series(metrics):
        if name == "warpmeter_pod_gpu_seconds_total" and value:
            key = f'{labels["state"]}/{labels["cause"]}'
            found[key] = found.get(key, 0) + value
    whole = sum(found.values())
    return {key: value / whole for key, value in found.items()}


def main(programs, seconds="12", bottleneck="cpu"):
    programs, seconds = Path(programs).absolute(), int(seconds)
    work, place = Path(tempfile.mkdtemp(prefix="warpmeter-import-")), cgroup()
    library, node = work / "lib/libcuda.so.1", work / "node"
    try:
        (work / "scenario.toml").write_text('[[gpu]]\nmodel = "H100"\n[oracle]\nmerge_gap_us = 0\n')
        run(programs / "simgpu", "create", "--scenario", work / "scenario.toml", "--state", node, "--libraries", work / "lib",
            stdout=subprocess.DEVNULL)
        shown = run(programs / "simgpu", "show", "--state", node, capture_output=True, text=True).stdout
        gpu = re.search(r"GPU-[0-9a-f-]+", shown)[0]
        (work / "pods.toml").write_text(
            f'[[pod]]\nuid = "{UID}"\nnamespace = "live"\nname = "trainer"\n'
            f'containers = [{{ name = "main", id = "{CONTAINER}", devices = ["{gpu}"] }}]\n')
        (work / "config.toml").write_text(
            f'[http]\nlisten = "127.0.0.1:0"\n[nvidia]\nlibraries = ["{work}/lib"]\n[host]\ndev = "{node}/dev"\n'
            f'[bpf]\nenabled = true\n[control]\nsocket = ""\n[pods]\nfile = "{work}/pods.toml"\n')
        probe(library)
        environment = dict(os.environ, SIMGPU_STATE=str(node), CUDA_VISIBLE_DEVICES=gpu, LD_LIBRARY_PATH=str(work / "lib"))
        daemon = subprocess.Popen(
            [programs / "warpmeter", "record", "--config", work / "config.toml", "--duration", f"{seconds + 6}s", "--metrics",
             work / "live.prom", work / "live.jsonl"], env=environment, stderr=open(work / "daemon.log", "w"))
        time.sleep(2)
        everywhere = [word for event in SCHED.split() for word in ("-e", event)]
        switches = subprocess.Popen(["perf", "record", "-q", "-a", "-k", "mono", "-o", work / "sched.data", *everywhere, "--", "sleep",
                                     str(seconds + 2)])
        time.sleep(1)
        program = f"{HERE.parent}/workload/python/loader.py --seconds {seconds - 2} --decode-ms 40 --kernels 10 --kernel-us 1500"
        if bottleneck == "disk":
            # Beside this file: a temporary directory may be in memory, which no read has to wait for.
            data = HERE / "reader.data"
            data.write_bytes(os.urandom(64 << 20))
            program = f"{HERE}/reader.py {seconds - 2} {data}"
        command = f"echo $$ > {place}/cgroup.procs; exec python3 {program}"
        run("perf", "record", "-q", "-k", "mono", "-o", work / "calls.data", *CALLED, "--", "sh", "-c",
            command, env=environment)
        switches.wait()
        daemon.wait()
        fields = "comm,pid,tid,cpu,time,event,trace"
        for name in ("sched", "calls"):
            with open(work / f"{name}.txt", "w") as file:
                run("perf", "script", "-i", work / f"{name}.data", "--ns", "--show-task-events", "--show-lost-events", "-F", fields,
                    stdout=file, stderr=subprocess.DEVNULL)
        chrome(work / "calls.txt", node / "oracle.jsonl", work / "trace.json")
        with open(work / "log.txt", "w") as log:
            for name in ("sched", "calls"):
                log.writelines(line for line in open(work / f"{name}.txt") if "wmimport:" not in line)
        pid = json.load(open(work / "trace.json"))["traceEvents"][0]["pid"]
        run("python3", HERE / "import.py", work / "log.txt", work / "trace.json", "-o", work / "import.jsonl", "--pod", f"trainer={pid}")
        cut(work / "live.jsonl", work / "import.jsonl", work / "cut.jsonl")
        for name in ("import", "cut"):
            with open(work / f"{name}.prom", "w") as file:
                run(programs / "warpmeter", "replay", work / f"{name}.jsonl", stdout=file)
        live, imported = shares(work / "cut.prom"), shares(work / "import.prom")
        print(f"{'state':28}   live  import")
        for state in sorted(set(live) | set(imported)):
            print(f"{state:28} {live.get(state, 0):6.2%} {imported.get(state, 0):7.2%}")
        print(f"files: {work}")
    finally:
        remove_probes()
        (HERE / "reader.data").unlink(missing_ok=True)
        for path in [place, *list(place.parents)[:4]]:
            for _ in range(50):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


if __name__ == "__main__":
    if shutil.which("perf") is None or os.geteuid() != 0:
        raise SystemExit("live.py: needs root and perf")
    main(*sys.argv[1:])
