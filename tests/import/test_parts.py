#!/usr/bin/env python3
"""The importer's parts, each by facts that could be false."""

import json
import random
import sqlite3
import tempfile
import unittest
from pathlib import Path

import asked
import cuda
import gaps
import kineto
import lives
import nsys
import repair
import sched_text
import syscalls
import timelines
import trees
from doings import COUNT, CPU, CPU_WAIT, DISK_READ, LOCK, NETWORK, POLL, REQUEST, TIMER, UNKNOWN
from problem import Notes, Problem
from sched_text import Event

MS = 1_000_000


def parse(*lines):
    return sched_text.read("log", [line + "\n" for line in lines], Notes())


def switch(time, leaves, state, enters, cpu=0):
    return Event(time, cpu, leaves, None, None, "switch", (leaves, state, enters))


def waking(time, by, tid, cpu=0, interrupt=False):
    return Event(time, cpu, by, None, interrupt, "waking", (tid,))


def enter(time, tid, call, *args):
    return Event(time, 0, tid, None, None, "enter", (call, list(args)))


def leave(time, tid, call, result):
    return Event(time, 0, tid, None, None, "leave", (call, result))


def follow(events, pods, calls=(), until=100 * MS, **options):
    """Threads after a log; `pods` by name."""
    lines = timelines.Timelines(trees.Trees(events, calls), pods, calls, Notes(), **options)
    lines.run(sorted(events, key=lambda event: event.time), until)
    return lines


def call(kind, start, end, done=None, tid=1):
    return cuda.Call(start, end, tid, 1, kind, 0, 0, done=done)


class Lines(unittest.TestCase):
    def test_every_tool_writes_the_same_switch(self):
        body = "prev_comm=my app:1 prev_pid=12 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120"
        for line in (
            f"          my app    12/12    [001] 27138.989610409:       sched:sched_switch: {body}",
            f"          my app    12 [001] 27138.989610409:       sched:sched_switch: {body}",
            f"my app    12 [001] 27138.989610409:          1 sched:sched_switch: {body}",
            "my app    12 [001] 27138.989610409: sched:sched_switch: my app:12 [120] D ==> swapper/0:0 [120]",
            f"          my app-12    (     12) [001] d..2. 27138.989610409: sched_switch: {body}",
            f"          my app-12    [001] d..2. 27138.989610409: sched_switch: {body}",
            "          my app-12    [001]  27138.989610409: sched_switch:         my app:12 [120] D ==> swapper/0:0 [120]",
        ):
            event, = parse(line)
            self.assertEqual((event.time, event.cpu, event.tid, event.kind, event.args),
                             (27138989610409, 1, 12, "switch", (12, "D", 0)), line)

    def test_flags_and_kernel_threads_tell_interrupts(self):
        first = "a-1 [000] d..2. 1.000000: sched_switch: a:1 [120] S ==> b:2 [120]"
        for line, interrupt in (
            ("b-2 [000] d.h2. 1.000001: sched_waking: comm=a pid=1 prio=120 target_cpu=000", True),
            ("b-2 [000] dNs2. 1.000001: sched_waking: comm=a pid=1 prio=120 target_cpu=000", True),
            ("b-2 [000] d..2. 1.000001: sched_waking: comm=a pid=1 prio=120 target_cpu=000", False),
            ("kworker/0:1-9 [000] d..2. 1.000001: sched_waking: a:1 [120] CPU:000", True),
            ("b 2 [000] 1.000001: sched:sched_waking: comm=a pid=1 prio=120 target_cpu=000", None),
        ):
            self.assertIs(parse(first, line)[1].interrupt, interrupt, line)

    def test_system_calls_are_read_raw_and_by_name(self):
        first = "a 1 [000] 1.0: sched:sched_switch: a:1 [120] S ==> b:2 [120]"
        events = parse(first, "b 2/2 [000] 1.1: raw_syscalls:sys_enter: NR 0 (1f, 7f00, 10, 0, 0, 0)",
                       "b 2/2 [000] 1.2: syscalls:sys_enter_pread64: fd: 0x0000001f, buf: 0x7f00, count: 0x10",
                       "b-2 [000] ..... 1.3: sys_exit: NR 0 = -4")
        self.assertEqual([event.args[0] for event in events[1:]], [0, "pread64", 0])
        self.assertEqual([event.args[1][0] for event in events[1:3]], [31, 31])
        self.assertEqual(events[3].args[1], -4)

    def test_a_cut_line_and_lines_of_no_kind_are_counted_and_left_out(self):
        notes = Notes()
        lines = ["nonsense\n", "a 1 [000] 1.0: sched:sched_switch: a:1 [120] S ==> b:2 [120]\n",
                 "a 1 [000] 1.0: sched:sched_stat_runtime: comm=a pid=1\n", "CPU:1 [LOST 7 EVENTS]\n", "a 1 [000] 1.0: sched:sched_sw"]
        self.assertEqual(len(sched_text.read("log", lines, notes)), 1)
        self.assertEqual((sum(notes.counts.values()), notes.lost), (3, 7))

    def test_a_file_of_something_else_is_refused(self):
        with self.assertRaisesRegex(Problem, "perf script"):
            parse("{", "}")
        with self.assertRaisesRegex(Problem, "no sched_switch"):
            parse("b 2 [000] 1.000001: sched:sched_waking: comm=a pid=1 prio=120 target_cpu=000")


class Waits(unittest.TestCase):
    def test_a_chain_of_waits_is_what_its_end_did_moment_by_moment(self):
        events = [
            switch(0, 0, "R", 1), switch(0, 0, "R", 2, 1), switch(0, 0, "R", 3, 2),
            enter(1, 1, "futex"), switch(MS, 1, "S", 0), enter(1, 2, "futex"), switch(2 * MS, 2, "S", 0, 1),
            enter(3 * MS, 3, "pread64", 9), switch(10 * MS, 3, "D", 0, 2), waking(30 * MS, 0, 3, 2), switch(30 * MS, 0, "R", 3, 2),
            waking(35 * MS, 3, 2, 2), switch(36 * MS, 0, "R", 2, 1), waking(40 * MS, 2, 1, 1), switch(41 * MS, 0, "R", 1),
        ]
        lines = follow(events, {"pod": {1, 2, 3}})
        mix = lines.threads[1].mix(MS, 40 * MS)
        # 1 to 2 ms: thread 2 ran; 2 to 35: what thread 3 did, 20 ms of it reading; then thread 2 waited and ran.
        self.assertEqual((mix[CPU], mix[DISK_READ], mix[CPU_WAIT]), (18 * MS, 20 * MS, MS))
        self.assertEqual([wait[1:3] for wait in lines.waits], [(2, 3), (1, 2)])
        # A part of a wait is what was done in that part, not an average of the whole.
        self.assertEqual(lines.threads[1].mix(12 * MS, 28 * MS)[DISK_READ], 16 * MS)

    def test_who_ends_the_wait_after_a_timeout_explains_both(self):
        events = [
            switch(0, 0, "R", 1), switch(0, 0, "R", 2, 1), enter(1, 1, "futex"), switch(MS, 1, "S", 0),
            waking(6 * MS, 0, 1, 0, True), switch(6 * MS, 0, "R", 1), switch(7 * MS, 1, "S", 0), waking(9 * MS, 2, 1, 1),
        ]
        for calls, cpu in (((), 8), ((call("launch", 13 * MS // 2, 13 * MS // 2 + 1),), 3)):
            mix = follow(events, {"pod": {1, 2}}, calls).threads[1].mix(MS, 9 * MS)
            self.assertEqual((mix[CPU], mix[POLL]), (cpu * MS, (8 - cpu) * MS), "a CUDA call in between begins a new account")

    def test_strangers_explain_nothing(self):
        events = [switch(0, 0, "R", 1), switch(0, 0, "R", 2, 1), enter(1, 1, "futex"), switch(MS, 1, "S", 0), waking(9 * MS, 2, 1, 1)]
        for pods in ({"pod": {1}}, {"pod": {1}, "other": {2}}):
            self.assertEqual(follow(events, pods).threads[1].mix(MS, 9 * MS)[LOCK], 8 * MS)

    def test_what_a_waker_did_in_the_driver_is_a_lock(self):
        events = [switch(0, 0, "R", 1), switch(0, 0, "R", 2, 1), enter(1, 1, "futex"), switch(MS, 1, "S", 0), waking(9 * MS, 2, 1, 1)]
        mix = follow(events, {"pod": {1, 2}}, (call("sync", 2 * MS, 5 * MS, tid=2),)).threads[1].mix(MS, 9 * MS)
        self.assertEqual((mix[LOCK], mix[CPU]), (3 * MS, 5 * MS))

    def test_sockets_are_told_by_how_they_were_made(self):
        made = [enter(1, 1, "socket", 2), leave(2, 1, "socket", 5), enter(3, 1, "accept", 4), leave(4, 1, "accept", 6)]
        for descriptor, doing in ((5, NETWORK), (6, REQUEST), (7, POLL)):
            events = [switch(0, 0, "R", 1), *made, enter(9, 1, "recvfrom", descriptor), switch(MS, 1, "S", 0), waking(9 * MS, 0, 1)]
            self.assertEqual(follow(events, {"pod": {1}}).threads[1].mix(MS, 9 * MS)[doing], 8 * MS)

    def test_without_system_calls_a_deep_sleep_is_what_one_says_it_is(self):
        events = [switch(0, 0, "R", 1), switch(MS, 1, "D", 0), waking(9 * MS, 0, 1)]
        self.assertEqual(follow(events, {"pod": {1}}).threads[1].mix(MS, 9 * MS)[UNKNOWN], 8 * MS)
        self.assertEqual(follow(events, {"pod": {1}}, deep=DISK_READ).threads[1].mix(MS, 9 * MS)[DISK_READ], 8 * MS)

    def test_what_a_call_waits_for(self):
        kinds = {3: "disk", 4: "local", 5: "inet"}.get
        for name, args, deep, doing in (
            ("read", [3], False, DISK_READ), ("read", [4], False, LOCK), ("read", [9], True, DISK_READ), ("read", [9], False, POLL),
            ("poll", [1, 0], False, TIMER), ("poll", [1, 2], False, POLL), ("select", [0], False, TIMER), ("futex", [0], True, LOCK),
            ("openat", [], True, DISK_READ), ("openat", [], False, UNKNOWN), ("number 999", [], True, UNKNOWN),
        ):
            self.assertEqual(syscalls.wait(name, args, deep, kinds), doing, (name, args, deep))

    def test_every_moment_of_a_followed_thread_is_in_one_piece_whatever_happens(self):
        for seed in range(200):
            chance = random.Random(seed)
            events, time = [], 0
            for _ in range(120):
                time += chance.randrange(0, MS)
                a, b = chance.sample(range(4), 2)
                events.append(chance.choice((
                    switch(time, a, chance.choice("RSD"), b, a), waking(time, a, b, a, chance.random() < 0.3),
                    enter(time, a, chance.choice(("futex", "read", "epoll_wait", "nanosleep")), 3), leave(time, a, "futex", 0))))
            calls = [call("sync", at, at + MS // 3, tid=2) for at in range(0, time, 5 * MS)]
            for thread in follow(events, {"pod": {1, 2, 3}}, calls, time).threads.values():
                self.assertEqual(thread.starts[1:], thread.ends[:-1])
                self.assertTrue(all(a < b for a, b in zip(thread.starts, thread.ends)))
                self.assertEqual(sum(thread.mix(0, time)), time)


class Gaps(unittest.TestCase):
    def kinds(self, calls, until=1000):
        return [(gap.kind, gap.start, gap.end) for gap in gaps.gaps(calls, until)]

    def test_the_three_kinds(self):
        far = gaps.SKEW
        calls = [call("launch", 0, 1, done=far + 50), call("launch", 10, 11, done=far + 60), call("sync", 20, far + 80),
                 call("launch", far + 100, far + 101, done=3 * far)]
        self.assertEqual(self.kinds(calls, far + 130), [
            ("enqueue", 0, 10), ("sync", 10, far + 80), ("drained", far + 80, far + 100), ("enqueue", far + 100, far + 130)])

    def test_a_wait_that_leaves_work_outstanding_does_not_drain(self):
        calls = [call("launch", 0, 1, done=10 * gaps.SKEW), call("sync", 20, 30), call("launch", 50, 51)]
        self.assertEqual(self.kinds(calls, 60), [("sync", 0, 30), ("enqueue", 30, 50), ("enqueue", 50, 60)])

    def test_waits_for_nothing_do_not_interrupt_a_drained_gap(self):
        calls = [call("launch", 0, 1, done=5), call("sync", 2, 10), call("sync", 20, 21), call("query", 30, 31), call("launch", 50, 51)]
        self.assertEqual(self.kinds(calls, 60), [("sync", 0, 10), ("drained", 10, 50), ("enqueue", 50, 60)])

    def test_a_query_ends_a_gap_only_if_nothing_is_outstanding(self):
        for done, after in ((10 * gaps.SKEW, [("enqueue", 0, 60)]), (10, [("enqueue", 0, 30), ("drained", 30, 60)])):
            self.assertEqual(self.kinds([call("launch", 0, 1, done=done), call("query", 20, 30)], 60), after)

    def test_gaps_touch_from_the_first_enqueue_to_the_end_and_sum_to_it_by_second(self):
        for seed in range(200):
            chance, calls, busy = random.Random(seed), [], {}
            for _ in range(60):
                tid = chance.randrange(1, 4)
                start = max(busy.get(tid, 0), chance.randrange(3 * gaps.SECOND))
                end = busy[tid] = start + chance.randrange(1, 10 * MS)
                calls.append(call(chance.choice(("launch", "sync", "query", "blocking_copy")), start, end, end + chance.randrange(10 * MS), tid))
            calls.sort(key=lambda call: call.start)
            until = 4 * gaps.SECOND
            found = gaps.gaps(calls, until)
            first = min((call.start for call in calls if call.enqueues), default=until)
            edges = [gap.start for gap in found] + [until]
            self.assertEqual(edges[0], first)
            self.assertEqual(edges[1:], [gap.end for gap in found])
            spans = [(at, at + gaps.SECOND) for at in range(0, until, gaps.SECOND)]
            cut = gaps.by_second(found, {}, 0, spans)
            entries = [entry for second in cut for entry in second.values()]
            self.assertEqual(sum(entry[1] for entry in entries), until - first)
            self.assertEqual(sum(entry[0] for entry in entries), len(found))
            self.assertTrue(all(sum(entry[2]) == entry[1] for entry in entries))


class Calls(unittest.TestCase):
    def test_names_say_what_a_function_does(self):
        for name, kind in (
            ("cudaLaunchKernel_v7000", "launch"), ("cuLaunchKernelEx_ptsz", "launch"), ("cudaGraphLaunch_v10000", "graph"),
            ("cudaMemcpyAsync_v3020", "copy"), ("cudaMemcpy", "blocking_copy"), ("cuMemcpyHtoD_v2", "blocking_copy"),
            ("cuMemcpyDtoHAsync_v2_ptsz", "copy"), ("cudaMemsetAsync", "memset"), ("cuStreamSynchronize", "sync"),
            ("cudaEventQuery", "query"), ("cudaLaunchHostFunc", "host"), ("cudaMalloc", "other"), ("aten::add", None),
        ):
            self.assertEqual(cuda.kind_of(name), kind, name)

    def test_a_copy_that_holds_its_thread_blocks_whatever_it_is_called(self):
        for name in ("cudaMemcpyAsync_v3020", "cudaMemcpy2DAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyAsync_ptsz"):
            for held, kind in ((cuda.HELD - 1, "copy"), (cuda.HELD, "blocking_copy")):
                made = call(cuda.kind_of(name), 0, held)
                self.assertEqual((made.kind, made.waits), (kind, kind == "blocking_copy"), name)
        # What else takes as long is what it is called.
        self.assertEqual([call(kind, 0, MS).kind for kind in ("launch", "memset", "sync")], ["launch", "memset", "sync"])

    def test_a_copy_of_pageable_memory_is_waited_for_in_its_call_and_a_pinned_one_is_not(self):
        for held, wait in ((3 * MS, 3 * MS), (4_000, 0)):
            copy = cuda.Call(MS, MS + held, 1, 1, "copy", 0, 0, 7, "bytes_to_device", 5 * MS)
            second, = asked.asked([copy], [(0, 10 * MS)])
            self.assertEqual((second["copy_wait"], second["bytes_to_device"]), (wait, 7))
            # Staged and not there yet when the call returns: work is outstanding.
            found = [(gap.kind, gap.start, gap.end) for gap in gaps.gaps([copy], 6 * MS)]
            held_up = [("sync", MS, 4 * MS), ("enqueue", 4 * MS, 6 * MS)] if wait else [("enqueue", MS, 6 * MS)]
            self.assertEqual(found, held_up)

    def test_calls_within_calls_and_what_a_capture_records_are_left_out(self):
        names = ["cudaLaunchKernel", "cuLaunchKernel", "cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture", "cudaGraphLaunch"]
        calls = [call(cuda.kind_of(name), at, at + 9) for name, at in zip(names, (0, 2, 20, 30, 40, 50))]
        calls[1].end = 5
        kept = cuda.outermost(calls, names, Notes())
        self.assertEqual([(call.kind, call.start) for call in kept], [("launch", 0), ("other", 20), ("other", 40), ("graph", 50)])


class Traces(unittest.TestCase):
    """Events with the fields that PyTorch's profiler gives them, now and before 1.13."""

    def read(self, head, call, work):
        other = [{"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "args": {"name": "x"}},
                 {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": 1.5, "cat": "ac2g", "name": "ac2g"},
                 {"ph": "X", "cat": "Trace", "ts": 1.5, "dur": 300, "pid": "Spans", "tid": "PyTorch Profiler", "name": "x", "args": {}},
                 {"ph": "i", "s": "g", "pid": "", "tid": "", "ts": 2, "name": "Record Window End"}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"schemaVersion": 1, **head, "traceEvents": [*other, call, work]}, file)
            file.flush()
            return kineto.read(file.name, Notes())

    def test_a_trace_whose_times_count_from_an_instant(self):
        trace = self.read(
            {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "displayTimeUnit": "ms", "baseTimeNanoseconds": 1775078550000000000},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 392793, "tid": 392793, "ts": 88437691.729, "dur": 0.010,
             "args": {"cbid": 211, "correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "Kernel", "pid": 0, "tid": 1, "ts": 88437691.749, "dur": 0.020,
             "args": {"queued": 0, "device": 0, "context": 0, "stream": 1, "correlation": 1, "grid": [1, 1, 1], "graph id": 0}})
        made, done = trace.calls[0], trace.works[0]
        self.assertEqual((made.kind, made.start, made.end, made.tgid), ("launch", 1775078638437691729, 1775078638437691739, 392793))
        self.assertEqual((done.start, done.end, done.tgid, done.device), (1775078638437691749, 1775078638437691769, 392793, 0))
        self.assertEqual((made.done, trace.wall, trace.models), (done.end, True, {0: "NVIDIA H100"}))

    def test_an_older_trace_whose_threads_are_text(self):
        trace = self.read(
            {"computeProperties": [{"id": 0, "name": "Tesla V100"}]},
            {"ph": "X", "cat": "Runtime", "name": "cudaMemcpyAsync", "pid": 24572, "tid": "24610", "ts": 1621401187235535, "dur": 19,
             "args": {"cbid": 41, "correlation": 579, "external id": 170, "external ts": 1621401187235487}},
            {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": "stream 7", "ts": 1621401187235555,
             "dur": 1, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 579, "bytes": 4096}})
        made, done = trace.calls[0], trace.works[0]
        self.assertEqual((made.kind, made.start, made.tid), ("copy", 1621401187235535000, 24610))
        self.assertEqual((done.way, done.bytes, made.done, trace.models), ("bytes_to_device", 4096, done.end, {0: "Tesla V100"}))


class Databases(unittest.TestCase):
    """Tables with the columns that exports of Nsight Systems have."""

    RUNTIME = "(start int, end int, globalTid int, correlationId int, nameId int)"
    WORK = "(start int, end int, deviceId int, streamId int, correlationId int, globalPid int)"

    def read(self, *kinds):
        """A trace with these tables of activities: a graph's launch, and one piece of work of each other kind."""
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory) / "export.sqlite")
            with sqlite3.connect(path) as file:
                file.execute("create table StringIds (id integer primary key, value text not null)")
                file.execute("insert into StringIds values (1, 'cudaGraphLaunch_v10000')")
                for kind in kinds:
                    calls = kind == "RUNTIME"
                    file.execute(f"create table CUPTI_ACTIVITY_KIND_{kind} {self.RUNTIME if calls else self.WORK}")
                    row = (1000, 2000, 7 << 24 | 7, 5, 1) if calls else (3000, 9000, 0, 7, 5, 7 << 24)
                    file.execute(f"insert into CUPTI_ACTIVITY_KIND_{kind} values ({', '.join('?' * len(row))})", row)
            file.close()
            return nsys.read(path, Notes())

    def test_work_is_known_by_its_kernels_or_by_its_graphs(self):
        for kinds in (["KERNEL"], ["GRAPH_TRACE"], ["KERNEL", "GRAPH_TRACE"]):
            trace = self.read("RUNTIME", *kinds)
            self.assertEqual([(work.kind, work.start, work.end) for work in trace.works], [("kernel", 3000, 9000)] * len(kinds))
            self.assertEqual([(call.kind, call.done) for call in trace.calls], [("graph", 9000)])

    def test_what_a_trace_lacks_is_said_with_the_words_that_record_it(self):
        work = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
        calls = ("CUPTI_ACTIVITY_KIND_RUNTIME",)
        for kinds, lacking in ((["RUNTIME", "MEMCPY"], work), (["GRAPH_TRACE"], calls), (["MEMCPY"], calls + work)):
            with self.assertRaises(Problem) as raised:
                self.read(*kinds)
            said = str(raised.exception)
            self.assertIn("--cuda-graph-trace=node", said)
            self.assertEqual([name for name in calls + work if name in said], list(lacking))


class Pods(unittest.TestCase):
    def test_a_pod_is_a_process_with_all_that_it_forks(self):
        events = [Event(0, 0, 0, None, None, "known", (11, 10)), Event(5, 0, 11, None, None, "fork", (11, 20, None)),
                  Event(6, 0, 20, 20, None, "fork", (20, 21, 20)), Event(7, 0, 30, None, None, "fork", (30, 31, None))]
        forest = trees.Trees(events, [])
        self.assertEqual(trees.pods(forest, [("a", [10])], {10}), {"a": {10, 11, 20, 21}})
        with self.assertRaisesRegex(Problem, "--pod NAME=30"):
            trees.pods(forest, [("a", [10])], {10, 30})


class Repairs(unittest.TestCase):
    def test_an_id_that_is_given_again_is_another_thread(self):
        fork = lambda time: Event(time, 0, 5, None, None, "fork", (5, 9, None))
        events = [fork(10), fork(20), switch(MS, 5, "S", 9), switch(2 * MS, 9, "Z", 5), fork(5 * MS), switch(6 * MS, 5, "S", 9)]
        given = lives.Lives(events)
        self.assertEqual([given.at(9, time) for time in (0, 4 * MS, 5 * MS)], [9, 9, 9 + lives.SPAN])
        self.assertEqual([event.args[2] for event in given.apply(events) if event.kind == "switch"], [9, 5, 9 + lives.SPAN])
        soon = lives.Lives([fork(10), switch(11, 9, "X", 5), fork(12)])
        self.assertEqual([soon.at(9, time) for time in (11, 12)], [9, 9 + lives.SPAN])
        self.assertEqual({lives.plain(tid) for tid in given.all(9)}, {9})

    def test_who_is_seen_to_run_was_switched_to_when_it_was_woken_if_its_cpu_was_idle(self):
        events = [switch(0, 0, "R", 1), switch(MS, 1, "S", 0), waking(3 * MS, 2, 1, 1), enter(4 * MS, 1, "read", 3)]
        notes = Notes()
        added = [event for event in repair.repair(events, notes) if event not in events]
        self.assertEqual([(event.time, event.args) for event in added], [(3 * MS + 1, (0, "R", 1))])
        self.assertEqual(sum(notes.counts.values()), 1)

    def test_who_vanishes_from_its_cpu_did_something_unknown(self):
        events = [switch(0, 0, "R", 1), enter(4 * MS, 2, "read", 3), switch(9 * MS, 2, "S", 1)]
        lines = follow(repair.repair(events, Notes()), {"pod": {1, 2}})
        self.assertEqual(lines.threads[1].mix(4 * MS, 9 * MS)[UNKNOWN], 5 * MS)


if __name__ == "__main__":
    unittest.main()
