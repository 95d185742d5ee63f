"""Fed by worker processes: what they do while the loop waits is the cause."""

from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels, read
from scenarios.network import bulk


def fed(lab, causes, stages, batch_ms, kind="loader", limits=None, wire=0, low=10, high=20, without=None, **words):
    """A loop fed by a loader whose workers take `batch_ms` together for a batch. Without the bottleneck: on a disk and
    network without a limit, or with `without` instead of what is computed.
    """
    kernel_ms, device = kernels(lab, low, high)
    source = {"kind": kind, **({} if stages is None else {"stages": stages}), **words}
    steps = trainer(lab, source, **device)
    if limits or wire:
        free = alone(steps)
    else:
        free = alone({**steps, "source": {**source, **(without or {"stages": []})}})
    return Case(
        {"full": alone(steps, limits, wire_mbit=wire), "no bottleneck": free},
        [Cause(causes, "full", "no bottleneck")],
        parameters={"batch_ms": batch_ms, "kernel_ms": kernel_ms, **words},
    )


@scenario("one forked worker decodes", quick=True, phase="source")
def loader_one_decodes(lab):
    work_ms = lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.hash(work_ms)], work_ms, workers=1)


@scenario("four forked workers decode on two processors: cpu and cpu_wait together", phase="source")
def loader_four_decode(lab):
    work_ms = lab.draw.uniform(60, 100)
    return fed(lab, ("cpu", "cpu_wait"), [lab.hash(work_ms)], work_ms / 2, workers=4)


@scenario("one spawned worker reads from a slow disk", phase="source")
def loader_spawned_reads(lab):
    wait_ms, stage, slow = read(lab, "direct", 30, 60)
    return fed(lab, ("disk_read",), [stage], wait_ms, limits=slow, workers=1, start="spawn")


@scenario("four forked workers read from one slow disk", phase="source")
def loader_four_read(lab):
    wait_ms, stage, slow = read(lab, "cold", 30, 60)
    return fed(lab, ("disk_read",), [stage], wait_ms, limits=slow, workers=4)


@scenario("one worker fetches over a slow network, and a thread pins what it made", phase="source")
def loader_pinned_fetches(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, wire=mbit, workers=1, pin=True)


@scenario("workers decode faster than the steps, which run ahead: nothing stalls", truth="log")
def loader_hides(lab):
    work_ms = lab.draw.uniform(10, 20)
    kernel_ms, device = kernels(lab, 30, 45)
    steps = trainer(lab, {"kind": "loader", "stages": [lab.hash(work_ms)], "workers": 1}, **device, mode="ahead")
    return Case({"full": alone(steps)}, no_stall=True, parameters={"work_ms": work_ms, "kernel_ms": kernel_ms})


@scenario("workers are started anew for each short epoch: cpu, of the loader as a whole, most of it for their start", phase="source")
def loader_restarts(lab):
    epoch, work_ms = lab.draw.randint(12, 20), lab.draw.uniform(2, 5)
    source = {"kind": "loader", "stages": [lab.hash(work_ms)], "workers": 1, "start": "spawn", "epoch": epoch}
    kernel_ms, device = kernels(lab, 10, 15)
    steps = trainer(lab, source, **device)
    return Case(
        {"full": alone(steps), "no loader": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu", "cpu_wait"), "full", "no loader")],
        parameters={"epoch": epoch, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("PyTorch's DataLoader without workers: the loop decodes", torch=True, phase="source")
def torch_inline(lab):
    work_ms = lab.draw.uniform(20, 50)
    return fed(lab, ("cpu",), [lab.hash(work_ms)], work_ms + 15, kind="torch", workers=0)


@scenario("PyTorch's DataLoader: one forked worker decodes", torch=True, phase="source")
def torch_one_decodes(lab):
    work_ms = lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.hash(work_ms)], work_ms, kind="torch", workers=1, start="fork")


@scenario("PyTorch's DataLoader: four forked workers read from one slow disk", torch=True, phase="source")
def torch_four_read(lab):
    wait_ms, stage, slow = read(lab, "cold", 30, 60)
    return fed(lab, ("disk_read",), [stage], wait_ms, kind="torch", limits=slow, workers=4, start="fork")


@scenario("PyTorch's DataLoader: one spawned worker fetches over a slow network", torch=True, phase="source")
def torch_spawned_fetches(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, kind="torch", wire=mbit, workers=1, start="spawn")


@scenario("PyTorch's DataLoader: four spawned workers decode on two processors: cpu and cpu_wait together", torch=True, phase="source")
def torch_four_spawned(lab):
    work_ms = lab.draw.uniform(60, 100)
    return fed(lab, ("cpu", "cpu_wait"), [lab.hash(work_ms)], work_ms / 2, kind="torch", workers=4, start="spawn")


@scenario("PyTorch's DataLoader: one forked worker fetches over a slow network, and the loader's own thread pins", torch=True, phase="source")
def torch_pinned(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, kind="torch", wire=mbit, workers=1, start="fork", pin=True)


@scenario("PyTorch's DataLoader: workers decode faster than the steps, which run ahead: nothing stalls", torch=True, truth="log")
def torch_hides(lab):
    work_ms, prefetch = lab.draw.uniform(10, 20), lab.draw.choice([2, 4])
    kernel_ms, device = kernels(lab, 30, 45)
    source = {"kind": "torch", "stages": [lab.hash(work_ms)], "workers": 1, "start": "fork", "prefetch": prefetch}
    steps = trainer(lab, source, **device, mode="ahead")
    return Case({"full": alone(steps)}, no_stall=True, parameters={"work_ms": work_ms, "kernel_ms": kernel_ms})


@scenario("PyTorch's DataLoader: workers are started anew for each short epoch: cpu, of the loader as a whole", torch=True, phase="source")
def torch_restarts(lab):
    epoch, work_ms = lab.draw.randint(15, 25), lab.draw.uniform(2, 5)
    kernel_ms, device = kernels(lab, 10, 15)
    source = {"kind": "torch", "stages": [lab.hash(work_ms)], "workers": 1, "start": "fork", "epoch": epoch}
    steps = trainer(lab, source, **device)
    return Case(
        {"full": alone(steps), "no loader": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu", "cpu_wait"), "full", "no loader")],
        parameters={"epoch": epoch, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("PyTorch's DataLoader: the worker persists over short epochs, and decodes slower than the steps", torch=True, phase="source")
def torch_persistent(lab):
    epoch, work_ms = lab.draw.randint(15, 25), lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.hash(work_ms)], work_ms, kind="torch", workers=1, start="fork", persistent=True, epoch=epoch)
