"""Several pods, processes and devices at once."""

from bench.scenario import Case, Cause, Pod, Process, Variant, scenario, trainer

from scenarios.disk import kernels, read
from scenarios.network import bulk

HOG = ["warpmeter-workload", "hog", "--kernel-us", "1000", "--blocking-sync"]


@scenario("two pods on two devices, one held up by its disk and one by computing: neither is taken for the other", phase="source")
def opposite_devices(lab):
    mbs, kib = lab.draw.choice([20, 30, 40]), lab.draw.choice([512, 768, 1024])
    work_ms = lab.draw.uniform(15, 40)
    kernel_ms, device = kernels(lab)
    # Beside a loop that computes, a disk whose limit is lifted takes its time all the same: it is the slow one, and
    # without it nothing is read.
    stage = {"do": "direct", "file": lab.data(lab.slow), "kib": kib}
    steps = lambda *stages: trainer(lab, {"kind": "inline", "stages": stages}, **device)
    reader, worker, free = steps(stage), steps(lab.hash(work_ms)), steps()

    def both(reader, worker):
        pods = [Pod("main", [Process(reader)], (0,)), Pod("other", [Process(worker)], (1,))]
        return Variant(pods, slow_disk=(mbs, mbs, 0.2))

    return Case(
        {"full": both(reader, worker), "no read": both(free, worker), "no decode": both(reader, free)},
        [Cause(("disk_read",), "full", "no read"), Cause(("cpu",), "full", "no decode", "other")],
        parameters={"mbs": mbs, "kib": kib, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("two pods share a device, one held up by the network and one by computing, both by the other's kernels")
def opposite_shared(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    work_ms = lab.draw.uniform(30, 60)
    kernel_ms, device = kernels(lab, 10, 20)
    reader = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    worker = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device)
    free = {"source": {"kind": "inline"}}
    pod = lambda config: Pod("main", [Process(config)])
    other = lambda config, number=0: Pod("other", [Process(config)], (number,))
    of = lambda *pods: Variant([*pods], 2, mbit)
    return Case(
        # Apart, each has the processors and the wire beside the other as before, and a device of its own.
        {"full": of(pod(reader), other(worker)), "fast": Variant([pod(reader), other(worker)], 2),
         "no decode": of(pod(reader), other({**worker, **free})), "apart": of(pod(reader), other(worker, 1))},
        [Cause(("network",), "full", "fast"), Cause(("contended",), "full", "apart"),
         Cause(("cpu",), "full", "no decode", "other"), Cause(("contended",), "full", "apart", "other")],
        parameters={"wait_ms": wait_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("a pod that fetches over a slow network shares a device with one that never stops")
def contended_and_starved(lab):
    wait_ms, stage, mbit = bulk(lab, 15, 40)
    kernel_ms, device = kernels(lab, 10, 20)
    reader = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    pod = lambda config: Pod("main", [Process(config)])
    hog = lambda number=0: Pod("hog", [Process(words=HOG)], (number,))
    of = lambda *pods: Variant([*pods], 2, mbit)
    return Case(
        # Apart, the other takes as much of the processors as before, and another device.
        {"full": of(pod(reader), hog()), "fast": Variant([pod(reader), hog()], 2), "apart": of(pod(reader), hog(1))},
        [Cause(("network",), "full", "fast"), Cause(("contended",), "full", "apart")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms},
    )


@scenario("a process of the host uses a device that a pod holds whole")
def intruder(lab):
    kernel_ms, device = kernels(lab, 10, 20)
    steps = trainer(lab, **device)
    pod = Pod("main", [Process(steps)], (0,))
    return Case(
        {"full": Variant([pod], others=[(HOG, (), 0)]), "no intruder": Variant([pod])},
        [Cause(("contended",), "full", "no intruder")],
        parameters={"kernel_ms": kernel_ms},
    )


@scenario("two processes of a pod use one device, each held up by reading")
def ranks_one_device(lab):
    kernel_ms, device = kernels(lab, 10, 20)
    wait_ms, stage, slow = read(lab, "direct", 60, 100, kernel_ms)
    stage = {**stage, "kib": stage["kib"] // 2}
    reader = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    pod = lambda slow: Variant([Pod("main", [Process(reader), Process(reader)], (0,), slow)])
    return Case(
        {"full": pod(slow), "no limit": pod({})},
        [Cause(("disk_read",), "full", "no limit")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms},
    )


@scenario("one process drives two devices in turn and decodes for both")
def two_devices(lab):
    work_ms = lab.draw.uniform(15, 40)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **{**device, "mode": "later"})
    pod = lambda config: Variant([Pod("main", [Process(config)], (0, 1))])
    return Case(
        {"full": pod(steps), "no decode": pod({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no decode")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("two processes of a pod on a device each: one reads from a slow disk, one decodes")
def ranks_two_devices(lab):
    work_ms = lab.draw.uniform(15, 40)
    kernel_ms, device = kernels(lab)
    wait_ms, stage, slow = read(lab, busy_ms=kernel_ms)
    reader = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    worker = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device)
    free = {"source": {"kind": "inline"}}

    def pod(worker, slow=slow):
        ranks = [Process(reader, devices=(0,)), Process(worker, devices=(1,))]
        return Variant([Pod("main", ranks, (0, 1), slow)])

    return Case(
        {"full": pod(worker), "no limit": pod(worker, {}), "no decode": pod({**worker, **free})},
        [Cause(("disk_read",), "full", "no limit"), Cause(("cpu",), "full", "no decode")],
        parameters={"wait_ms": wait_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )
