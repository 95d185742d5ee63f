"""Switches that a log lacks, from who is seen to run: recorders miss some, above all those out of the idle task."""

from sched_text import Event

# Lines of these are written by the task that runs on their CPU.
OWN = {"waking", "wakeup", "enter", "leave"}
IDLE = 0


def repair(events, notes):
    """The events, with the switches that must have been, in order of time."""
    running, since, woken, added = {}, {}, {}, []
    for event in events:
        if event.kind == "switch":
            runs = event.args[0]
        elif event.kind in OWN:
            runs = event.tid
        else:
            continue
        before = running.get(event.cpu, runs)
        if before != runs:
            added.append(between(event, before, runs, since[event.cpu], woken.get(runs, 0)))
            running[event.cpu], since[event.cpu] = runs, event.time
        if event.kind == "switch":
            running[event.cpu], since[event.cpu] = event.args[2], event.time
        elif event.kind in ("waking", "wakeup"):
            woken[event.args[0]] = event.time
    if added:
        notes.count("switch that the log lacks, put where it must have been", len(added))
    return sorted(events + added, key=lambda event: event.time)


def between(event, before, runs, since, woken):
    """The switch before an event. An idle CPU takes a thread as soon as it is woken; otherwise nothing says when it was,
    nor why the other thread left."""
    if before == IDLE:
        # After the waking, of which the time may be the same.
        time = max(since, woken) + 1 if woken > since else event.time - 1
        return Event(min(time, event.time - 1), event.cpu, before, None, None, "switch", (before, "R", runs))
    return Event(event.time - 1, event.cpu, before, None, None, "switch", (before, "?", runs))
