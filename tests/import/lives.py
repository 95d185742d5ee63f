"""Ids that were given twice: each life of an id becomes an id of its own, above all that Linux gives."""

from bisect import bisect_right

# Linux gives no id from here on.
SPAN = 1 << 22
# perf and the kernel both tell of a fork, within this.
SAME = 1_000_000

TASKS = {"switch": (0, 2), "waking": (0,), "wakeup": (0,), "iowait": (0,), "exit": (0,), "known": (0, 1), "fork": (0, 1, 2)}


def plain(tid):
    """The id as the kernel gave it."""
    return tid % SPAN


class Lives:
    """When each id was given anew."""

    def __init__(self, events):
        """`events` in order of time."""
        self.begun, dead, forked = {}, set(), {}
        for event in events:
            if event.kind == "exit":
                dead.add(event.args[0])
            elif event.kind == "switch" and event.args[1][0] in "XZ":
                dead.add(event.args[0])
            elif event.kind == "fork" and event.time > 0:
                child = event.args[1]
                again = child in forked and event.time - forked[child] > SAME
                if again or child in dead:
                    self.begun.setdefault(child, []).append(event.time)
                dead.discard(child)
                forked[child] = event.time

    def at(self, tid, time):
        """An id as it was meant at a time."""
        if tid not in self.begun:
            return tid
        return tid + SPAN * bisect_right(self.begun[tid], time)

    def all(self, tid):
        """All lives of an id, the last one first."""
        return [tid + SPAN * life for life in range(len(self.begun.get(tid, ())), -1, -1)]

    def apply(self, events):
        """The events with an id for each life."""
        if not self.begun:
            return events
        return [self.of(event) for event in events]

    def of(self, event):
        args = event.args
        for place in TASKS.get(event.kind, ()):
            if args[place] is not None:
                args = args[:place] + (self.at(args[place], event.time),) + args[place + 1:]
        tgid = None if event.tgid is None else self.at(event.tgid, event.time)
        return event._replace(tid=self.at(event.tid, event.time), tgid=tgid, args=args)
