#!/usr/bin/env python3
"""Busy seconds per (gpu, mig, process), from a simulated node's oracle log.

Shares no code with anything that it judges: it reads interval records and takes their union.

usage: oracle.py LOG [--names FILE.json] [--from NS] [--until NS] [--json]
FILE.json maps pid to name; processes with the same name are one line. NS are CLOCK_MONOTONIC nanoseconds.
"""

import argparse
import json
import sys
from collections import defaultdict


def union(intervals):
    """Busy ns in (start, end, busy) records: repeated ones count once, overlapping ones as their union."""
    total, reached = 0, None
    for start, end, busy in sorted(set(intervals)):
        if reached is not None and start < reached:
            if end <= reached:
                continue
            busy = busy * (end - reached) // (end - start)
            start = reached
        total += busy
        reached = end
    return total


def clip(start, end, busy, low, high):
    """The part of a record within [low, high]; its gaps are taken as spread evenly."""
    left, right = max(start, low), min(end, high)
    if right <= left:
        return None
    return left, right, busy * (right - left) // (end - start)


def read(path, low=0, high=1 << 63):
    """Records of a log by (gpu, mig, pid). A last line cut short is left out."""
    records = defaultdict(list)
    with open(path) as log:
        for line in log:
            try:
                r = json.loads(line)
            except ValueError:
                continue
            part = clip(r["start_ns"], r["end_ns"], r["busy_ns"], low, high)
            if part:
                records[r["gpu"], r["mig"], r["pid"]].append(part)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--names")
    parser.add_argument("--from", dest="low", type=int, default=0)
    parser.add_argument("--until", dest="high", type=int, default=1 << 63)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = {}
    if args.names:
        with open(args.names) as file:
            names = json.load(file)
    seconds = defaultdict(float)
    for (gpu, mig, pid), intervals in read(args.log, args.low, args.high).items():
        seconds[gpu, mig, names.get(str(pid), pid)] += union(intervals) / 1e9
    rows = sorted(seconds.items(), key=lambda row: tuple(str(part) for part in row[0]))
    if args.json:
        keys = ("gpu", "mig", "process", "seconds")
        json.dump([dict(zip(keys, (*key, busy))) for key, busy in rows], sys.stdout, indent=1)
        print()
        return
    for (gpu, mig, process), busy in rows:
        print(f"{gpu}\t{mig or '-'}\t{process}\t{busy:.6f}")


if __name__ == "__main__":
    main()
