"""Scheduler events from the text of `perf script`, of ftrace's `trace` file and of `trace-cmd report`."""

import re
from collections import namedtuple

from problem import Problem

# `tgid` is none where the line does not say; `interrupt` whether an interrupt ran when it was written, none likewise.
Event = namedtuple("Event", "time cpu tid tgid interrupt kind args")

TIME = r"(?P<time>\d+\.\d+):\s+"
PERF = re.compile(
    r"^\s*(?P<comm>.*?)\s+(?:(?P<tgid>-?\d+)/)?(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+" + TIME
    + r"(?:\d+\s+)?(?P<event>PERF_RECORD_\w+|[\w-]+:[\w-]+)(?P<body>.*)$"
)
FTRACE = re.compile(
    r"^\s*(?P<comm>.*)-(?P<tid>\d+)\s+(?:\(\s*(?P<tgid>\d+|-+)\)\s+)?\[(?P<cpu>\d+)\]\s+(?:(?P<flags>[^\s\d]\S*|\.\S*)\s+)?"
    + TIME + r"(?P<event>[\w-]+)(?P<body>:.*)$"
)
LOST = re.compile(r"^\s*CPU:\s*\d+ \[LOST (\d+) EVENTS\]")

SWITCH = re.compile(r"prev_pid=(\d+) .*?prev_state=(\S+) ==> .*?next_pid=(\d+)")
# As libtraceevent's plugin prints it.
SWITCH_SHORT = re.compile(r"^.*:(\d+) \[-?\d+\] (\S+) ==> .*:(\d+) \[-?\d+\]")
PID = re.compile(r"(?:^|\s)pid=(\d+)")
PID_SHORT = re.compile(r"^.*:(\d+) \[-?\d+\]")
CHILD = re.compile(r"child_pid=(\d+)")
RAW = re.compile(r"NR (-?\d+) \((.*)\)")
RAW_EXIT = re.compile(r"NR (-?\d+) = (-?\d+)")
RECORD_FORK = re.compile(r"\((\d+):(\d+)\):\((\d+):(\d+)\)")
RECORD_COMM = re.compile(r":(\d+)/(\d+)\s*$")
RECORD_LOST = re.compile(r"lost\s+(\d+)")

# Kernel threads wake others on behalf of devices, as interrupts do.
KERNEL = re.compile(r"(ksoftirqd|kworker|migration|irq|rcu\w*|kswapd|jbd2|kcompactd)\b")
INTERRUPTS = {"irq_handler_entry": 1, "irq_handler_exit": -1, "softirq_entry": 1, "softirq_exit": -1}


def nanoseconds(text):
    """Seconds with a decimal point, exactly."""
    whole, part = text.split(".")
    return int(whole) * 1_000_000_000 + int((part + "000000000")[:9])


def read(path, lines, notes):
    """All events of a log that matter, in order of time."""
    events, unknown, total, text = [], 0, 0, ""
    for text in lines:
        if not text.endswith("\n"):
            notes.count(f"line cut at the end of {path}, left out")
            break
        if not text.strip() or text.startswith("#"):
            continue
        total += 1
        lost = LOST.match(text)
        if lost:
            notes.lost += int(lost.group(1))
            continue
        # Runs of blanks, of which other files have long ones, would be tried in every way to divide them.
        text = " " + " ".join(text.split())
        match = PERF.match(text) or FTRACE.match(text)
        try:
            event = match and parse(match, notes)
        except ValueError:
            # A number of thousands of digits.
            match = None
        if not match:
            unknown += 1
            continue
        if event:
            events.append(event)
    if total and unknown == total:
        raise Problem(
            f"read scheduler events from {path}: none of its {total} lines is one of perf script, ftrace or trace-cmd; "
            "make it with `perf script --ns -F comm,pid,tid,cpu,time,event,trace`, see README.md"
        )
    if unknown:
        notes.count(f"line of {path} that is no event", unknown)
    if not any(event.kind == "switch" for event in events):
        raise Problem(f"read scheduler events from {path}: there is no sched_switch; record it, see README.md")
    events.sort(key=lambda event: event.time)
    return events


def parse(match, notes):
    """One line's event; none if nothing follows from it."""
    name, body = match["event"].rpartition(":")[2], match["body"].lstrip(":").strip()
    time, cpu, tid = nanoseconds(match["time"]), int(match["cpu"]), int(match["tid"])
    tgid = int(match["tgid"]) if (match["tgid"] or "-").isdigit() else None
    flags = match.groupdict().get("flags")
    interrupt = None if flags is None or len(flags) < 3 else flags[2] in "hHszZ"
    if KERNEL.match(match["comm"]):
        interrupt = True
    kind, args = detail(name, body)
    if kind is None:
        notes.count(f"event {name}, of no use" if args is None else f"event {name} that does not parse")
        return None
    if kind == "lost":
        notes.lost += args[0]
        return None
    return Event(time, cpu, tid, tgid, interrupt, kind, args)


def detail(name, body):
    """What an event says: its kind and arguments. No kind: not known (no arguments either), or not understood."""
    if name == "sched_switch":
        found = SWITCH.search(body) or SWITCH_SHORT.match(body)
        return ("switch", (int(found[1]), found[2], int(found[3]))) if found else (None, ())
    if name in ("sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_stat_iowait", "sched_process_exit"):
        found = PID.search(body) or PID_SHORT.match(body)
        kind = {"sched_waking": "waking", "sched_stat_iowait": "iowait", "sched_process_exit": "exit"}.get(name, "wakeup")
        return (kind, (int(found[1]),)) if found else (None, ())
    if name == "sched_process_fork":
        found, child = PID.search(body), CHILD.search(body)
        return ("fork", (int(found[1]), int(child[1]), None)) if found and child else (None, ())
    if name == "sys_enter":
        found = RAW.search(body)
        return ("enter", (int(found[1]), [number(arg, 16) for arg in found[2].split(",")])) if found else (None, ())
    if name == "sys_exit":
        found = RAW_EXIT.search(body)
        return ("leave", (int(found[1]), int(found[2]))) if found else (None, ())
    if name.startswith("sys_enter_"):
        values = [part.rpartition(":")[2] for part in body.strip("()").split(",") if ":" in part]
        return "enter", (name[len("sys_enter_"):], [number(value, 0) for value in values])
    if name.startswith("sys_exit_"):
        return "leave", (name[len("sys_exit_"):], number(body.split("=")[-1].split("(")[0] or body, 0))
    if name in INTERRUPTS:
        return "interrupt", (INTERRUPTS[name],)
    if name.endswith(("_entry", "_exit")):
        # Of the system irq_vectors.
        return "interrupt", (1 if name.endswith("_entry") else -1,)
    return record(name, body)


def record(name, body):
    """Records of perf itself."""
    if name == "PERF_RECORD_FORK":
        found = RECORD_FORK.search(body)
        return ("fork", (int(found[4]), int(found[2]), int(found[1]))) if found else (None, ())
    if name == "PERF_RECORD_EXIT":
        found = RECORD_FORK.search(body)
        return ("exit", (int(found[2]),)) if found else (None, ())
    if name == "PERF_RECORD_COMM":
        found = RECORD_COMM.search(body)
        return ("known", (int(found[2]), int(found[1]))) if found else (None, ())
    if name.startswith("PERF_RECORD_LOST"):
        found = RECORD_LOST.search(body)
        return ("lost", (int(found[1]),)) if found else (None, ())
    return None, None


def number(text, base):
    """An argument; 0 if it is none that can be read."""
    try:
        return int(text.strip() or "0", base)
    except ValueError:
        return 0
