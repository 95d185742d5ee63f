"""Held up by a lock that others hold: what they do while they hold it is the cause, if they do anything."""

from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels, read


def convoy(lab, cause, holding, hold_ms, limits=None, **words):
    kernel_ms, device = kernels(lab, 10, 25)
    source = {"kind": "convoy", "holding": holding, "pause": [{"do": "sleep", "ms": 3}], **words}
    steps = trainer(lab, kernel_ms + hold_ms * words.get("holders", 1), source, **device)
    return Case(
        {"full": alone(steps, limits), "no holder": alone({**steps, "source": {"kind": "inline"}}, limits)},
        [Cause((cause,), "full", "no holder")],
        parameters={"hold_ms": hold_ms, "kernel_ms": kernel_ms, **words},
    )


@scenario("threads hold a lock and sleep: lock")
def lock_threads_asleep(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "lock", [{"do": "sleep", "ms": hold_ms}], hold_ms, holders=lab.draw.choice([1, 2]))


@scenario("threads hold a lock and compute: cpu")
def lock_threads_computing(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "cpu", [lab.hash(hold_ms)], hold_ms, holders=1)


@scenario("a process holds a lock that it shares with the loop, and sleeps: lock")
def lock_process_asleep(lab):
    hold_ms = lab.draw.uniform(15, 40)
    return convoy(lab, "lock", [{"do": "sleep", "ms": hold_ms}], hold_ms, holders=1, processes=True)


@scenario("a process holds a lock that it shares with the loop, and reads from a slow disk: disk_read")
def lock_process_reading(lab):
    wait_ms, stage, slow = read(lab, "direct", 15, 40)
    return convoy(lab, "disk_read", [stage], wait_ms, slow, holders=1, processes=True)
