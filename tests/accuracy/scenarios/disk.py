"""Held up by a disk: a file system on a loop device, throttled by the pod's cgroup."""

from bench.machine import limits
from bench.scenario import Case, Cause, alone, scenario, trainer


def kernels(lab, low=10, high=40):
    """Kernels of a step that take so many ms together: how long, and the device's part of a configuration."""
    total, count = lab.draw.uniform(low, high), lab.draw.choice([4, 8, 16])
    return total, {"kernels": count, "kernel_us": round(total * 1000 / count, 1)}


def read(lab, do="direct", low=15, high=60, busy_ms=0.0):
    """A stage that the loop waits for about so many ms, and the limit that makes it so. What the limit allows is saved up
    while the loop does not read, for `busy_ms` of each step, unless a neighbour takes it.
    """
    wait_ms, mbs = lab.draw.uniform(low, high), lab.draw.choice([20, 30, 40])
    kib = max(256, int((wait_ms + busy_ms) * mbs * 1000 / 1024) // 64 * 64)
    return wait_ms, {"do": do, "file": lab.data(), "kib": kib}, limits(lab.disk, read_mbs=mbs)


def reading(lab, do):
    """A loop that reads before each step, as fast as its disk lets it; and from a disk without a limit."""
    kernel_ms, device = kernels(lab)
    wait_ms, stage, slow = read(lab, do, busy_ms=kernel_ms)
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    return Case(
        {"full": alone(steps, slow), "no limit": alone(steps)},
        [Cause(("disk_read",), "full", "no limit")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms, "kib": stage["kib"]},
    )


@scenario("O_DIRECT reads from a slow disk before each step", quick=True, phase="source")
def disk_direct(lab):
    return reading(lab, "direct")


@scenario("buffered reads of what is not in the page cache", phase="source")
def disk_cold(lab):
    return reading(lab, "cold")


def slowly(lab, stage, slow_disk):
    """A loop that reads from the slow disk before each step; and from memory."""
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    kept = {**steps, "source": {"kind": "inline", "stages": [{**stage, "keep": True}]}}
    return Case(
        {"full": alone(steps, slow_disk=slow_disk), "in memory": alone(kept)},
        [Cause(("disk_read",), "full", "in memory")],
        parameters={"kernel_ms": kernel_ms, "slow_disk": slow_disk, **stage},
    )


@scenario("page faults on a mapped file that is not in memory, on a disk with a latency", phase="source")
def disk_mapped(lab):
    pages = lab.draw.randint(10, 30)
    stage = {"do": "mapped", "file": lab.data(lab.slow), "kib": 4 * pages}
    return slowly(lab, stage, (100, 100, lab.draw.uniform(0.3, 0.8)))


@scenario("many small files on a disk with a latency", phase="source")
def disk_small_files(lab):
    stage = {"do": "files", "directory": lab.small_files(), "count": lab.draw.randint(8, 24)}
    return slowly(lab, stage, (100, 100, lab.draw.uniform(0.3, 0.8)))


def checkpoints(lab, direct):
    mbs, every = lab.draw.choice([20, 40]), lab.draw.randint(4, 8)
    write_ms = lab.draw.uniform(60, 150)
    kernel_ms, device = kernels(lab, 8, 20)
    kib = int((write_ms + every * kernel_ms) * mbs) // 4 * 4
    after = [{"do": "write", "file": str(lab.disk.mount / "checkpoint"), "kib": kib, "every": every, "direct": direct}]
    steps = trainer(lab, after=after, **device)
    slow = limits(lab.disk, write_mbs=mbs)
    return Case(
        {"full": alone(steps, slow), "no limit": alone(steps)},
        [Cause(("disk_write",), "full", "no limit")],
        parameters={"write_ms": write_ms, "every": every, "kernel_ms": kernel_ms, "kib": kib},
    )


@scenario("checkpoints, each waited for until it is on the disk", phase="after")
def checkpoint_fsync(lab):
    return checkpoints(lab, False)


@scenario("checkpoints written past the page cache", phase="after")
def checkpoint_direct(lab):
    return checkpoints(lab, True)


@scenario("reads, then decodes: two bottlenecks in series")
def disk_then_decode(lab):
    mbs, kib = lab.draw.choice([20, 30, 40]), lab.draw.choice([512, 768, 1024])
    work_ms = lab.draw.uniform(10, 30)
    kernel_ms, device = kernels(lab)
    stage, decode = {"do": "direct", "file": lab.data(lab.slow), "kib": kib}, lab.hash(work_ms)
    steps = trainer(lab, **device)
    part = lambda *stages: alone({**steps, "source": {"kind": "inline", "stages": stages}}, slow_disk=(mbs, mbs, 0.2))
    return Case(
        {"full": part(stage, decode), "no read": part(decode), "no decode": part(stage)},
        [Cause(("disk_read",), "full", "no read"), Cause(("cpu",), "full", "no decode")],
        parameters={"mbs": mbs, "kib": kib, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )
