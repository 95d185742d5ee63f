#!/usr/bin/env python3
"""PM sampling beside GPM beside Nsight Compute, on four kernels of which it is known what they do.

usage: tests/gpu/counters.py [--seconds S] [--built DIR]                on a real GPU (root, PyTorch, CUPTI, ncu)
       tests/gpu/counters.py --simulated [--built DIR] [--daemon CMD]   tries the script on the simulated driver

Two daemons run at once: one with `[cupti]`, one with what the device itself gives. What it settles:

- whether SM occupancy is per elapsed cycle or per active one, for each counter: one warp on one SM is a hundredth of a
  percent of all warps, and one of the 32 to 64 that its SM holds;
- whether the counters agree, and with those of `ncu`;
- whether PM sampling disturbs GPM: GPM is shown alone as well.

Exit status: 0, 1 if a figure is not what the simulator was told to do, 2 if the machine lacks something.
"""

import csv
import io
import shutil
import subprocess
import sys
import time
from pathlib import Path

from common import Daemon, Missing, Node, arguments, gained, run, table

KERNELS = ["idle", "spin", "product", "copy"]
FIGURES = ["engine_active", "sm_active", "sm_occupied", "tensor_active", "dram_bandwidth"]

# On the simulated driver: SMs, warps on them, tensor pipes and DRAM, in percent.
SHAPES = {"idle": (0, 0, 0, 0), "spin": (1, 10, 0, 0), "product": (100, 25, 60, 20), "copy": (100, 50, 0, 80)}

NCU = {
    "sm_active": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm_occupied": "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "per active": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram_bandwidth": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}


def program(node, kernel):
    """The command of a kernel."""
    if not node.simulated:
        return [node.torch(), Path(__file__).with_name("kernels.py"), kernel]
    workload = [node.need("warpmeter-workload", "warpmeter-workload")]
    library = ["--library", node.work / "lib/libcuda.so.1"]
    if kernel == "idle":
        return [*workload, "holder", *library]
    shape = zip(("--sm", "--occ", "--tensor", "--dram"), SHAPES[kernel])
    return [*workload, "hog", *library, "--kernel-us", "1000", *[word for pair in shape for word in pair]]


def share(before, after, figure, uuid):
    """A figure as a share of the time between two scrapes."""
    elapsed = gained(before, after, "warpmeter_gpu_seconds_total", gpu_uuid=uuid)
    active = gained(before, after, f"warpmeter_gpu_{figure}_seconds_total", gpu_uuid=uuid)
    return None if active is None or not elapsed else active / elapsed


def measure(node, daemons, uuid, kernel, seconds):
    """The figures of each daemon while a kernel runs."""
    running = node.start(program(node, kernel))
    # Its start is nothing that is measured, nor are the windows around it.
    time.sleep(4 if node.simulated else 10)
    if running.poll() is not None:
        raise Missing(f"the program of {kernel} has ended: {running.said()}")
    before = [daemon.metrics() for daemon in daemons]
    time.sleep(seconds)
    after = [daemon.metrics() for daemon in daemons]
    node.end(running)
    time.sleep(2)
    return [{figure: share(*ends, figure, uuid) for figure in FIGURES} for ends in zip(before, after)]


def ncu(node, kernel):
    """What Nsight Compute says of one launch; nothing if it cannot."""
    if node.simulated or kernel == "idle":
        return {}
    command = shutil.which("ncu")
    if command is None:
        print("ncu is not installed: its columns are empty (Nsight Compute)", file=sys.stderr)
        return {}
    words = [command, "--csv", "--launch-skip", "5", "--launch-count", "1", "--kill", "yes"]
    words += ["--metrics", ",".join(NCU.values()), *map(str, program(node, kernel))]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=180, env=node.environment)
    except subprocess.TimeoutExpired:
        print(f"ncu has not ended within 180 s with {kernel}", file=sys.stderr)
        return {}
    lines = found.stdout.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        print(f"ncu gives nothing of {kernel}: {(found.stderr or found.stdout).strip()[-300:]}", file=sys.stderr)
        return {}
    values = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO("\n".join(lines[head:])))}
    shares = {}
    for figure, metric in NCU.items():
        if metric in values:
            shares[figure] = float(values[metric].replace(",", "")) / 100
    return shares


def verdict(name, figures):
    """What one warp on one SM says of a counter's occupancy."""
    active, occupied = figures.get("sm_active"), figures.get("sm_occupied")
    if not active or occupied is None:
        return f"{name}: open, it has no figures of one spinning SM"
    if occupied == 0:
        return f"{name}: open, occupancy reads 0 (is one warp below what it resolves?)"
    ratio = occupied / active
    if ratio <= 1 / 8:
        return f"{name}: per elapsed cycle (occupied is {ratio:.3f} of active)"
    if ratio > 1:
        return f"{name}: per active cycle (occupied is {ratio:.1f} times active, which elapsed cycles cannot give)"
    return f"{name}: open (occupied is {ratio:.3f} of active)"


def words(value):
    return "" if value is None else f"{value * 100:.3f} %"


def main():
    options = arguments(__doc__.splitlines()[0])
    node = Node(options, "H100")
    try:
        return compare(node, options)
    finally:
        node.close()


def compare(node, options):
    own = Daemon(node, "")
    uuid = own.gpu()
    libraries = f'libraries = ["{node.work}/lib"]\n' if node.simulated else ""
    every = '"turing", "ampere", "ada", "hopper", "blackwell"'
    alone = {kernel: measure(node, [own], uuid, kernel, options.seconds)[0] for kernel in KERNELS}
    sampler = Daemon(node, f"[cupti]\nenabled = true\narchitectures = [{every}]\n{libraries}")
    sampler.gpu()
    time.sleep(3)
    health, reason = sampler.health("nvidia")
    if "PM sampling" in reason:
        print(f"PM sampling is {health}: {reason}", file=sys.stderr)
    found = {kernel: measure(node, [own, sampler], uuid, kernel, options.seconds) for kernel in KERNELS}
    # The monitor has one owner.
    node.end(sampler.process)
    profiled = {kernel: ncu(node, kernel) for kernel in KERNELS}

    rows = []
    for kernel in KERNELS:
        beside, sampled = found[kernel]
        for figure in FIGURES:
            columns = [alone[kernel][figure], beside[figure], sampled[figure], profiled[kernel].get(figure)]
            rows.append([f"{kernel}: {figure}", *map(words, columns)])
        rows.append([f"{kernel}: occupied per active cycle", "", "", "", words(profiled[kernel].get("per active"))])
    table(["kernel", "the device's own (GPM), alone", "… beside PM sampling", "PM sampling", "ncu, one launch"], rows)
    print()
    for name, figures in [
        ("the device's own (GPM)", alone["spin"]),
        ("PM sampling", found["spin"][1]),
        ("ncu, …_elapsed", profiled["spin"]),
    ]:
        print(verdict(name, figures))
    if not node.simulated:
        return 0
    wrong = []
    for kernel, (sms, warps, tensor, dram) in SHAPES.items():
        truth = [sms / 100, sms * warps / 10_000, tensor / 100, dram / 100]
        for name, figures in [("own", alone[kernel]), ("own beside", found[kernel][0]), ("sampled", found[kernel][1])]:
            # Of the time in which it ran: how much that is, is a matter of how busy this machine is.
            engine = figures["engine_active"]
            if engine is None or (engine > 0.1) != (kernel != "idle"):
                wrong.append(f"{kernel}, {name}: the engine was active for {engine}")
            for figure, expected in zip(FIGURES[1:], truth):
                value = figures[figure]
                if value is None or engine is None or abs(value - expected * engine) > 0.02 * engine:
                    wrong.append(f"{kernel}, {name}: {figure} is {value}, and was to be {expected} of {engine}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
