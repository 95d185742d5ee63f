"""From timelines and CUDA traces to the facts of each second."""

from collections import defaultdict

import doings
import facts
import gaps
from asked import asked
from seconds import SECOND, per_second, seconds, union


class Account:
    """All that was seen between two moments, in the terms of facts."""

    def __init__(self, start, end, works, calls, pods, trees, timelines):
        self.spans = seconds(start, end)
        self.start, self.end = start, self.spans[-1][1]
        self.works, self.trees, self.timelines = works, trees, timelines
        self.names = list(pods)
        numbers = {name: number for number, name in enumerate(pods, 1)}
        self.number = {tid: numbers[name] for name, tids in pods.items() for tid in tids}
        self.calls = defaultdict(list)
        for call in sorted(calls, key=lambda call: call.start):
            if call.start < self.end:
                self.calls[call.tgid, call.device].append(call)
        self.processes = {tgid for tgid, _ in self.calls} | {trees.process(tid) for tid in self.number}
        self.sums = {key: asked(calls, self.spans) for key, calls in self.calls.items()}
        self.cut = {key: self.cut_gaps(calls) for key, calls in self.calls.items()}
        self.devices = {work.device for work in works} | {device for _, device in self.calls if device is not None}

    def samples(self, models, wall):
        """The recording, in order of arrival."""
        at = self.start
        using = defaultdict(set)
        for (tgid, device), _ in self.calls.items():
            if device is not None:
                using[tgid].add(device)
        grants = defaultdict(set)
        for tgid, devices in using.items():
            grants[self.number[tgid]] |= devices
        yield facts.pods(at, self.names, grants)
        for source in ("pods", "host", "nvidia", "probes"):
            yield facts.up(at, source)
        yield facts.inventory(at, {device: models.get(device, "unknown model") for device in self.devices})
        for tgid in sorted(self.processes):
            yield facts.process(at, tgid, self.birth(tgid), self.number[tgid], using[tgid])
        yield facts.tick(at, wall(at))
        busy = self.busy()
        for number, during in enumerate(self.spans):
            yield from self.second(number, list(during), busy, using)
            yield facts.tick(during[1] + 2_000_000, wall(during[1]))
        # Within the lateness bound nothing may come any more.
        yield facts.tick(self.end + SECOND // 2, wall(self.end))

    def birth(self, tgid):
        """When a process began; one that was there already, before the recording."""
        return self.trees.born.get(tgid, max(self.start - SECOND, 0))

    def busy(self):
        """Nanoseconds by second in which kernels ran, of devices and of processes on them."""
        intervals = defaultdict(list)
        for work in self.works:
            if work.kind != "copy":
                intervals[work.device, None].append((work.start, work.end))
                intervals[work.device, work.tgid].append((work.start, work.end))
        return {key: per_second(union(found), self.spans) for key, found in intervals.items()}

    def second(self, number, during, busy, using):
        at = during[1] + 1_000_000
        yield facts.sample(at, "probes", {"probes": self.probes(number, during)})
        none = [0] * len(self.spans)
        for device in sorted(self.devices):
            on = {tgid for tgid, devices in using.items() if device in devices}
            yield facts.reading(at, device, during, busy.get((device, None), none)[number], on)
            times = {tgid: busy.get((device, tgid), none)[number] for tgid in on}
            yield facts.process_use(at, device, during, times)

    def probes(self, number, during):
        calls = [self.call(key, number) for key in sorted(self.calls, key=order)]
        seen = {"during": during, "calls": calls, "threads": self.threads(during)}
        if self.timelines.followed:
            seen |= {"followed": True, "waits": self.waits(during)}
        return seen

    def cut_gaps(self, calls):
        return gaps.by_second(gaps.gaps(calls, self.end), self.timelines.threads, self.start, self.spans)

    def call(self, key, number):
        """What one process asked of one device in a second."""
        tgid, device = key
        found = sorted(self.cut[key][number].items(), key=lambda item: (gaps.KINDS.index(item[0][0]), item[0][1]))
        return {
            "process": facts.identity(tgid, self.birth(tgid)),
            "device": None if device is None else {"gpu": facts.gpu_id(device)},
            "from_start": tgid in self.trees.born,
            **self.sums[key][number],
            "gaps": [
                {"kind": kind, "log2": log2, "count": count, "total": total, "doings": mix}
                for (kind, log2), (count, total, mix) in found
            ],
        }

    def threads(self, during):
        """What the threads of each pod did, those that call the driver apart from the others."""
        callers = {call.tid for calls in self.calls.values() for call in calls}
        sums = {number: ([0] * doings.COUNT, [0] * doings.COUNT) for number in range(1, len(self.names) + 1)}
        for tid, thread in self.timelines.threads.items():
            mine = sums[self.number[tid]][tid not in callers]
            for begin, end, doing in thread.pieces(*during):
                if doing != doings.DRIVER:
                    mine[doing] += end - begin
        return [{"scope": facts.scope(number), "callers": a, "others": b} for number, (a, b) in sorted(sums.items())]

    def waits(self, during):
        """Who waited for whom, of waits that ended in this second."""
        sums = {}
        for time, sleeper, waker, mix in self.timelines.waits:
            if during[0] <= time < during[1]:
                count, total = sums.get((sleeper, waker), (0, [0] * doings.COUNT))
                sums[sleeper, waker] = count + 1, [a + b for a, b in zip(total, mix)]
        identity = lambda tgid: facts.identity(tgid, self.birth(tgid))
        return [
            {"sleeper": identity(sleeper), "waker": identity(waker), "count": count, "doings": mix}
            for (sleeper, waker), (count, mix) in sorted(sums.items())
        ]


def order(key):
    """Processes in order, and of each what concerns no known device first."""
    tgid, device = key
    return tgid, -1 if device is None else device
