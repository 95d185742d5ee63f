#!/usr/bin/env python3
"""Turns recordings of other tools into one of Warpmeter's, for `warpmeter replay`. How to make them: README.md."""

import argparse
import sys

import account
import clocks
import cuda
import facts
import kineto
import lives
import nsys
import repair
import sched_text
import timelines
import trees
from doings import NAMES, UNKNOWN
from problem import Notes, Problem

# Nobody records for longer at this rate of events: one of the times is wrong, and each second costs memory.
LONGEST = 86_400 * 1_000_000_000


def arguments(given):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler", metavar="SCHED", help="text of perf script, ftrace or trace-cmd; an export of Nsight "
                        "Systems with scheduler events; - for none")
    parser.add_argument("traces", metavar="TRACE", nargs="+", help="Chrome trace of the PyTorch profiler (.json, .json.gz), or "
                        "SQLite export of Nsight Systems")
    parser.add_argument("-o", "--output", required=True, help="the recording to write; not overwritten")
    parser.add_argument("--pod", action="append", default=[], metavar="NAME=PID[,PID...]",
                        help="a pod: these processes and all that they fork (default: one per process that calls CUDA)")
    parser.add_argument("--same", action="append", default=[], metavar="PID=HOSTPID",
                        help="an id of the CUDA traces, and what the scheduler log calls it; processes and threads alike")
    parser.add_argument("--gpu", action="append", default=[], metavar="PID:ORDINAL=GPU",
                        help="which GPU a process's device is, where CUDA_VISIBLE_DEVICES renumbers them")
    parser.add_argument("--offset", type=int, metavar="NS", help="added to the times of the CUDA traces")
    parser.add_argument("--wall-minus-log", type=int, metavar="NS", help="wall clock less the scheduler log's clock")
    parser.add_argument("--deep", choices=NAMES, default="unknown",
                        help="what a sleep in state D is where no system calls were recorded (default: unknown)")
    parser.add_argument("--force", action="store_true", help="import also if the clocks do not seem to match")
    return parser.parse_args(given)


def pairs(words, form):
    """The parts before and after each equals sign."""
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise Problem(f"read the option {word!r}: it should be {form}")
        yield name, value


def whole(text, form):
    try:
        return int(text)
    except ValueError:
        raise Problem(f"read the option {form}: {text!r} is no number") from None


def read_trace(path, notes):
    try:
        with open(path, "rb") as file:
            start = file.read(16)
    except OSError as error:
        raise Problem(f"read the CUDA trace {path}: {error.strerror}") from None
    return nsys.read(path, notes) if start == b"SQLite format 3\0" else kineto.read(path, notes)


def read_scheduler(path, traces, notes):
    if path == "-":
        return []
    for trace in traces:
        if trace.path == path:
            if trace.scheduler is None:
                raise Problem(f"read scheduler events from {path}: it has none; profile with --cpuctxsw=process-tree")
            return trace.scheduler
    try:
        with open(path, errors="replace") as lines:
            return sched_text.read(path, lines, notes)
    except OSError as error:
        raise Problem(f"read scheduler events from {path}: {error.strerror}") from None


def rename(traces, options):
    """Ids as the host has them, devices as the node numbers them."""
    same = {whole(a, "--same"): whole(b, "--same") for a, b in pairs(options.same, "PID=HOSTPID")}
    gpus = {}
    for place, gpu in pairs(options.gpu, "PID:ORDINAL=GPU"):
        pid, _, ordinal = place.partition(":")
        try:
            gpus[whole(pid, "--gpu"), whole(ordinal, "--gpu")] = cuda.ordinal(whole(gpu, "--gpu"))
        except ValueError as error:
            raise Problem(f"read the option --gpu: {error}") from None
    for trace in traces:
        for thing in trace.calls + trace.works:
            thing.tgid = same.get(thing.tgid, thing.tgid)
            thing.device = gpus.get((thing.tgid, thing.device), thing.device)
        for call in trace.calls:
            call.tid = same.get(call.tid, call.tid)


def root(pid, given, callers):
    """Which life of an id is meant: the one that calls CUDA, or else the last."""
    return next((life for life in given.all(pid) if life in callers), given.all(pid)[0])


def run(options, notes):
    twice = [path for at, path in enumerate(options.traces) if path in options.traces[:at]]
    if twice:
        raise Problem(f"read the CUDA trace {twice[0]}: it is given twice, and its calls would count twice")
    traces = [read_trace(path, notes) for path in options.traces]
    rename(traces, options)
    events = read_scheduler(options.scheduler, traces, notes)
    timed = [event.time for event in events if event.time > 0]
    log = (timed[0], timed[-1]) if timed else None
    for trace in traces:
        clocks.align(trace, log, options.offset, options.wall_minus_log)
    calls = [call for trace in traces for call in trace.calls]
    works = [work for trace in traces for work in trace.works]
    span = min(call.start for call in calls), max(thing.end for thing in calls + works)
    start, end = (max(span[0], log[0]), min(span[1], log[1])) if log else span
    if end - start > LONGEST:
        raise Problem(
            f"divide what was recorded into seconds: it is of {clocks.words((start, end))}, more than a day; a time in "
            f"{', '.join(trace.path for trace in traces)} is wrong"
        )

    # An id that was given twice is two threads.
    given = lives.Lives(events)
    events = repair.repair(given.apply(events), notes)
    for thing in calls + works:
        thing.tgid = given.at(thing.tgid, thing.start)
    for call in calls:
        call.tid = given.at(call.tid, call.start)

    callers = {call.tgid for call in calls}
    named = [(name, [root(whole(pid, "--pod"), given, callers) for pid in pids.split(",")])
             for name, pids in pairs(options.pod, "NAME=PID")]
    forest = trees.Trees(events, calls)
    pods = trees.pods(forest, named, callers)
    lines = timelines.Timelines(forest, pods, calls, notes, NAMES.index(options.deep))
    lines.run(events, end)
    if log:
        clocks.check(traces, lines.threads, notes, options.force)
        if not lines.traced and options.deep == NAMES[UNKNOWN]:
            notes.count("log without system calls (waits are known by their wakers only; --deep says what state D is)")
        if not lines.followed:
            notes.count("log without sched_waking (waits for other threads are not resolved)")
    models = {device: model for trace in traces for device, model in trace.models.items()}
    account_of = account.Account(start, end, works, calls, pods, forest, lines)
    wall = lambda at: at + (options.wall_minus_log or 0)
    samples = list(account_of.samples(models, wall))
    if notes.lost:
        samples.insert(-1, facts.sample(end, "probes", {"lost": {"count": notes.lost}}))
    facts.write(options.output, samples)
    print(f"import: {len(account_of.spans)} windows from {start / 1e9:.6f} s on, {len(pods)} pods, {len(calls)} CUDA calls, "
          f"{len(events)} scheduler events", file=sys.stderr)


def main(given=None):
    notes = Notes()
    try:
        run(arguments(given), notes)
    except Problem as problem:
        notes.say()
        print(f"import: could not {problem}", file=sys.stderr)
        return 1
    except OSError as error:
        if not isinstance(error, FileExistsError):
            print(f"import: could not write {error.filename}: {error.strerror}", file=sys.stderr)
            return 1
        print(f"import: could not write {error.filename}: it exists, and a recording is evidence; choose another name", file=sys.stderr)
        return 1
    notes.say()
    return 0


if __name__ == "__main__":
    sys.exit(main())
