"""Held up by a disk: a file system on a loop device, throttled by the pod's cgroup."""

from bench.machine import limits
from bench.scenario import Case, Cause, alone, scenario, trainer


def kernels(lab, low=10, high=40):
    """Kernels of a step that take so many ms together: how long, and the device's part of a configuration."""
    total, count = lab.draw.uniform(low, high), lab.draw.choice([4, 8, 16])
    return total, {"kernels": count, "kernel_us": round(total * 1000 / count, 1)}


def read(lab, do="direct", low=15, high=60):
    """A stage that reads for about so many ms, and the limit that makes it so."""
    wait_ms, mbs = lab.draw.uniform(low, high), lab.draw.choice([20, 30, 40])
    kib = max(256, int(wait_ms * mbs * 1000 / 1024) // 256 * 256)
    return wait_ms, {"do": do, "file": lab.data(), "kib": kib}, limits(lab.disk, read_mbs=mbs)


def reading(lab, do):
    """A loop that reads before each step, as fast as its disk lets it; and without reading."""
    wait_ms, stage, slow = read(lab, do)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, wait_ms + kernel_ms, {"kind": "inline", "stages": [stage]}, **device)
    without = {**steps, "source": {"kind": "inline"}}
    return Case(
        {"full": alone(steps, slow), "no read": alone(without, slow)},
        [Cause(("disk_read",), "full", "no read")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms, "kib": stage["kib"]},
    )


@scenario("O_DIRECT reads from a slow disk before each step", quick=True)
def disk_direct(lab):
    return reading(lab, "direct")


@scenario("buffered reads of what is not in the page cache")
def disk_cold(lab):
    return reading(lab, "cold")


@scenario("page faults on a mapped file that is not in memory")
def disk_mapped(lab):
    return reading(lab, "mapped")


@scenario("many small files, with few reads a second allowed")
def disk_small_files(lab):
    iops, count = lab.draw.choice([800, 1200]), lab.draw.randint(16, 48)
    wait_ms = count * 1000 / iops
    kernel_ms, device = kernels(lab)
    stage = {"do": "files", "directory": lab.small_files(1500, 16), "count": count}
    steps = trainer(lab, wait_ms + kernel_ms, {"kind": "inline", "stages": [stage]}, **device)
    slow = limits(lab.disk, read_iops=iops)
    return Case(
        {"full": alone(steps, slow), "no read": alone({**steps, "source": {"kind": "inline"}}, slow)},
        [Cause(("disk_read",), "full", "no read")],
        parameters={"iops": iops, "count": count, "kernel_ms": kernel_ms},
    )


def checkpoints(lab, direct):
    mbs, every = lab.draw.choice([20, 40]), lab.draw.randint(4, 8)
    write_ms = lab.draw.uniform(60, 150)
    kernel_ms, device = kernels(lab, 8, 20)
    kib = int(write_ms * mbs) // 4 * 4
    after = [{"do": "write", "file": str(lab.disk.mount / "checkpoint"), "kib": kib, "every": every, "direct": direct}]
    steps = trainer(lab, kernel_ms + write_ms / every, after=after, **device)
    slow = limits(lab.disk, write_mbs=mbs)
    return Case(
        {"full": alone(steps, slow), "no checkpoint": alone({**steps, "after": []}, slow)},
        [Cause(("disk_write",), "full", "no checkpoint")],
        parameters={"write_ms": write_ms, "every": every, "kernel_ms": kernel_ms, "kib": kib},
    )


@scenario("checkpoints, each waited for until it is on the disk")
def checkpoint_fsync(lab):
    return checkpoints(lab, False)


@scenario("checkpoints written past the page cache")
def checkpoint_direct(lab):
    return checkpoints(lab, True)


@scenario("reads, then decodes: two bottlenecks in series")
def disk_then_decode(lab):
    wait_ms, stage, slow = read(lab, "cold", 15, 40)
    work_ms = lab.draw.uniform(10, 30)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, wait_ms + work_ms + kernel_ms, {"kind": "inline", "stages": [stage, lab.hash(work_ms)]}, **device)
    part = lambda stages: alone({**steps, "source": {"kind": "inline", "stages": stages}}, slow)
    return Case(
        {"full": alone(steps, slow), "no read": part([lab.hash(work_ms)]), "no decode": part([stage])},
        [Cause(("disk_read",), "full", "no read"), Cause(("cpu",), "full", "no decode")],
        parameters={"wait_ms": wait_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )
