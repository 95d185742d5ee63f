"""Held up by a lock that others hold: what they do while they hold it is the cause, if they do anything."""

from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels


def convoy(lab, cause, holding, hold_ms, slow_disk=(), **words):
    kernel_ms, device = kernels(lab, 10, 25)
    source = {"kind": "convoy", "holding": holding, "pause": [{"do": "sleep", "ms": 3}], **words}
    steps = trainer(lab, source, **device)
    return Case(
        {"full": alone(steps, slow_disk=slow_disk), "no holder": alone({**steps, "source": {"kind": "inline"}})},
        [Cause((cause,), "full", "no holder")],
        parameters={"hold_ms": hold_ms, "kernel_ms": kernel_ms, **words},
    )


@scenario("threads hold a lock and sleep: lock", phase="source")
def lock_threads_asleep(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "lock", [{"do": "sleep", "ms": hold_ms}], hold_ms, holders=lab.draw.choice([1, 2]))


@scenario("threads hold a lock and compute: cpu", phase="source")
def lock_threads_computing(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "cpu", [lab.hash(hold_ms)], hold_ms, holders=1)


@scenario("a process holds a lock that it shares with the loop, and sleeps: lock", phase="source")
def lock_process_asleep(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "lock", [{"do": "sleep", "ms": hold_ms}], hold_ms, holders=1, processes=True)


@scenario("a process holds a lock that it shares with the loop, and reads from a slow disk: disk_read", phase="source")
def lock_process_reading(lab):
    mbs, kib = lab.draw.choice([20, 30, 40]), lab.draw.choice([512, 768, 1024])
    stage = {"do": "direct", "file": lab.data(lab.slow), "kib": kib}
    return convoy(lab, "disk_read", [stage], kib * 1.024 / mbs, (mbs, mbs, 0.2), holders=1, processes=True)
