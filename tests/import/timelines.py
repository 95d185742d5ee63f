"""What every thread of the pods did at every moment, with waits for other threads resolved.

A wait for a thread becomes, moment by moment, what the thread that ended it did. That one's own waits became so
before, since they ended before, and so chains of any length are resolved without a limit to their depth or length.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict

import syscalls
from doings import COUNT, CPU, CPU_WAIT, DISK_READ, DRIVER, LOCK, POLL, UNKNOWN

ENDED = "XZx"


class Thread:
    """A thread's past as pieces that touch, in order, and what it does now."""

    def __init__(self, tid, tgid, pod, since, doing, born):
        self.tid, self.tgid, self.pod, self.born = tid, tgid, pod, born
        self.starts, self.ends, self.classes = [], [], []
        self.since, self.doing, self.deep = since, doing, False
        self.ended = False
        self.call, self.args = None, []
        # Waits for a lock that a timeout ended: who ends the next one explains them too.
        self.owed = []
        self.driver, self.calls = [], []

    def add(self, start, end, doing):
        """Adds a piece. What of it is in a call that waits for the device is that and nothing else."""
        for begin, finish in self.in_driver(start, end):
            self.put(start, begin, doing)
            self.put(begin, finish, DRIVER)
            start = finish
        self.put(start, end, doing)

    def put(self, start, end, doing):
        if start >= end:
            return
        if self.ends and self.ends[-1] == start and self.classes[-1] == doing and doing != POLL:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)
            self.classes.append(doing)

    def in_driver(self, start, end):
        """Stretches of calls that wait for the device, cut to an interval."""
        at = bisect_left(self.driver, (start,))
        for begin, finish in self.driver[max(at - 1, 0):]:
            if begin >= end:
                break
            if finish > start:
                yield max(begin, start), min(finish, end)

    def pieces(self, start, end):
        """What it did in an interval; times that nothing is known of are left out."""
        at = bisect_right(self.ends, start)
        while at < len(self.starts) and self.starts[at] < end:
            yield max(self.starts[at], start), min(self.ends[at], end), self.classes[at]
            at += 1

    def replace(self, start, end, pieces):
        """Says anew what it did in an interval that is one piece so far."""
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and (self.starts[at], self.ends[at]) == (start, end):
            self.starts[at:at + 1] = [piece[0] for piece in pieces]
            self.ends[at:at + 1] = [piece[1] for piece in pieces]
            self.classes[at:at + 1] = [piece[2] for piece in pieces]

    def mix(self, start, end):
        """Nanoseconds by class in an interval. What is not known, or was in the driver, is unknown."""
        sums = [0] * COUNT
        left = end - start
        for begin, finish, doing in self.pieces(start, end):
            if doing != DRIVER:
                sums[doing] += finish - begin
                left -= finish - begin
        sums[UNKNOWN] += left
        return sums

    def close(self, time):
        """Ends the running piece, which is no wait for a thread any more."""
        self.add(self.since, time, self.doing)
        self.since = time


class Timelines:
    """Runs through a log once."""

    def __init__(self, trees, pods, calls, notes, deep=UNKNOWN):
        self.trees, self.notes, self.deep = trees, notes, deep
        self.pod_of = {tid: pod for pod, tids in pods.items() for tid in tids}
        self.threads, self.waits = {}, []
        self.descriptors = syscalls.Descriptors()
        self.depth = defaultdict(int)
        self.iowait = {}
        self.blocking, self.times = defaultdict(list), defaultdict(list)
        for call in calls:
            if call.marks:
                self.times[call.tid].append(call.start)
            if call.waits:
                self.blocking[call.tid].append((call.start, call.end))
        for lists in (self.blocking, self.times):
            for entries in lists.values():
                entries.sort()

    def run(self, events, until):
        """Takes all events, in order, and closes what goes on at the end."""
        kinds = {event.kind for event in events}
        self.followed = "waking" in kinds
        self.traced = "enter" in kinds
        for event in events:
            getattr(self, "on_" + event.kind)(event, *event.args)
        for thread in self.threads.values():
            if not thread.ended:
                thread.close(max(until, thread.since))

    def thread(self, tid, time, doing, born=False):
        """A watched thread, first seen now if it is new; none of others."""
        thread = self.threads.get(tid)
        if thread is None:
            pod = self.pod_of.get(tid)
            if pod is None:
                return None
            thread = self.threads[tid] = Thread(tid, self.trees.process(tid), pod, time, doing, born)
            thread.driver, thread.calls = self.blocking[tid], self.times[tid]
        return thread

    def on_known(self, event, *_):
        pass

    def on_fork(self, event, parent, child, _tgid):
        if event.time == 0:
            return
        self.thread(child, event.time, CPU_WAIT, born=True)
        before, after = self.trees.process(parent), self.trees.process(child)
        if before != after:
            self.descriptors.forked(before, after)

    def on_exit(self, event, tid):
        pass

    def on_interrupt(self, event, step):
        self.depth[event.cpu] = max(self.depth[event.cpu] + step, 0)

    def on_enter(self, event, call, args):
        thread = self.thread(event.tid, event.time, CPU)
        if thread:
            thread.call, thread.args = syscalls.name_of(call), args

    def on_leave(self, event, call, result):
        thread = self.thread(event.tid, event.time, CPU)
        if thread:
            if thread.call == syscalls.name_of(call):
                self.descriptors.left(thread.tgid, thread.call, thread.args, result)
            thread.call, thread.args = None, []

    def on_switch(self, event, leaves, state, enters):
        thread = self.thread(leaves, event.time, CPU)
        if thread and not thread.ended:
            thread.close(event.time)
            thread.deep = "D" in state
            thread.ended = state[0] in ENDED
            thread.doing = CPU_WAIT if state[0] == "R" else self.wait(thread, state)
        thread = self.thread(enters, event.time, CPU)
        if thread and not thread.ended:
            if thread.doing not in (CPU, CPU_WAIT):
                self.woken(thread, event.time, None, False)
            thread.close(event.time)
            thread.doing = CPU

    def wait(self, thread, state):
        """The class of the wait that a thread begins."""
        if state == "?":
            return UNKNOWN
        if not self.traced:
            return self.deep if thread.deep else POLL
        if thread.call is None:
            return self.deep if thread.deep else UNKNOWN
        kind = lambda descriptor: self.descriptors.kind(thread.tgid, descriptor)
        return syscalls.wait(thread.call, thread.args, thread.deep, kind)

    def on_waking(self, event, tid):
        thread = self.thread(tid, event.time, CPU_WAIT)
        if not thread or thread.ended or thread.doing in (CPU, CPU_WAIT):
            return
        if event.interrupt is None:
            by_thread = event.tid > 0 and self.depth[event.cpu] == 0
        else:
            by_thread = event.tid > 0 and not event.interrupt
        self.woken(thread, event.time, self.threads.get(event.tid), by_thread)

    def on_wakeup(self, event, tid):
        thread = self.thread(tid, event.time, CPU_WAIT)
        if thread and not thread.ended and thread.doing not in (CPU, CPU_WAIT):
            self.woken(thread, event.time, None, False)

    def on_iowait(self, event, tid):
        """The wait that has just ended was for block I/O after all."""
        thread = self.threads.get(tid)
        if thread and thread.classes and thread.classes[-1] == UNKNOWN and thread.doing == CPU_WAIT:
            thread.classes[-1] = DISK_READ

    def woken(self, thread, time, waker, by_thread):
        """A wait ends: with another thread, or with an interrupt."""
        start, waits = thread.since, thread.doing
        thread.since, thread.doing = time, CPU_WAIT
        if waits not in (LOCK, POLL) or not self.followed or any(thread.in_driver(start, time)):
            thread.add(start, time, waits)
            return
        at = bisect_right(thread.calls, time)
        if at:
            thread.owed = [owed for owed in thread.owed if owed[0] >= thread.calls[at - 1]]
        if by_thread and waker and waker.pod == thread.pod:
            self.pass_on(thread, waker, start, time)
        elif waits == POLL:
            thread.add(start, time, self.descriptors.ready(thread.tgid, thread.call, thread.args))
        elif by_thread:
            thread.add(start, time, LOCK)
        else:
            thread.add(start, time, POLL)
            thread.owed.append((start, time))

    def pass_on(self, thread, waker, start, time):
        """A wait becomes what its waker did in it."""
        waker.close(time)
        sums = [0] * COUNT
        for begin, finish in thread.owed + [(start, time)]:
            pieces = resolved(waker, begin, finish)
            for piece_start, piece_end, doing in pieces:
                sums[doing] += piece_end - piece_start
            if begin == start:
                for piece in pieces:
                    thread.put(*piece)
            else:
                thread.replace(begin, finish, pieces)
        thread.owed = []
        self.waits.append((time, thread.tgid, waker.tgid, sums))


def resolved(waker, start, end):
    """What a thread did in an interval, without holes. Time in the driver holds those up who wait for it as a lock
    would; before it was born it cannot have been what they waited for."""
    pieces, at = [], start
    for begin, finish, doing in waker.pieces(start, end):
        if begin > at:
            pieces.append((at, begin, LOCK if waker.born else UNKNOWN))
        pieces.append((begin, finish, LOCK if doing == DRIVER else doing))
        at = finish
    if at < end:
        pieces.append((at, end, UNKNOWN))
    return pieces
