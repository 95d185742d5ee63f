"""What one process asked of one device, second by second."""

import cuda
from seconds import per_second


def asked(calls, spans):
    """Facts' fields of calls, `calls` in order of their starts."""
    copies = [call for call in calls if call.kind == cuda.BLOCKING_COPY]
    # The most that a copy can have taken, at 2 GB/s, and what it took in any case, at 8: from its start on.
    held_at = lambda rate: [(call.start, min(call.end, call.start + call.bytes // rate)) for call in copies]
    waits = {
        "copy_wait": per_second([(call.start, call.end) for call in copies], spans),
        "copies_most": per_second(held_at(2), spans),
        "copies_least": per_second(held_at(8), spans),
        "sync_wait": per_second([(call.start, call.end) for call in calls if call.kind == cuda.SYNC], spans),
    }
    found, at, enqueued, last = [], 0, 0, None
    for number, (start, end) in enumerate(spans):
        sums = {"launches": 0, "graph_launches": 0, "bytes_to_device": 0, "bytes_to_host": 0, "bytes_other": 0}
        while at < len(calls) and calls[at].start < end:
            call = calls[at]
            at += 1
            enqueued += call.enqueues
            last = max(last or 0, call.end)
            if call.start < start:
                continue
            sums["launches"] += call.kind == cuda.LAUNCH
            sums["graph_launches"] += call.kind == cuda.GRAPH
            if call.kind in (cuda.COPY, cuda.BLOCKING_COPY):
                sums[call.way] += call.bytes
        sums |= {field: amounts[number] for field, amounts in waits.items()}
        found.append({"enqueued": enqueued, "last_call": None if last is None else min(last, end), **sums})
    return found
