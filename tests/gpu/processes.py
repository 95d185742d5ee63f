#!/usr/bin/env python3
"""Processes that share one device: what the daemon concludes of each, beside what the library injected into it says.

usage: tests/gpu/processes.py [--seconds S] [--built DIR]                on a real GPU (root, PyTorch)
       tests/gpu/processes.py --simulated [--built DIR] [--daemon CMD]   tries the script on the simulated driver

Three programs run alone, then two of them together, then all three, each in a pod of its own as a file of pods has it,
with the injected library, which takes records all of the time. What it settles: whether kernels' records span the turns
of other processes, as docs/inject.md says, and so what `ran` is worth; and how far the daemon's division is off.

Exit status: 0, 1 if a figure is not what the simulator logged, 2 if the machine lacks something.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT, Daemon, Missing, Node, arguments, gained, run, table

sys.path.insert(0, str(ROOT / "tests/simgpu"))
import oracle

# Where a hierarchy of cgroups can be: unified, unified beside version 1, and version 1's lightest controller.
HIERARCHIES = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"]

REAL = {"a": ["product", "1.0"], "b": ["product", "0.4"], "c": ["copy", "0.5"]}
SIMULATED = {
    "a": ["hog", "--kernel-us", "230"],
    "b": ["trainer", "--kernels", "30", "--kernel-us", "150", "--host-us", "3000"],
    "c": ["hog", "--kernel-us", "110", "--duty", "0.5"],
}
# How far a share may be off the simulator's log.
TOLERANCE = 0.06


class Cgroups:
    """Cgroups of containers, as a kubelet names them, for as long as this lives."""

    def __init__(self):
        roots = [Path(root) for root in HIERARCHIES if Path(root, "cgroup.procs").exists()]
        self.made = []
        for root in roots:
            top = root / f"warpmeter-gpu-{os.getpid()}"
            try:
                top.mkdir()
            except OSError:
                continue
            self.made.append(top)
            return
        raise Missing(
            "no cgroup can be made here, and without one of its own for each process the daemon cannot tell them apart: "
            "run this as root, where /sys/fs/cgroup can be written"
        )

    def container(self, number):
        """A pod's UID, its container's id, and the file that takes its processes."""
        uid = f"{os.getpid():08x}-0000-4000-8000-{number:012x}"
        container = f"{os.getpid():032x}{number:032x}"
        pod = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        path = self.made[0]
        for part in ["kubepods.slice", "kubepods-burstable.slice", pod, f"cri-containerd-{container}.scope"]:
            path = path / part
            if not path.exists():
                path.mkdir()
                self.made.append(path)
        return uid, container, path / "cgroup.procs"

    def close(self):
        for path in reversed(self.made):
            for _ in range(100):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def program(node, name):
    """The command of a program."""
    if not node.simulated:
        return [node.torch(), Path(__file__).with_name("kernels.py"), *REAL[name]]
    workload = node.need("warpmeter-workload", "warpmeter-workload")
    kind, *more = SIMULATED[name]
    return [workload, kind, "--library", node.work / "lib/libcuda.so.1", *more]


def injection(node):
    """The variables with which the driver loads the library."""
    library = node.need("libwarpmeter_inject.so", "warpmeter-inject")
    variables = {"CUDA_INJECTION64_PATH": str(library), "WARPMETER_INJECT_SAMPLE": "1/1"}
    if node.simulated:
        variables["WARPMETER_INJECT_CUPTI"] = str(node.work / "lib/libcupti.so.12")
    return variables


def pods(uuid, containers):
    """A file of pods, each with a replica of the device."""
    text = f'[[device]]\nid = "{uuid}"\nreplicas = {len(containers)}\n'
    for name, (uid, container, _) in containers.items():
        text += (
            f'[[pod]]\nuid = "{uid}"\nnamespace = "gpu"\nname = "{name}"\n'
            f'containers = [{{ name = "main", id = "{container}", devices = ["{uuid}"] }}]\n'
        )
    return text


def logged(node, processes, low, high):
    """The busy share of each process by the simulator's own log."""
    if not node.simulated:
        return {}
    simgpu = node.need("simgpu", "warpmeter-simgpu")
    subprocess.run([simgpu, "flush", "--state", node.work / "node"], check=True, stdout=subprocess.DEVNULL)
    records = oracle.read(node.work / "node/oracle.jsonl", low, high)
    busy = {pid: oracle.union(found) for (_, _, pid), found in records.items()}
    return {name: busy.get(process.pid, 0) / (high - low) for name, process in processes.items()}


def measure(node, daemon, uuid, containers, names, seconds):
    """Rows of the programs of these names, run together; and what is wrong with them."""
    started = {name: node.start(program(node, name), injection(node), containers[name][2]) for name in names}
    time.sleep(4 if node.simulated else 12)
    for name, process in started.items():
        if process.poll() is not None:
            raise Missing(f"the program of {name} has ended: {process.said()}")
    before, low = daemon.metrics(), time.monotonic_ns()
    time.sleep(seconds)
    after, high = daemon.metrics(), time.monotonic_ns()
    truth = logged(node, started, low, high)
    for process in started.values():
        node.end(process)
    time.sleep(2)

    elapsed = gained(before, after, "warpmeter_gpu_seconds_total", gpu_uuid=uuid)
    rows, wrong = [], []
    for name in names:
        gain = lambda family: gained(before, after, f"warpmeter_pod_{family}_seconds_total", pod=name)
        used, own = gain("gpu_used"), gain("injected_elapsed")
        shares = [None if used is None or not elapsed else used / elapsed]
        for family in ["injected_ran", "injected_busy"]:
            value = gain(family)
            shares.append(None if value is None or not own else value / own)
        shares.append(truth.get(name))
        together = "alone" if len(names) == 1 else f"{len(names)} together"
        rows.append([f"{together}: {name}", *("" if share is None else f"{share * 100:.1f} %" for share in shares)])
        for what, share in zip(["the daemon", "the library"], shares):
            if name in truth and (share is None or abs(share - truth[name]) > TOLERANCE):
                wrong.append(f"{rows[-1][0]}: by {what} {share}, and {truth[name]:.3f} in the log")
    return rows, wrong


def main():
    options = arguments(__doc__.splitlines()[0])
    node = Node(options, "H100")
    try:
        cgroups = Cgroups()
        try:
            return compare(node, options, cgroups)
        finally:
            # Processes first: a cgroup with one in it stays.
            for process in node.processes:
                node.end(process)
            cgroups.close()
    finally:
        node.close()


def compare(node, options, cgroups):
    program(node, "a"), injection(node)
    containers = {name: cgroups.container(number) for number, name in enumerate(SIMULATED)}
    first = Daemon(node, "")
    uuid = first.gpu()
    node.end(first.process)
    listed = node.work / "pods.toml"
    listed.write_text(pods(uuid, containers))
    more = f'[pods]\nfile = "{listed}"\n[inject]\nenabled = true\n[metrics]\nlevel = "full"\n'
    daemon = Daemon(node, more)
    daemon.gpu()
    rows, wrong = [], []
    for names in [["a"], ["b"], ["c"], ["a", "b"], ["a", "b", "c"]]:
        found, faults = measure(node, daemon, uuid, containers, names, options.seconds)
        rows += found
        wrong += faults
    health, reason = daemon.health("inject")
    if health != "up":
        print(f"the source of injected libraries is {health}: {reason}", file=sys.stderr)
    head = ["", "the daemon: used", "the library: ran", "the library: busy", "the log"]
    if not node.simulated:
        head.pop()
        rows = [row[:-1] for row in rows]
    print("Shares of elapsed time.\n")
    table(head, rows)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
