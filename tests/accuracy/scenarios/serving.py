"""Nothing to do: no requests, a timer, no process. And what cannot be known."""

from bench.scenario import Case, Cause, Pod, Process, Variant, alone, scenario, trainer

from scenarios.disk import kernels, read

NO_WORK = ("idle/no_work",)


@scenario("a job that a timer starts", phase="source")
def timer(lab):
    wait_ms = lab.draw.uniform(20, 60)
    kernel_ms, device = kernels(lab)
    steps = trainer(lab, {"kind": "inline", "stages": [{"do": "sleep", "ms": wait_ms}]}, **device)
    return Case(
        {"full": alone(steps), "no timer": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(NO_WORK, "full", "no timer")],
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms},
    )


def served(lab, stages, think_ms, work_ms, kernel_ms, device):
    """A server with one client that thinks for so long between two requests."""
    variants, causes = {}, []
    steps = trainer(lab, **device)

    def variant(think, stages):
        port = lab.draw.randint(20000, 29999)
        config = {**steps, "source": {"kind": "requests", "port": port, "stages": stages}}
        return alone(config, others=[(["client.py", str(port), str(think)], (), None)])

    variants["full"] = variant(think_ms, stages)
    variants["no pause"] = variant(0, stages)
    causes.append(Cause(NO_WORK, "full", "no pause"))
    if stages:
        variants["no tokens"] = variant(think_ms, [])
        causes.append(Cause(("cpu",), "full", "no tokens"))
    return Case(variants, causes, parameters={"think_ms": think_ms, "work_ms": work_ms, "kernel_ms": kernel_ms})


@scenario("a server with few requests", quick=True, phase="source")
def requests_few(lab):
    kernel_ms, device = kernels(lab, 10, 25)
    return served(lab, [], lab.draw.uniform(20, 60), 0, kernel_ms, device)


@scenario("a server that tokenizes each request: no_work and cpu in series")
def requests_tokenized(lab):
    work_ms = lab.draw.uniform(10, 25)
    kernel_ms, device = kernels(lab, 10, 25)
    return served(lab, [lab.interpret(work_ms)], lab.draw.uniform(20, 40), work_ms, kernel_ms, device)


@scenario("a server whose client stays connected and asks for nothing more", truth="definition")
def requests_none(lab):
    kernel_ms, device = kernels(lab, 10, 25)
    port, asked = lab.draw.randint(20000, 29999), lab.draw.randint(1, 3)
    steps = trainer(lab, {"kind": "requests", "port": port}, **device)
    client = (["client.py", str(port), "20", str(asked)], (), None)
    return Case(
        {"full": alone(steps, others=[client], seconds=5.0)},
        definitions=(("main", "idle/no_work"),),
        parameters={"asked": asked, "kernel_ms": kernel_ms},
    )


def defined(lab, words, state, settings="", seconds=5.0):
    pod = Pod("main", [Process(words=words)] if words else [])
    return Case({"full": Variant([pod], seconds=seconds)}, definitions=(("main", state),), settings=settings)


@scenario("a process that never opens its device", truth="definition")
def no_process(lab):
    return defined(lab, ["warpmeter-workload", "noop"], "idle/no_process")


@scenario("a process that has a context and launches nothing yet", truth="definition")
def model_load(lab):
    return defined(lab, ["warpmeter-workload", "holder"], "idle/model_load")


@scenario("a session that launched once and says nothing more for longer than the setting for that", truth="definition")
def silent(lab):
    return defined(lab, ["warpmeter-workload", "notebook"], "idle/no_work", "[window]\nno_work_after = \"1s\"\n")


@scenario("a pod that refuses probes reads from a slow disk: nobody can know why its device does not run", truth="definition")
def refused(lab):
    kernel_ms, device = kernels(lab)
    wait_ms, stage, slow = read(lab, busy_ms=kernel_ms)
    steps = trainer(lab, {"kind": "inline", "stages": [stage]}, **device)
    return Case(
        {"full": Variant([Pod("main", [Process(steps)], limits=slow, probes=False)])},
        # What the loop computes beside its reading is as unknown as the reading.
        definitions=(("main", "unknown/no_evidence"),),
        beside_active=True,
        parameters={"wait_ms": wait_ms, "kernel_ms": kernel_ms},
    )


@scenario("the engine's counter is stuck at zero while kernels run: the two signals contradict", truth="definition")
def counter_stuck(lab):
    kernel_ms, device = kernels(lab, 20, 40)
    variant = alone(trainer(lab, **device), seconds=5.0, fault=("kind=stuck_zero",))
    return Case({"full": variant}, definitions=(("main", "unknown/conflict"),), parameters={"kernel_ms": kernel_ms})


@scenario("the device gives garbage for its counters", truth="definition")
def counter_garbage(lab):
    kernel_ms, device = kernels(lab, 20, 40)
    variant = alone(trainer(lab, **device), seconds=5.0, fault=("kind=garbage",))
    return Case({"full": variant}, definitions=(("main", "unknown/source_lost"),), parameters={"kernel_ms": kernel_ms})
