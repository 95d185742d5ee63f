"""Calls of the CUDA runtime or driver and what the device did for them, whoever recorded them."""

import re
from collections import defaultdict
from dataclasses import dataclass

LAUNCH, GRAPH, COPY, BLOCKING_COPY, MEMSET, HOST, SYNC, QUERY, OTHER = (
    "launch", "graph", "copy", "blocking_copy", "memset", "host", "sync", "query", "other")
ENQUEUES = {LAUNCH, GRAPH, COPY, BLOCKING_COPY, MEMSET, HOST}

# Enqueuing a copy takes a few microseconds. An "asynchronous" one whose call lasts so many ns is of pageable memory, and
# holds its thread until the data is staged or there.
HELD = 50_000


@dataclass
class Call:
    """A call that a thread made. `done`: when the device had finished what it enqueued, none if nothing says."""

    start: int
    end: int
    tid: int
    tgid: int
    kind: str
    correlation: int
    device: int | None = None
    bytes: int = 0
    way: str = "bytes_other"
    done: int | None = None

    def __post_init__(self):
        if self.kind == COPY and self.end - self.start >= HELD:
            self.kind = BLOCKING_COPY

    @property
    def enqueues(self):
        return self.kind in ENQUEUES

    @property
    def waits(self):
        """Whether it returns only when the device has done something; queries are short, and their time is the driver's too."""
        return self.kind in (BLOCKING_COPY, SYNC, QUERY)

    @property
    def marks(self):
        """Whether a thread's account begins anew with it."""
        return self.enqueues or self.kind == SYNC


@dataclass
class Work:
    """What a device did: a kernel, a copy, a memset."""

    start: int
    end: int
    tgid: int
    device: int
    kind: str
    correlation: int
    bytes: int = 0
    way: str = "bytes_other"


@dataclass
class Trace:
    """All of one file. `wall`: its times are nanoseconds since 1970. `models`: names of devices by ordinal."""

    path: str
    calls: list
    works: list
    models: dict
    wall: bool
    scheduler: list | None = None


# More GPUs than this no node has.
DEVICES = 1 << 16


def ordinal(value):
    """A device's ordinal; a `ValueError` for what cannot be one."""
    number = int(value)
    if not 0 <= number < DEVICES:
        raise ValueError(f"{value} is no device")
    return number


def kind_of(name):
    """What a function does, by its name in the runtime's or the driver's interface; none of names that are neither's."""
    found = re.match(r"cu(?:da)?([A-Z]\w*?)(?:_v\d+)?(?:_pt[sd][sz])?(?:_v\d+)?$", name)
    if not found:
        return None
    base = found[1]
    if base == "GraphLaunch":
        return GRAPH
    if base in ("LaunchHostFunc", "StreamAddCallback"):
        return HOST
    if base.startswith("Launch"):
        return LAUNCH
    if base.startswith("Memset"):
        return MEMSET
    if base.startswith("MemPrefetch"):
        return COPY
    if base.startswith("Memcpy"):
        return COPY if "Async" in base else BLOCKING_COPY
    if base in ("StreamSynchronize", "EventSynchronize", "DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"):
        return SYNC
    if base in ("StreamQuery", "EventQuery"):
        return QUERY
    return OTHER


def outermost(calls, names, notes):
    """Calls that no other call of their thread made, without what a capture recorded. `names` beside each."""
    kept, until, captures = [], {}, {}
    for call, name in sorted(zip(calls, names), key=lambda pair: (pair[0].start, -pair[0].end)):
        if call.end <= until.get(call.tid, -1):
            notes.count("CUDA call within another one, left out")
            continue
        until[call.tid] = call.end
        if "StreamBeginCapture" in name:
            captures[call.tid] = True
        elif "StreamEndCapture" in name:
            captures[call.tid] = False
        elif captures.get(call.tid) and call.enqueues:
            notes.count("CUDA call that a capture recorded, left out")
            continue
        kept.append(call)
    return kept


def connect(trace, notes):
    """Tells calls what the device did for them, and threads' synchronising calls which device they are about."""
    done, first = defaultdict(int), {}
    for work in trace.works:
        key = work.tgid, work.correlation
        done[key] = max(done[key], work.end)
        first.setdefault(key, work)
    last, devices = {}, defaultdict(set)
    for work in trace.works:
        devices[work.tgid].add(work.device)
    for call in trace.calls:
        key = call.tgid, call.correlation
        work = first.get(key) if call.enqueues else None
        if work:
            call.device, call.done = work.device, done[key]
            call.bytes, call.way = call.bytes or work.bytes, work.way
            last[call.tid] = work.device
        elif call.device is None:
            only = devices[call.tgid]
            call.device = last.get(call.tid, next(iter(only)) if len(only) == 1 else None)
        if call.enqueues and not work:
            notes.count("enqueue of which the trace does not say when the device had done it")
    return trace
