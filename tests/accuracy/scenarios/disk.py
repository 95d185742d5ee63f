"""Held up by a disk: a file system on a loop device, throttled by the pod's cgroup."""

from bench.machine import limits
from bench.scenario import Case, Cause, alone, scenario, trainer


def reading(lab, do, **words):
    """A loop that reads before each step, as fast as its disk lets it; and without reading."""
    wait_ms, kernel_ms = lab.draw.uniform(15, 60), lab.draw.uniform(10, 40)
    mbs = lab.draw.choice([20, 30, 40])
    kib = max(256, int(wait_ms * mbs * 1000 / 1024) // 256 * 256)
    device = {"kernels": lab.draw.choice([4, 8, 16]), "mode": "sync"}
    device["kernel_us"] = kernel_ms * 1000 / device["kernels"]
    stage = {"do": do, "file": lab.data(), "kib": kib, **words}
    steps = trainer(lab, wait_ms + kernel_ms, {"kind": "inline", "stages": [stage]}, **device)
    without = {**steps, "source": {"kind": "inline"}}
    return Case(
        {"full": alone(steps, limits(lab.disk, read_mbs=mbs)), "no read": alone(without)},
        [Cause(("disk_read",), "full", "no read")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms, "mbs": mbs, "kib": kib},
    )


@scenario("O_DIRECT reads from a slow disk before each step", quick=True)
def disk_direct(lab):
    return reading(lab, "direct")


@scenario("buffered reads of what is not in the page cache")
def disk_cold(lab):
    return reading(lab, "cold")
