"""Held up between the host and the device: copies, small kernels, synchronisation. And steps that run ahead."""

from bench.scenario import Case, Cause, alone, scenario, trainer

from scenarios.disk import kernels


def copies(lab, how, per_ms_kib):
    copy_ms = lab.draw.uniform(4, 12)
    kernel_ms, device = kernels(lab, 8, 20)
    steps = trainer(lab, **device, copy=how, copy_kib=int(copy_ms * per_ms_kib))
    without = {**steps, "device": {**steps["device"], "copy": ""}}
    return Case(
        {"full": alone(steps), "no copy": alone(without)},
        [Cause(("transfer",), "full", "no copy")],
        parameters={"copy_ms": copy_ms, "kernel_ms": kernel_ms},
    )


@scenario("blocking copies from pageable memory")
def copy_blocking(lab):
    return copies(lab, "blocking", 10_000)


@scenario("asynchronous copies from pinned memory that the step's kernels wait for")
def copy_pinned(lab):
    return copies(lab, "async", 50_000)


@scenario("asynchronous copies from pageable memory, which hold the loop up while the driver reads that")
def copy_pageable(lab):
    return copies(lab, "held", 10_000)


@scenario("a blocking copy after asynchronous kernels, beside which the loop computed: only the copy is waited for")
def copy_after_overlap(lab):
    copy_ms, kernel_ms = lab.draw.uniform(8, 12), lab.draw.uniform(9, 11)
    # The loop is done before the kernels are, so that its work holds nothing up.
    work_ms = kernel_ms * lab.draw.uniform(0.7, 0.9)
    device = {"kernels": 4, "kernel_us": round(kernel_ms * 250, 1), "beside_rounds": lab.hash(work_ms)["rounds"]}
    steps = trainer(lab, **device, copy="last", copy_kib=int(copy_ms * 10_000))
    return Case(
        {"full": alone(steps), "no copy": alone(trainer(lab, **device))},
        [Cause(("transfer",), "full", "no copy")],
        parameters={"copy_ms": copy_ms, "kernel_ms": kernel_ms, "work_ms": work_ms},
    )


@scenario("kernels so small that launching them one by one takes longer, and what a framework's Python does at each launch: launch")
def launch_small(lab):
    count, kernel_us = lab.draw.randint(300, 800), lab.draw.uniform(1.5, 3)
    # It spins at the end of a step. Few kernels are waited for there, and many are done by then: a loop that slept would be
    # woken late in the second variant alone, and that takes a tenth of its step.
    steps = trainer(lab, kernels=count, kernel_us=round(kernel_us, 1), gap_rounds=lab.draw.randint(1, 3), blocking=False)
    # The same work of the device in few kernels. What is left out is the launches and the Python between them, which a
    # framework runs for each: a gap of less than 50 µs is `launch` by definition, whatever the thread does in it, so that
    # both are that cause. In one place the Python would be no part of a launch any more, but `cpu`.
    fused = {**steps, "device": {**steps["device"], "kernels": 10, "gap_rounds": 0, "kernel_us": round(kernel_us * count / 10, 1)}}
    return Case(
        {"full": alone(steps), "fused": alone(fused)},
        [Cause(("launch",), "full", "fused")],
        parameters={"count": count, "kernel_us": kernel_us},
    )


def host_function(lab, **how):
    work_ms = lab.draw.uniform(5, 20)
    kernel_ms, device = kernels(lab, 10, 25)
    steps = trainer(lab, **device, **how, host_rounds=lab.hash(work_ms)["rounds"])
    without = {**steps, "device": {**steps["device"], "host_rounds": 0, "kernels": device["kernels"] + 1}}
    return Case(
        {"full": alone(steps), "no host function": alone(without)},
        [Cause(("sync",), "full", "no host function")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("a host function in the stream, for which the device and the synchronising loop wait")
def sync_host_function(lab):
    return host_function(lab)


@scenario("a host function in the stream, for which the loop waits as it copies four bytes back")
def sync_item(lab):
    return host_function(lab, mode="item")


@scenario("large blocking copies, and small ones in which the loop waits for a host function")
def copy_and_item(lab):
    copy_ms, work_ms = lab.draw.uniform(4, 12), lab.draw.uniform(8, 20)
    kernel_ms, device = kernels(lab, 8, 20)
    steps = trainer(lab, **device, mode="item", copy="blocking", copy_kib=int(copy_ms * 10_000), host_rounds=lab.hash(work_ms)["rounds"])
    without = lambda **less: alone({**steps, "device": {**steps["device"], **less}})
    return Case(
        {"full": alone(steps), "no copy": without(copy=""), "no function": without(host_rounds=0, kernels=device["kernels"] + 1)},
        [Cause(("transfer",), "full", "no copy"), Cause(("sync",), "full", "no function")],
        parameters={"copy_ms": copy_ms, "work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("steps run ahead of the device and decode meanwhile: nothing stalls", quick=True, truth="log")
def ahead_hides(lab):
    work_ms = lab.draw.uniform(5, 15)
    kernel_ms, device = kernels(lab, 20, 40)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device, mode="ahead", depth=lab.draw.choice([2, 3]))
    return Case({"full": alone(steps)}, no_stall=True, parameters={"work_ms": work_ms, "kernel_ms": kernel_ms})


@scenario("steps run ahead, but decoding takes longer than the device: the difference is cpu")
def ahead_short(lab):
    kernel_ms, device = kernels(lab, 10, 20)
    work_ms = kernel_ms * lab.draw.uniform(1.5, 3)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device, mode="ahead", depth=2)
    return Case(
        {"full": alone(steps), "no decode": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no decode")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms},
    )


@scenario("synchronises once in some steps and decodes in each: a part of it is hidden")
def ahead_partly(lab):
    kernel_ms, device = kernels(lab, 15, 30)
    work_ms, depth = kernel_ms * lab.draw.uniform(0.5, 0.9), lab.draw.randint(2, 5)
    steps = trainer(lab, {"kind": "inline", "stages": [lab.hash(work_ms)]}, **device, mode="every", depth=depth)
    return Case(
        {"full": alone(steps), "no decode": alone({**steps, "source": {"kind": "inline"}})},
        [Cause(("cpu",), "full", "no decode")],
        parameters={"work_ms": work_ms, "kernel_ms": kernel_ms, "depth": depth},
    )
