"""A process's time on a device, cut into gaps by its calls: from its first enqueue on, every moment is in exactly one.

What a trace knows for certain takes the place of what probes can prove: a synchronising call has left nothing
outstanding if the device had in truth finished all that was enqueued by its return.
"""

from collections import defaultdict
from dataclasses import dataclass

import cuda
from seconds import SECOND

# Clocks of device and host are matched to a few microseconds; a kernel that seems to end so much after the call that
# waited for it has ended before.
SKEW = 20_000

KINDS = DRAINED, ENQUEUE, SYNC = "drained", "enqueue", "sync"


@dataclass
class Gap:
    """A gap, and the thread that ended it (of one that goes on: that made the last call)."""

    kind: str
    start: int
    end: int
    tid: int


def gaps(calls, until):
    """The gaps that one process's calls about one device leave, in order of time."""
    edges = []
    for at, call in enumerate(calls):
        if call.enqueues:
            edges.append((call.start, 0, at, "enqueue"))
        if call.waits:
            edges.append((call.start, 1, at, "begin"))
            edges.append((call.end, 2, at, "end"))
    found, kind, since, last = [], None, 0, 0
    waiting, outstanding = 0, 0

    def turn(time, tid, following):
        nonlocal kind, since, last
        if kind is not None and time > since:
            found.append(Gap(kind, since, time, tid))
        kind, since, last = following, time, tid

    for time, _, at, edge in sorted(edges):
        call = calls[at]
        blocks = call.kind != cuda.QUERY
        if edge == "enqueue":
            outstanding = max(outstanding, call.done or 0)
            turn(time, call.tid, SYNC if waiting else ENQUEUE)
        elif edge == "begin":
            waiting += blocks
            if blocks and kind == ENQUEUE:
                kind = SYNC
        else:
            waiting -= blocks
            if kind in (None, DRAINED):
                continue
            if outstanding <= time + SKEW:
                turn(time, call.tid, DRAINED)
            elif blocks:
                turn(time, call.tid, SYNC if waiting else ENQUEUE)
    if kind is not None and since < until:
        found.append(Gap(kind, since, until, last))
    return found


def by_second(found, threads, start, seconds):
    """Gaps as facts have them: for each second a mapping of kind and length to count, total and what threads did."""
    sums = [defaultdict(lambda: [0, 0, None]) for _ in seconds]
    for gap in found:
        thread, counted = threads.get(gap.tid), False
        at = max(gap.start, start)
        while at < gap.end:
            number = (at - start) // SECOND
            if number >= len(seconds):
                break
            end = min(gap.end, seconds[number][1])
            # As far as it had come by then; what begins before the first second is cut there.
            entry = sums[number][gap.kind, max(end - max(gap.start, start), 1).bit_length() - 1]
            entry[0] += not counted
            entry[1] += end - at
            mix = thread.mix(at, end) if thread else None
            entry[2] = add(entry[2], mix or unknown(end - at))
            counted, at = True, end
    return sums


def unknown(length):
    return [0] * 10 + [length]


def add(sums, more):
    return more if sums is None else [a + b for a, b in zip(sums, more)]
