"""Held up by the host's processors: by computing, or by not getting one."""

from bench.machine import limits
from bench.scenario import Case, Cause, Pod, Process, Variant, alone, scenario, trainer

from scenarios.disk import kernels


def decoding(lab, stage, work_ms):
    kernel_ms, device = kernels(lab)
    device["blocking"] = lab.draw.random() < 0.5
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    return Case(
        {"full": alone(steps), "no decode": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no decode")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms, "blocking": device["blocking"]},
    )


@scenario("the loop decodes each batch itself, in a library", phase="source")
def decode_inline(lab):
    work_ms = lab.draw.uniform(10, 50)
    return decoding(lab, lab.hash(work_ms), work_ms)


@scenario("the loop makes each batch in Python", phase="source")
def python_inline(lab):
    work_ms = lab.draw.uniform(10, 50)
    return decoding(lab, lab.interpret(work_ms), work_ms)


@scenario("decoding under a quota of processor time: what it lacks is cpu_wait, the work itself cpu")
def cpu_quota(lab):
    work_ms, quota = lab.draw.uniform(25, 40), lab.draw.choice([0.3, 0.4, 0.5])
    kernel_ms, device = kernels(lab, 8, 15)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device)
    without = {**steps, "source": {"kind": "inline"}}
    return Case(
        {"full": alone(steps, limits(cpu=quota)), "no quota": alone(steps), "no quota or decode": alone(without)},
        [Cause(("cpu_wait",), "full", "no quota"), Cause(("cpu",), "no quota", "no quota or decode")],
        parameters={"work_ms": work_ms, "quota": quota, "kernel_ms": kernel_ms},
    )


@scenario("neighbours compute on the same processor: the wait for it is cpu_wait, the work itself cpu")
def cpu_neighbours(lab):
    work_ms, neighbours = lab.draw.uniform(15, 30), lab.draw.choice([1, 2])
    kernel_ms, device = kernels(lab, 8, 15)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device)
    pinned = lambda config, others: Variant([Pod("main", [Process(config, processors=(1,))])], others=others)
    beside = [(["burn.py"], (1,), None)] * neighbours
    without = {**steps, "source": {"kind": "inline"}}
    return Case(
        {"full": pinned(steps, beside), "no neighbours": pinned(steps, []), "no neighbours or decode": pinned(without, [])},
        [Cause(("cpu_wait",), "full", "no neighbours"), Cause(("cpu",), "no neighbours", "no neighbours or decode")],
        parameters={"work_ms": work_ms, "neighbours": neighbours, "kernel_ms": kernel_ms},
    )


@scenario("another thread of the interpreter holds its lock to compute: cpu, which is what the lock's holder does")
def interpreter_fight(lab):
    kernel_ms, device = kernels(lab, 15, 30)
    device["kernels"], device["kernel_us"] = 2, kernel_ms * 500
    steps = trainer(lab, {"kind": "beside", "beside": [lab.interpret(20)], "threads": 1}, **device)
    return Case(
        {"full": alone(steps), "no thread": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no thread")],
        parameters={"kernel_ms": kernel_ms},
    )
