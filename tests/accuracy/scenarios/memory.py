"""Held up by too little memory."""

from bench.machine import limits
from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels


@scenario("a limit below what the loop touches: pages come back from a swap file with a latency", phase="source")
def memory_swap(lab):
    pages = lab.draw.choice([40, 80])
    kernel_ms, device = kernels(lab, 10, 25)
    steps = trainer(lab, {"kind": "inline", "stages": [{"do": "touch", "mib": 96, "pages": pages}]}, **device)
    slow = {"swap": True, "slow_disk": (200, 200, 0.3)}
    return Case(
        {"full": alone(steps, limits(memory_mib=64), **slow), "no limit": alone(steps, **slow)},
        [Cause(("memory",), "full", "no limit")],
        parameters={"pages": pages, "kernel_ms": kernel_ms},
    )


@scenario("a limit below a file on a slow disk that is read again and again: it comes from there each time", phase="source")
def memory_cache(lab):
    mbs, kib = lab.draw.choice([40, 60]), lab.draw.choice([1024, 2048])
    kernel_ms, device = kernels(lab, 10, 25)
    steps = trainer(lab, {"kind": "inline", "stages": [{"do": "again", "file": lab.data(lab.slow), "kib": kib}]}, **device)
    slow = (mbs, mbs, 0.2)
    return Case(
        # The disk is as slow without the limit: only the limit is taken away. The file is in memory then before steps count.
        {"full": alone(steps, limits(memory_mib=64), slow_disk=slow), "no limit": alone(steps, slow_disk=slow)},
        # Pages that were there before are memory to some, and to others what the disk takes: either is right.
        [Cause(("disk_read", "memory"), "full", "no limit")],
        parameters={"mbs": mbs, "kib": kib, "kernel_ms": kernel_ms},
    )
