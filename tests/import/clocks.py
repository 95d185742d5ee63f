"""Brings a CUDA trace onto the clock of the scheduler log, and tells whether that has worked."""

from problem import Problem


def words(span):
    return f"{span[0] / 1e9:.6f} to {span[1] / 1e9:.6f} s"


def span_of(trace):
    return min(call.start for call in trace.calls), max(call.end for call in trace.calls)


def align(trace, log, offset, wall):
    """Moves a trace by the offset given, or, if it counts from 1970 and the log does not, by that of the wall clock."""
    span = span_of(trace)
    if offset is None:
        offset = 0
        if log and trace.wall and log[1] < 10**18:
            if wall is None:
                raise Problem(
                    f"align {trace.path} with the scheduler log: it counts from 1970 ({words(span)}) and the log does "
                    f"not ({words(log)}); add --wall-minus-log NS, what `date +%s%N` said less the log's clock then, see "
                    "README.md, Clocks"
                )
            offset = -wall
    for thing in trace.calls + trace.works:
        thing.start += offset
        thing.end += offset
    for call in trace.calls:
        call.done = None if call.done is None else call.done + offset
    span = span_of(trace)
    if log and (span[1] <= log[0] or span[0] >= log[1]):
        raise Problem(
            f"align {trace.path} with the scheduler log: the trace is of {words(span)} and the log of {words(log)}, they "
            "do not overlap; record both at once with the same clock (perf record -k mono), or give --offset NS to be "
            "added to the trace's times, see README.md, Clocks"
        )


def check(traces, threads, notes, force):
    """A thread that makes a call is on a CPU: if few are when they should be, a clock is shifted or ids are of another
    namespace."""
    import doings

    on, calls = 0, 0
    for trace in traces:
        for call in trace.calls:
            thread = threads.get(call.tid)
            if thread is None or not call.enqueues:
                continue
            piece = next(thread.pieces(call.start, call.start + 1), None)
            if piece is not None:
                calls += 1
                on += piece[2] in (doings.CPU, doings.DRIVER)
    if not calls:
        text = ("the log knows no thread that calls the CUDA driver at the time of its calls: ids of another PID namespace "
                "(give --same PID=HOSTPID) or another run")
    elif on * 10 < calls * 9:
        text = (f"only {on} of {calls} CUDA calls were made while their thread was on a CPU: the clocks are shifted; give "
                "--offset NS, see README.md, Clocks")
    else:
        return
    if not force:
        raise Problem(f"check the clocks: {text}; --force imports it as it is")
    notes.count(f"check of the clocks that failed ({text})")
