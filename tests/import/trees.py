"""Which threads belong to which process, and which processes to which pod: a process and all that it forks."""

from collections import defaultdict

from lives import plain
from problem import Problem


class Trees:
    """Threads, processes and who forked them, from a whole log."""

    def __init__(self, events, calls):
        self.tgids, self.parents, self.born = {}, {}, {}
        for event in events:
            if event.tgid is not None and event.tgid >= 0:
                self.tgids[event.tid] = event.tgid
            if event.kind == "known":
                self.tgids.setdefault(*event.args)
            elif event.kind == "fork":
                parent, child, tgid = event.args
                self.parents.setdefault(child, parent)
                if tgid is not None:
                    self.tgids[child] = tgid
                if event.time > 0:
                    self.born.setdefault(child, event.time)
        for call in calls:
            self.tgids[call.tid] = call.tgid
        self.members = defaultdict(set)
        for tid, tgid in self.tgids.items():
            self.members[tgid].add(tid)
        self.children = defaultdict(set)
        for child, parent in self.parents.items():
            self.children[parent].add(child)

    def process(self, tid):
        """The process of a thread; where nothing says, the thread is one of its own."""
        return self.tgids.get(tid, tid)

    def below(self, root):
        """All threads of a process and of those that it forked."""
        found, new = set(), {root}
        while new:
            found |= new
            grown = set()
            for tid in new:
                grown |= self.children[tid] | self.members[self.process(tid)]
            new = grown - found
        return found


def pods(trees, named, callers):
    """Pods by name, each the set of its threads. Without names every process that calls the driver is one."""
    roots = named or [(f"pid-{plain(pid)}", [pid]) for pid in sorted(callers)]
    found, taken = {}, {}
    for name, pids in roots:
        threads = found.setdefault(name, set())
        for pid in pids:
            threads |= trees.below(pid)
        for tid in threads:
            other = taken.setdefault(tid, name)
            if other != name:
                if named:
                    raise Problem(
                        f"assign threads to pods: thread {plain(tid)} is below the roots of both {other} and {name}; "
                        "give roots of which none is below another"
                    )
                threads = found[name] = threads - {tid}
    strangers = sorted(pid for pid in callers if pid not in taken)
    if strangers:
        raise Problem(
            f"assign processes to pods: process {plain(strangers[0])} calls the CUDA driver and is in no pod; "
            f"add --pod NAME={plain(strangers[0])}, or --same {plain(strangers[0])}=HOSTPID if the trace was made in a PID "
            "namespace of its own"
        )
    return found
