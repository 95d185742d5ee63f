#!/usr/bin/env python3
"""A training loop: takes a batch from its source, runs a step on its devices, does what comes after. Fixed work.

usage: steps.py CONFIG REPORT

CONFIG is JSON: {"warm_s", "seconds" or "steps", "devices": [...], "device": {...}, "source": {...}, "after": [...]}. After a
warm-up the steps that count begin, for so many seconds or so many of them; then REPORT is written, and the loop goes on
until it is told to end.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device import Device  # noqa: E402
from sources import SOURCES  # noqa: E402
from stages import Chain  # noqa: E402


class Loop:
    """The loop and how long each part of it took, in ns."""

    def __init__(self, config):
        self.devices = [Device(number, **config["device"]) for number in config.get("devices", [0])]
        source = dict(config.get("source", {"kind": "inline"}))
        self.source = SOURCES[source.pop("kind")](**source)
        self.after = Chain(config.get("after", []))
        self.phases = {"source": 0, "device": 0, "after": 0}

    def step(self):
        began = time.monotonic_ns()
        self.source.next()
        got = time.monotonic_ns()
        for device in self.devices:
            if len(self.devices) > 1:
                device.current()
            device.step()
        for device in self.devices:
            device.finish()
        ran = time.monotonic_ns()
        self.after()
        self.phases["source"] += got - began
        self.phases["device"] += ran - got
        self.phases["after"] += time.monotonic_ns() - ran


def main():
    config, report = json.loads(sys.argv[1]), Path(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    loop = Loop(config)
    loop.step()
    warm = time.monotonic() + config.get("warm_s", 2.5)
    while time.monotonic() < warm:
        loop.step()
    loop.phases = dict.fromkeys(loop.phases, 0)
    before = resource.getrusage(resource.RUSAGE_THREAD)
    start = time.monotonic_ns()
    steps, wanted = 0, config.get("steps", 0)
    last = start + int(config.get("seconds", 0) * 1e9)
    while steps < wanted if wanted else time.monotonic_ns() < last:
        loop.step()
        steps += 1
    end = time.monotonic_ns()
    after = resource.getrusage(resource.RUSAGE_THREAD)
    # A reference of its own for how much of it the driving thread computed.
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    account = {"pid": os.getpid(), "start_ns": start, "end_ns": end, "steps": steps, "phases_ns": loop.phases,
               "computed_s": round(computed, 4), "slept": after.ru_nvcsw - before.ru_nvcsw}
    part = report.with_suffix(".part")
    part.write_text(json.dumps(account))
    part.rename(report)
    while True:
        loop.step()


if __name__ == "__main__":
    main()
