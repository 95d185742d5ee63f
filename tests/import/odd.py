#!/usr/bin/env python3
"""Recordings with a field that is not what it should be: each is imported or refused in words, within a minute.

usage: odd.py DIRECTORY, where fixtures/generate.py has written.
"""

import copy
import importlib
import json
import shutil
import sqlite3
import sys
import tempfile
import traceback
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

importer = importlib.import_module("import")

AHEAD = str(1790000000000000000 - 5000000000000)


def first(trace, *categories):
    return next(event for event in trace["traceEvents"] if event.get("cat") in categories)


def call(trace):
    return first(trace, "cuda_runtime", "cuda_driver")


def kernel(trace):
    return first(trace, "kernel")


# By name: what is done to a trace, and whether what is left is imported.
TRACES = {
    "a base that is text": (lambda trace: trace.update(baseTimeNanoseconds="abc"), False),
    "devices that are numbers": (lambda trace: trace.update(deviceProperties=[1, 2]), True),
    "a device whose id is a list": (lambda trace: trace.update(deviceProperties=[{"id": [1], "name": "x"}]), True),
    "a device whose name is a number": (lambda trace: trace.update(deviceProperties=[{"id": 0, "name": 1.5}]), True),
    "a call without arguments": (lambda trace: call(trace).update(args=None), True),
    "a call whose arguments are a list": (lambda trace: call(trace).update(args=[1]), True),
    "a call whose name is a number": (lambda trace: call(trace).update(name=5), True),
    "a time that is no number": (lambda trace: call(trace).update(ts=float("nan")), True),
    "a kernel on no device": (lambda trace: kernel(trace)["args"].update(device=-1), True),
    "a kernel on a device that cannot be": (lambda trace: kernel(trace)["args"].update(device=10**20), True),
    "a kernel that never ends": (lambda trace: kernel(trace).update(dur=10**15), False),
}

DATABASE = {
    "a call without a beginning": "update CUPTI_ACTIVITY_KIND_RUNTIME set start = null where rowid = 1",
    "a call without a thread": "update CUPTI_ACTIVITY_KIND_RUNTIME set globalTid = null where rowid = 1",
    "a kernel that begins with text": "update CUPTI_ACTIVITY_KIND_KERNEL set start = 'abc' where rowid = 1",
    "a kernel without a process": "update CUPTI_ACTIVITY_KIND_KERNEL set globalPid = null where rowid = 1",
    "a kernel without a device": "update CUPTI_ACTIVITY_KIND_KERNEL set deviceId = null where rowid = 1",
}

LINES = {
    "blanks before": " " * 3000 + "x\n",
    "blanks within": "x" + " " * 20000 + "x\n",
    "a number without end": "a-1 [001] d.h2. " + "9" * 50000 + ".5: sched_waking: pid=1\n",
}


def main(directory):
    wrong = 0

    def attempt(name, taken, *words):
        nonlocal wrong
        with tempfile.TemporaryDirectory() as into, redirect_stderr(StringIO()) as said:
            recording = Path(into) / "run.jsonl"
            try:
                status = importer.main([*map(str, words), "-o", str(recording)])
                numbers = [line for line in recording.read_text().splitlines() if "NaN" in line] if status == 0 else []
                how = None if (status == 0) == taken and not numbers else f"status {status}: {said.getvalue()}"
                if status and recording.exists():
                    how = "refused, and it left a recording"
            except Exception:
                how = traceback.format_exc()
        if how:
            wrong += 1
            print(f"odd: {name}: {how}", file=sys.stderr)

    log, whole = directory / "loader.perf.txt", json.loads((directory / "loader.json").read_text())
    alone = json.loads((directory / "shared-3000.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "odd.json"
        for name, (change, taken) in TRACES.items():
            trace = copy.deepcopy(whole if taken else alone)
            change(trace)
            path.write_text(json.dumps(trace))
            attempt(name, taken, *([log, path, "--wall-minus-log", AHEAD] if taken else ["-", path]))
        path.write_text("[" * 200_000)
        attempt("brackets without end", False, log, path)
        for name, change in DATABASE.items():
            path = Path(scratch) / "odd#?.sqlite"
            shutil.copy(directory / "launch.sqlite", path)
            with sqlite3.connect(path) as file:
                file.execute(change)
            file.close()
            attempt(name, True, "-", path)
        for name, line in LINES.items():
            path = Path(scratch) / "odd.txt"
            path.write_text(log.read_text() + line)
            attempt(name, True, path, directory / "loader.json", "--wall-minus-log", AHEAD)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
