#!/usr/bin/env python3
"""Compares metrics with a truth: `check.py METRICS TRUTH [POINTS]`. Shares of each pod's allocated time, and conservation."""

import json
import re
import sys
from collections import defaultdict

LINE = re.compile(r"(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series(path):
    for line in open(path):
        found = LINE.match(line)
        if found:
            yield found[1], dict(LABEL.findall(found[2])), float(found[3])


def main(metrics, truth, points="1"):
    pods, allocated, elapsed = defaultdict(dict), 0.0, 0.0
    for name, labels, value in series(metrics):
        if name == "warpmeter_pod_gpu_seconds_total":
            state = f'{labels["state"]}/{labels["cause"]}'
            pods[labels["pod"]][state] = pods[labels["pod"]].get(state, 0.0) + value
            allocated += value
        elif name == "warpmeter_gpu_seconds_total":
            elapsed += value
            allocated += value if labels["state"].startswith("unalloc") else 0.0
    failed = []
    if not elapsed or abs(allocated - elapsed) > 1e-6:
        failed.append(f"{allocated} s in the ledgers of {elapsed} s that passed")
    for pod, expected in json.load(open(truth)).items():
        states = pods.get(pod, {})
        whole = sum(states.values())
        for state in sorted(set(states) | set(expected)):
            share, true = states.get(state, 0.0) / whole if whole else 0.0, expected.get(state, 0.0)
            wrong = abs(share - true) * 100 > float(points)
            if share or true:
                print(f"{pod:12} {state:24} {share:7.2%} measured {true:7.2%} true {'WRONG' if wrong else ''}")
            if wrong:
                failed.append(f"{pod}: {state} is {share:.2%} instead of {true:.2%}")
    for problem in failed:
        print(f"check: {problem}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
