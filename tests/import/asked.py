"""What one process asked of one device, second by second."""

import cuda
from seconds import per_second


def asked(calls, spans):
    """Facts' fields of calls, `calls` in order of their starts."""
    waits = {
        field: per_second([(call.start, call.end) for call in calls if call.kind == kind], spans)
        for field, kind in (("copy_wait", cuda.BLOCKING_COPY), ("sync_wait", cuda.SYNC))
    }
    found, at, enqueued, last = [], 0, 0, None
    for number, (start, end) in enumerate(spans):
        sums = {"launches": 0, "graph_launches": 0, "bytes_to_device": 0, "bytes_to_host": 0, "bytes_other": 0, "bytes_waited": 0}
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
            if call.kind == cuda.BLOCKING_COPY:
                sums["bytes_waited"] += call.bytes
        sums |= {field: amounts[number] for field, amounts in waits.items()}
        found.append({"enqueued": enqueued, "last_call": None if last is None else min(last, end), **sums})
    return found
