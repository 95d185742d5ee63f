#!/usr/bin/env python3
"""Independent readers of a simulated node: nvidia-ml-py, gpustat and nvitop must see what the node truly does.

usage: readers.py --built DIR [--python PYTHON]
DIR holds simgpu, warpmeter-workload and the built libraries. PYTHON (this one by default) has the three packages:
    python3 -m venv VENV && VENV/bin/pip install nvidia-ml-py gpustat nvitop
The last line is `N passed, N failed`; the exit status is 0 only if nothing failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = """
seed = 7
[[gpu]]
model = "H100"
[[gpu]]
model = "A100"
mig = [{ profile = "3g.40gb" }, { profile = "2g.20gb", ci = false }, { profile = "1g.10gb" }]
[[gpu]]
model = "T4"
minor = 5
"""
MIB = 1 << 20
passed = failed = 0


def check(what, ok, seen=""):
    """Counts one assertion."""
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what} {seen}", flush=True)


def refuses(what, error, call, *args):
    """Asserts that a call raises an NVML error of this class."""
    try:
        check(what, False, f"gave {call(*args)}")
    except error:
        check(what, True)
    except Exception as other:  # the wrong error is a failure, not an end
        check(what, False, f"raised {other!r}")


class Node:
    """The node under test and the programs on it."""

    def __init__(self, built, directory):
        self.built, self.state = Path(built), Path(directory)
        (self.state / "node.toml").write_text(SCENARIO)
        self.env = dict(os.environ, SIMGPU_STATE=str(self.state), LD_LIBRARY_PATH=str(self.state / "lib"))
        self.simgpu("create", "--scenario", str(self.state / "node.toml"), "--libraries", str(self.state / "lib"))
        self.programs = []

    def simgpu(self, verb, *words):
        command = [self.built / "simgpu", verb, "--state", str(self.state), *words]
        return subprocess.run(command, check=True, env=self.env, capture_output=True, text=True).stdout

    def start(self, visible, *words):
        env = dict(self.env, CUDA_VISIBLE_DEVICES=visible)
        program = subprocess.Popen([self.built / "warpmeter-workload", *words], env=env)
        self.programs.append(program)
        return program.pid

    def stop(self):
        for program in self.programs:
            program.send_signal(signal.SIGTERM)
        for program in self.programs:
            program.wait()


def truth(node, low, high):
    """Busy share per (mig, pid) of the H100 and the MIG devices over a time, from the oracle."""
    node.simgpu("flush")
    script = Path(__file__).with_name("oracle.py")
    command = [sys.executable, script, node.state / "oracle.jsonl", "--from", str(low), "--until", str(high), "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {(row["mig"], row["process"]): row["seconds"] / ((high - low) / 1e9) for row in rows}


def near(a, b, tolerance):
    return abs(a - b) <= tolerance


def with_nvml(node, pids):
    """nvidia-ml-py, call by call."""
    import pynvml as nvml

    nvml.nvmlInit()
    check("driver version", nvml.nvmlSystemGetDriverVersion() == "570.124.06")
    check("device count", nvml.nvmlDeviceGetCount() == 3)
    h100, a100, t4 = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3))
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4"]
    check("names", [nvml.nvmlDeviceGetName(h) for h in (h100, a100, t4)] == names)
    uuids = [nvml.nvmlDeviceGetUUID(h) for h in (h100, a100, t4)]
    check("uuids", len(set(uuids)) == 3 and all(u.startswith("GPU-") and len(u) == 40 for u in uuids), uuids)
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(uuids[2])
    check("handle by uuid", nvml.nvmlDeviceGetIndex(by_uuid) == 2 and nvml.nvmlDeviceGetMinorNumber(by_uuid) == 5)
    bus = nvml.nvmlDeviceGetPciInfo(a100).busId
    check("handle by bus id", nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(bus)) == 1, bus)

    memory = nvml.nvmlDeviceGetMemoryInfo(h100, version=nvml.nvmlMemory_v2)
    check("memory capacity", memory.total == 81559 * MIB)
    check("memory in use", memory.used == (2 * 480 + 1000) * MIB, memory.used / MIB)
    check("memory adds up", memory.total == memory.used + memory.free + memory.reserved)
    seen = {p.pid: p.usedGpuMemory // MIB for p in nvml.nvmlDeviceGetComputeRunningProcesses(h100)}
    check("processes with memory", seen == {pids["half"]: 1480, pids["quarter"]: 480}, seen)
    check("no process on the idle device", nvml.nvmlDeviceGetComputeRunningProcesses(t4) == [])

    low = time.monotonic_ns()
    energy = nvml.nvmlDeviceGetTotalEnergyConsumption(h100)
    samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    nvml.nvmlGpmSampleGet(h100, samples[0])
    rates, process_rates, seen_until = [], {}, int(time.time() * 1e6)
    for _ in range(40):
        time.sleep(0.1)
        rates.append(nvml.nvmlDeviceGetUtilizationRates(h100).gpu)
        try:
            for sample in nvml.nvmlDeviceGetProcessUtilization(h100, seen_until):
                process_rates.setdefault(sample.pid, {})[sample.timeStamp] = sample.smUtil
        except nvml.NVMLError_NotFound:
            pass
    nvml.nvmlGpmSampleGet(h100, samples[1])
    joules = (nvml.nvmlDeviceGetTotalEnergyConsumption(h100) - energy) / 1000
    high = time.monotonic_ns()
    busy = truth(node, low, high)
    half, quarter = busy[None, pids["half"]], busy[None, pids["quarter"]]
    mean = sum(rates) / len(rates) / 100
    check("utilisation near the truth", near(mean, half + quarter, 0.08), (mean, half, quarter))
    for name, share in (("half", half), ("quarter", quarter)):
        values = process_rates.get(pids[name], {}).values()
        mean = sum(values) / max(1, len(values)) / 100
        check(f"process utilisation near the truth ({name})", near(mean, share, 0.10), (mean, share))
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 4
    request.sample1, request.sample2 = samples
    for place, metric in enumerate((1, 2, 3, 222)):
        request.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(request)
    engine, sm, occupancy = (request.metrics[i].value / 100 for i in range(3))
    check("GPM engine active near the truth", near(engine, half + quarter, 0.06), (engine, half + quarter))
    check("GPM SM active is 90 % of it", near(sm, 0.9 * engine, 0.01), (sm, engine))
    check("GPM occupancy is half of that", near(occupancy, 0.5 * sm, 0.01), (occupancy, sm))
    check("GPM unknown metric fails alone", request.metrics[3].nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED)
    check("no GPM on the A100", nvml.nvmlGpmQueryDeviceSupport(a100).isSupportedDevice == 0)
    watts = joules / ((high - low) / 1e9)
    check("power between idle and limit", 100 < watts < 700, watts)
    check("power agrees with energy", near(nvml.nvmlDeviceGetPowerUsage(h100) / 1000, watts, 200), watts)
    check("idle power", nvml.nvmlDeviceGetPowerUsage(t4) == 10000)
    check("power limit", nvml.nvmlDeviceGetEnforcedPowerLimit(h100) == 700000)
    check("temperature", 20 < nvml.nvmlDeviceGetTemperature(h100, nvml.NVML_TEMPERATURE_GPU) < 90)
    check("clocks", nvml.nvmlDeviceGetClockInfo(h100, nvml.NVML_CLOCK_SM) == 1980)
    kind, values = nvml.nvmlDeviceGetSamples(h100, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    check("utilisation samples", len(values) > 10 and all(0 <= v.sampleValue.uiVal <= 100 for v in values), kind)
    fields = nvml.nvmlDeviceGetFieldValues(h100, [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 9999])
    check("field value", fields[0].nvmlReturn == 0 and fields[0].value.ullVal > energy)
    check("unknown field fails alone", fields[1].nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED)

    check("MIG mode", nvml.nvmlDeviceGetMigMode(a100) == [1, 1] and nvml.nvmlDeviceGetMigMode(h100) == [0, 0])
    refuses("no MIG on the T4", nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetMigMode, t4)
    refuses("no utilisation on MIG", nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetUtilizationRates, a100)
    migs = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(a100, i) for i in range(2)]
    refuses("two MIG devices", nvml.NVMLError_NotFound, nvml.nvmlDeviceGetMigDeviceHandleByIndex, a100, 2)
    check("MIG names", nvml.nvmlDeviceGetName(migs[1]).endswith("MIG 1g.10gb"))
    check("MIG instance ids", [nvml.nvmlDeviceGetGpuInstanceId(m) for m in migs] == [1, 7])
    attributes = nvml.nvmlDeviceGetAttributes(migs[0])
    check("MIG attributes", (attributes.gpuInstanceSliceCount, attributes.multiprocessorCount) == (3, 42))
    check("MIG memory", nvml.nvmlDeviceGetMemoryInfo(migs[1]).total == 10240 * MIB)
    on_mig = nvml.nvmlDeviceGetComputeRunningProcesses(migs[1])
    check("process on its MIG device", [p.pid for p in on_mig] == [pids["mig"]])
    on_parent = nvml.nvmlDeviceGetComputeRunningProcesses(a100)
    check("process on the parent", [(p.pid, p.gpuInstanceId) for p in on_parent] == [(pids["mig"], 7)])
    check("MIG parent", nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migs[0])) == 1)
    check("MIG uuid", nvml.nvmlDeviceGetUUID(migs[1]) == pids["mig_uuid"])

    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(h100, nvml.nvmlEventTypeXidCriticalError, events)
    refuses("no event yet", nvml.NVMLError_Timeout, nvml.nvmlEventSetWait_v2, events, 10)
    node.simgpu("fault", "kind=xid", "gpu=0", "code=79", "count=2")
    codes = [nvml.nvmlEventSetWait_v2(events, 2000).eventData for _ in range(2)]
    check("two XIDs", codes == [79, 79], codes)
    refuses("and no third", nvml.NVMLError_Timeout, nvml.nvmlEventSetWait_v2, events, 30)
    nvml.nvmlEventSetFree(events)

    node.simgpu("fault", "kind=lost", "gpu=2")
    refuses("a lost device", nvml.NVMLError_GpuIsLost, nvml.nvmlDeviceGetTemperature, t4, 0)
    check("spares the others", nvml.nvmlDeviceGetName(h100) == names[0])
    node.simgpu("fault", "clear")
    node.simgpu("fault", "kind=garbage", "gpu=0")
    check("garbage", nvml.nvmlDeviceGetUtilizationRates(h100).gpu == 0xFFFFFFFF)
    node.simgpu("fault", "clear")
    node.simgpu("fault", "kind=missing_symbol", "function=nvmlDeviceGetPowerUsage")
    refuses("a missing function", nvml.NVMLError_FunctionNotFound, nvml.nvmlDeviceGetPowerUsage, h100)
    node.simgpu("fault", "kind=hang", "gpu=2", "for_s=0.5")
    before = time.monotonic()
    nvml.nvmlDeviceGetName(t4)
    check("a hang ends with its fault", time.monotonic() - before > 0.2)
    node.simgpu("fault", "kind=reload")
    refuses("a reloaded driver", nvml.NVMLError_Uninitialized, nvml.nvmlDeviceGetName, h100)
    nvml.nvmlInit()
    check("is there again", nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == names[0])
    node.simgpu("fault", "kind=late")
    refuses("no driver", nvml.NVMLError_DriverNotLoaded, nvml.nvmlInit)
    node.simgpu("fault", "clear")


def with_gpustat(_node, pids):
    """gpustat's own query."""
    import gpustat

    gpus = gpustat.new_query().jsonify()["gpus"]
    check("gpustat: names", [g["name"] for g in gpus] == ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4"])
    check("gpustat: memory", [g["memory.total"] for g in gpus] == [81559, 81920, 15360])
    check("gpustat: memory in use", gpus[0]["memory.used"] == 1960, gpus[0]["memory.used"])
    seen = {p["pid"]: p["gpu_memory_usage"] for p in gpus[0]["processes"]}
    check("gpustat: processes", seen == {pids["half"]: 1480, pids["quarter"]: 480}, seen)
    check("gpustat: power", gpus[0]["power.draw"] > 72 and gpus[2]["power.draw"] == 10)
    check("gpustat: utilisation", gpus[0]["utilization.gpu"] > 20 and gpus[2]["utilization.gpu"] == 0)
    check("gpustat: none on MIG", gpus[1]["utilization.gpu"] is None)


def with_nvitop(_node, pids):
    """nvitop's device and process classes."""
    import nvitop

    devices = nvitop.Device.all()
    check("nvitop: names", [d.name() for d in devices] == ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4"])
    check("nvitop: memory", [d.memory_total() // MIB for d in devices] == [81559, 81920, 15360])
    check("nvitop: processes", set(devices[0].processes()) == {pids["half"], pids["quarter"]})
    process = devices[0].processes()[pids["half"]]
    check("nvitop: process memory", process.gpu_memory() == 1480 * MIB, process.gpu_memory())
    check("nvitop: process utilisation", 15 <= process.gpu_sm_utilization() <= 80, process.gpu_sm_utilization())
    check("nvitop: power", devices[0].power_usage() > 72000)
    migs = devices[1].mig_devices()
    check("nvitop: MIG devices", [m.gpu_instance_id() for m in migs] == [1, 7])
    check("nvitop: MIG profile", "1g.10gb" in migs[1].name())
    check("nvitop: MIG process", set(migs[1].processes()) == {pids["mig"]})


READERS = {"gpustat": with_gpustat, "nvitop": with_nvitop, "nvidia-ml-py": with_nvml}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        reader, pids = json.loads(args.inside)
        node = Node.__new__(Node)
        node.built, node.state, node.env = Path(args.built), Path(os.environ["SIMGPU_STATE"]), dict(os.environ)
        READERS[reader](node, pids)
        print(json.dumps([passed, failed]))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        node = Node(args.built, directory)
        shown = node.simgpu("show")
        migs = [word.rstrip(":") for word in shown.split() if word.startswith("MIG-")]
        common = ["--kernel-us", "300", "--sm", "90", "--occ", "50", "--blocking-sync"]
        pids = {
            "half": node.start("0", "hog", "--duty", "0.5", "--memory-mib", "1000", *common),
            "quarter": node.start("0", "hog", "--duty", "0.25", *common),
            "mig": node.start(migs[2], "trainer", *common),
            "mig_uuid": migs[2],
        }
        time.sleep(2.5)
        total = [0, 0]
        try:
            for reader in READERS:
                # In a process each: the loader reads its search path at the start, and nvitop patches nvidia-ml-py.
                words = [args.python, __file__, "--built", args.built, "--inside", json.dumps([reader, pids])]
                done = subprocess.run(words, env=node.env, stdout=subprocess.PIPE, text=True)
                lines = done.stdout.splitlines()
                print("\n".join(lines[:-1] if done.returncode == 0 else lines), end="\n" if lines[1:] else "")
                counts = json.loads(lines[-1]) if done.returncode == 0 else [0, 1]
                total = [a + b for a, b in zip(total, counts)]
        finally:
            node.stop()
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
