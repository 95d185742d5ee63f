"""Held up by the host's processors."""

from bench.scenario import Case, Cause, alone, scenario, trainer


@scenario("the loop decodes each batch itself", quick=True)
def decode_inline(lab):
    work_ms, kernel_ms = lab.draw.uniform(10, 50), lab.draw.uniform(10, 40)
    steps = trainer(lab, work_ms + kernel_ms, {"kind": "inline", "stages": [lab.hash(work_ms)]},
                    kernels=8, kernel_us=kernel_ms * 125, blocking=lab.draw.random() < 0.5)
    return Case(
        {"full": alone(steps), "no decode": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no decode")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms},
    )
