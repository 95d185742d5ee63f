"""Held up by too little memory."""

from bench.machine import limits
from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels


@scenario("a limit below what the loop touches: pages come back from swap")
def memory_swap(lab):
    pages = lab.draw.choice([200, 300])
    kernel_ms, device = kernels(lab, 10, 25)
    steps = trainer(lab, kernel_ms + pages * 0.08, {"kind": "inline", "stages": [{"do": "touch", "mib": 128, "pages": pages}]}, **device)
    return Case(
        {"full": alone(steps, limits(memory_mib=80), swap=True), "no limit": alone(steps)},
        [Cause(("memory",), "full", "no limit")],
        parameters={"pages": pages, "kernel_ms": kernel_ms},
    )


@scenario("a limit below a file that is read again and again: it comes from a slow disk each time")
def memory_cache(lab):
    mbs, kib = lab.draw.choice([60, 80]), lab.draw.choice([1024, 2048])
    kernel_ms, device = kernels(lab, 10, 25)
    stage = {"do": "again", "file": lab.data(96), "kib": kib}
    steps = trainer(lab, kernel_ms + kib / mbs, {"kind": "inline", "stages": [stage]}, **device)
    slow = {**limits(lab.disk, read_mbs=mbs), **limits(memory_mib=72)}
    return Case(
        {"full": alone(steps, slow), "no limit": alone(steps)},
        # Kernels count what a page costs that was there before as memory, users as disk: either is right.
        [Cause(("disk_read", "memory"), "full", "no limit")],
        parameters={"mbs": mbs, "kib": kib, "kernel_ms": kernel_ms},
    )
