"""Fed by pipelines, helper programs and actors: the bottleneck among them is the cause."""

import json
import sys

from bench.node import HERE
from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels, read
from scenarios.loaders import fed
from scenarios.network import bulk


@scenario("a pool of threads reads from a slow disk and maps: the disk is the bottleneck", phase="source")
def pool_reads(lab):
    wait_ms, stage, slow = read(lab, "cold", 30, 60)
    source = {"read": [stage], "map": [lab.hash(lab.draw.uniform(5, 15))]}
    return fed(lab, ("disk_read",), None, wait_ms, kind="pool", limits=slow, **source)


@scenario("a pool of threads reads from memory and maps in libraries: computing is the bottleneck", phase="source")
def pool_maps(lab):
    work_ms = lab.draw.uniform(60, 90)
    source = {"read": [], "map": [lab.hash(work_ms)], "mappers": 2}
    return fed(lab, ("cpu", "cpu_wait"), None, work_ms / 2, kind="pool", without={"map": []}, **source)


@scenario("processes in a row with queues between them: the first reads from a slow disk", phase="source")
def links_read(lab):
    wait_ms, stage, slow = read(lab, "direct", 30, 60)
    links = [[stage], [lab.hash(lab.draw.uniform(5, 15))]]
    return fed(lab, ("disk_read",), None, wait_ms, kind="links", limits=slow, links=links)


@scenario("processes in a row with queues between them: the last decodes, and the first waits for it", phase="source")
def links_decode(lab):
    stage, work_ms = lab.fetch(16, 2, lab.draw.uniform(2, 6)), lab.draw.uniform(35, 60)
    return fed(lab, ("cpu",), None, work_ms, kind="links", without={"links": [[stage], []]}, links=[[stage], [lab.hash(work_ms)]])


@scenario("a tokenizer in a process of its own, asked over a pipe", phase="source")
def tokenizer_pipe(lab):
    work_ms = lab.draw.uniform(15, 40)
    return fed(lab, ("cpu",), [lab.interpret(work_ms)], work_ms + 15, kind="pipe")


@scenario("two actors over polled sockets fetch over a slow network", phase="source")
def actors_fetch(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, kind="actors", wire=mbit, actors=2)


@scenario("one actor over a polled socket computes in Python", phase="source")
def actor_computes(lab):
    work_ms = lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.interpret(work_ms)], work_ms, kind="actors", actors=1)


@scenario("two actors over connections within the machine fetch over a slow network", phase="source")
def connections_fetch(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, kind="actors", wire=mbit, actors=2, tcp=True)


@scenario("one actor over a connection within the machine computes in Python", phase="source")
def connection_computes(lab):
    work_ms = lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.interpret(work_ms)], work_ms, kind="actors", actors=1, tcp=True)


def per_batch(lab, words, slow_disk=(), without=None):
    """A loop that starts a program for each batch and waits for it; and one whose program is another, or that starts none."""
    kernel_ms, device = kernels(lab)
    of = lambda *stages, **more: alone(trainer(lab, {"kind": "inline", "stages": stages}, **device), **more)
    program = lambda words: {"do": "program", "words": words}
    return kernel_ms, {
        "full": of(program(words), slow_disk=slow_disk),
        "without": of(program(without), slow_disk=slow_disk) if without else of(),
    }


@scenario("a program is started for each batch, reads it from a slow disk and ends", phase="source")
def program_per_batch_reads(lab):
    mbs, kib = lab.draw.choice([20, 30, 40]), lab.draw.choice([768, 1024, 1536])
    words = ["dd", f"if={lab.data(lab.slow)}", "of=/dev/null", f"bs={kib}K", "iflag=direct"]
    # The same program reads nothing: what it takes to start is no reading.
    kernel_ms, variants = per_batch(lab, [*words, "count=1"], (mbs, mbs, 0.2), [*words, "count=0"])
    return Case(variants, [Cause(("disk_read",), "full", "without")], parameters={"mbs": mbs, "kib": kib, "kernel_ms": kernel_ms})


@scenario("a program is started for each batch, computes it and ends: cpu, for its start, too", phase="source")
def program_per_batch_computes(lab):
    work_ms = lab.draw.uniform(20, 50)
    words = [sys.executable, str(HERE / "workload" / "batch.py"), json.dumps([lab.hash(work_ms)])]
    kernel_ms, variants = per_batch(lab, words)
    return Case(variants, [Cause(("cpu",), "full", "without")], parameters={"work_ms": work_ms, "kernel_ms": kernel_ms})


def beating(lab, cause, stage, batch_ms, slow_disk=()):
    """A loop of coroutines: one awaits a batch of a worker process for several beats of another."""
    kernel_ms, device = kernels(lab, 20, 60)
    of = lambda *stages: alone(trainer(lab, {"kind": "awaited", "stages": stages}, **device), slow_disk=slow_disk)
    return Case(
        {"full": of(stage), "nothing to do": of()},
        [Cause((cause,), "full", "nothing to do")],
        parameters={"batch_ms": batch_ms, "kernel_ms": kernel_ms},
    )


@scenario("coroutines: one beats each 100 ms, one awaits batches that a worker process computes for long", phase="source")
def heartbeat_computes(lab):
    batch_ms = lab.draw.uniform(300, 2000)
    return beating(lab, "cpu", lab.hash(batch_ms), batch_ms)


@scenario("coroutines: one beats each 100 ms, one awaits batches that a worker process reads from a slow disk for long", phase="source")
def heartbeat_reads(lab):
    batch_ms, mbs = lab.draw.uniform(300, 2000), lab.draw.choice([10, 20])
    kib = int(batch_ms * mbs) // 64 * 64
    return beating(lab, "disk_read", {"do": "direct", "file": lab.data(lab.slow), "kib": kib}, batch_ms, (mbs, mbs, 0.2))
