"""Held up by receiving: from a server in another network namespace, over a cable that can be slow."""

from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels


def bulk(lab, low=15, high=50, mark_kib=0):
    """A stage that receives for about so many ms, and the rate that makes it so."""
    wait_ms, mbit = lab.draw.uniform(low, high), lab.draw.choice([50, 100])
    return wait_ms, lab.fetch(max(32, int(wait_ms * mbit / 8.192)), mark_kib=mark_kib), mbit


def received(lab, mark_kib):
    wait_ms, stage, mbit = bulk(lab, mark_kib=mark_kib)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    return Case(
        {"full": alone(steps, wire_mbit=mbit), "fast": alone(steps)},
        [Cause(("network",), "full", "fast")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms, "mbit": mbit},
    )


@scenario("a batch received over a slow network before each step, packet for packet", phase="source")
def network_bulk(lab):
    return received(lab, 0)


@scenario("the same by a receiver that waits by `select` until there is enough", phase="source")
def network_marked(lab):
    return received(lab, 128)


@scenario("batches sent unasked, over a connection that the sender makes, and a slow network", phase="source")
def network_pushed(lab):
    wait_ms, _, mbit = bulk(lab, 30, 60)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.pushed(max(64, int(wait_ms * mbit / 8.192)))]}, **device)
    return Case(
        {"full": alone(steps, wire_mbit=mbit), "fast": alone(steps)},
        [Cause(("network",), "full", "fast")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms, "mbit": mbit},
    )


@scenario("features asked for by small requests, one after the other, of a server that takes its time", quick=True, phase="source")
def feature_fetch(lab):
    requests, delay_ms = lab.draw.randint(3, 10), lab.draw.uniform(2, 6)
    kernel_ms, device = kernels(lab)
    stage = lab.fetch(4, requests, delay_ms)
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    return Case(
        {"full": alone(steps), "no delay": alone({**steps, "source": {"kind": "inline", "stages": [lab.fetch(4, requests)]}})},
        [Cause(("network",), "full", "no delay")],
        parameters={"requests": requests, "delay_ms": delay_ms, "kernel_ms": kernel_ms},
    )


@scenario("the same of a gRPC server, whose client waits in threads of its own", torch=True, phase="source")
def grpc_fetch(lab):
    requests, delay_ms = lab.draw.randint(3, 8), lab.draw.uniform(2, 6)
    kernel_ms, device = kernels(lab)
    of = lambda delay_ms: alone(trainer(lab, {"kind": "torch", "workers": 0, "stages": [lab.grpc(4, requests, delay_ms)]}, **device))
    return Case(
        {"full": of(delay_ms), "no delay": of(0)},
        [Cause(("network",), "full", "no delay")],
        parameters={"requests": requests, "delay_ms": delay_ms, "kernel_ms": kernel_ms},
    )


@scenario("receives, then decodes: two bottlenecks in series")
def network_then_decode(lab):
    wait_ms, stage, mbit = bulk(lab, 15, 40)
    work_ms = lab.draw.uniform(10, 30)
    kernel_ms, device = kernels(lab)
    decode = lab.hash(work_ms)
    steps = trainer(lab, {"kind": "inline", "stages": [stage, decode]}, **device)
    without = {**steps, "source": {"kind": "inline", "stages": [stage]}}
    return Case(
        {"full": alone(steps, wire_mbit=mbit), "fast": alone(steps), "no decode": alone(without, wire_mbit=mbit)},
        [Cause(("network",), "full", "fast"), Cause(("cpu",), "full", "no decode")],
        parameters={"wait_ms": wait_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("pieces asked for one by one of a slow server, and 0.03 to 0.1 ms of work on each: two bottlenecks in series")
def pieces_worked(lab):
    requests, delay_ms, work_ms = lab.draw.randint(60, 120), lab.draw.uniform(0.15, 0.4), lab.draw.uniform(0.03, 0.1)
    kernel_ms, device = kernels(lab, 10, 20)
    of = lambda *words: alone(trainer(lab, {"kind": "inline", "stages": [lab.pieces(4, requests, *words)]}, **device))
    return Case(
        {"full": of(delay_ms, work_ms), "nothing asked": of(0, work_ms, True), "no work": of(delay_ms, 0)},
        [Cause(("network",), "full", "nothing asked"), Cause(("cpu",), "full", "no work")],
        parameters={"requests": requests, "delay_ms": delay_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("a thread fetches ahead, slower than the steps: the loop waits for that thread", phase="source")
def network_prefetch_short(lab):
    kernel_ms, device = kernels(lab, 10, 20)
    wait_ms, stage, mbit = bulk(lab, 30, 50)
    steps = trainer(lab, {"kind": "prefetch", "stages": [stage]}, **device)
    return Case(
        {"full": alone(steps, wire_mbit=mbit), "fast": alone(steps)},
        [Cause(("network",), "full", "fast")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms},
    )


@scenario("a thread fetches ahead, faster than the steps: nothing stalls", truth="log")
def network_prefetch_hides(lab):
    kernel_ms, device = kernels(lab, 30, 45)
    wait_ms, stage, mbit = bulk(lab, 8, 15)
    steps = trainer(lab, {"kind": "prefetch", "stages": [stage]}, **device, mode="ahead")
    return Case({"full": alone(steps, wire_mbit=mbit)}, no_stall=True, parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms})
