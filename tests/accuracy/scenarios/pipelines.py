"""Fed by pipelines, helper programs and actors: the bottleneck among them is the cause."""

from bench.scenario import scenario

from scenarios.disk import read
from scenarios.loaders import fed
from scenarios.network import bulk


@scenario("a pool of threads reads from a slow disk and maps: the disk is the bottleneck")
def pool_reads(lab):
    wait_ms, stage, slow = read(lab, "cold", 30, 60)
    source = {"read": [stage], "map": [lab.hash(lab.draw.uniform(5, 15))]}
    return fed(lab, ("disk_read",), None, wait_ms, kind="pool", limits=slow, **source)


@scenario("a pool of threads reads from memory and maps in libraries: computing is the bottleneck")
def pool_maps(lab):
    work_ms = lab.draw.uniform(60, 90)
    source = {"read": [], "map": [lab.hash(work_ms)], "mappers": 2}
    return fed(lab, ("cpu", "cpu_wait"), None, work_ms / 2, kind="pool", without={"map": []}, **source)


@scenario("processes in a row with queues between them: the first reads from a slow disk")
def links_read(lab):
    wait_ms, stage, slow = read(lab, "direct", 30, 60)
    links = [[stage], [lab.hash(lab.draw.uniform(5, 15))]]
    return fed(lab, ("disk_read",), None, wait_ms, kind="links", limits=slow, links=links)


@scenario("processes in a row with queues between them: the last decodes, and the first waits for it")
def links_decode(lab):
    stage, work_ms = lab.fetch(16, 2, lab.draw.uniform(2, 6)), lab.draw.uniform(35, 60)
    return fed(lab, ("cpu",), None, work_ms, kind="links", without={"links": [[stage], []]}, links=[[stage], [lab.hash(work_ms)]])


@scenario("a tokenizer in a process of its own, asked over a pipe")
def tokenizer_pipe(lab):
    work_ms = lab.draw.uniform(15, 40)
    return fed(lab, ("cpu",), [lab.interpret(work_ms)], work_ms + 15, kind="pipe")


@scenario("two actors over polled sockets fetch over a slow network")
def actors_fetch(lab):
    wait_ms, stage, mbit = bulk(lab, 30, 60)
    return fed(lab, ("network",), [stage], wait_ms, kind="actors", wire=mbit, actors=2)


@scenario("one actor over a polled socket computes in Python")
def actor_computes(lab):
    work_ms = lab.draw.uniform(30, 60)
    return fed(lab, ("cpu",), [lab.interpret(work_ms)], work_ms, kind="actors", actors=1)
