"""Truth, measured, error. All shares are points: hundredths of a pod's allocated time."""

import statistics
import tomllib
from pathlib import Path

ACTIVE = "active/none"
LIMITS = tomllib.loads((Path(__file__).resolve().parents[1] / "thresholds.toml").read_text())


def step_ns(run):
    """Mean time of a loop's step."""
    return (run["end_ns"] - run["start_ns"]) / run["steps"]


def share(base, of, less):
    """What a step takes longer in `of` than in `less`, as a share of the time in `base`: the mean over a pod's loops."""
    return statistics.fmean((step_ns(b) - step_ns(c)) / step_ns(a) for a, b, c in zip(base, of, less, strict=True))


def judge(case, ran):
    """Verdicts of a case, one for each pod that it says something about.

    `ran` is by variant and pod: {"runs": accounts of loops, "measured": seconds by cause, "window_s", "busy_s",
    "share": of a device that the pod holds}.
    """
    first = next(iter(case.variants))
    pods = list(dict.fromkeys([cause.pod for cause in case.causes] + [pod for pod, _ in case.definitions]))
    if case.no_stall and "main" not in pods:
        pods.append("main")
    return [_pod(case, ran, first, pod) for pod in pods]


def _pod(case, ran, first, pod):
    full = ran[first][pod]
    allocated = sum(full["measured"].values())
    if not allocated:
        faults = ["the daemon shows no whole window of this pod"]
        return {"pod": pod, "measured": {}, "causes": [], "faults": faults, "leader_faults": faults}
    measured = {cause: 100 * seconds / allocated for cause, seconds in full["measured"].items() if seconds}
    used = full["busy_s"] / full["window_s"]
    active = min(used / full["share"], 1.0)
    # On a shared device what is not used is divided over the causes, and the share is less than the device.
    scale = (1 - active) / (1 - used) if used < 1 else 0.0
    verdict = {"pod": pod, "measured": {cause: round(points, 2) for cause, points in sorted(measured.items())},
               "causes": [], "faults": []}
    definitions = [state for of, state in case.definitions if of == pod]
    if not definitions or case.beside_active:
        _compare(verdict, "active", 100 * active, measured.get(ACTIVE, 0.0), LIMITS["active_points"])
    truths = {}
    for cause in (cause for cause in case.causes if cause.pod == pod):
        truth = share(full["runs"], ran[cause.of][pod]["runs"], ran[cause.less][pod]["runs"])
        truths[cause.names] = 100 * truth * scale
    for names, truth in truths.items():
        got = sum(measured.get(name, 0.0) for name in names)
        _compare(verdict, "+".join(names), truth, got, LIMITS["cause_points"])
    named = {name for names in truths for name in names}
    rest = sum(points for cause, points in measured.items() if cause not in named and cause != ACTIVE)
    if definitions:
        for state in definitions:
            got, truth = measured.get(state, 0.0), 100 - 100 * active if case.beside_active else 100.0
            row = {"cause": state, "truth": round(truth, 2), "measured": round(got, 2), "error": round(got - truth, 2)}
            verdict["causes"].append(row)
            # What may be missing of the whole time may be missing of a part of it, and no more.
            if truth - got > 100 - LIMITS["definition_points"]:
                verdict["faults"].append(f"{state} holds {got:.1f} of {truth:.1f} points")
            rivals = {cause: points for cause, points in measured.items() if not (case.beside_active and cause == ACTIVE)}
            _holds_most(verdict, rivals, state)
        return verdict
    if case.no_stall:
        stalled = sum(points for cause, points in measured.items() if cause != ACTIVE)
        _compare(verdict, "any stall", 100 - 100 * active, stalled, LIMITS["no_stall_points"])
        if stalled >= LIMITS["no_stall_points"]:
            verdict["faults"].append(f"stalls of {stalled:.1f} points where nothing stalls")
        _holds_most(verdict, measured, ACTIVE)
        return verdict
    other = 100 - 100 * active - sum(truths.values())
    _compare(verdict, "other", other, rest, LIMITS["other_points"])
    _leader(verdict, measured, {**{"+".join(names): truth for names, truth in truths.items()}, "other": other})
    return verdict


def _compare(verdict, cause, truth, measured, limit):
    error = measured - truth
    row = {"cause": cause, "truth": round(truth, 2), "measured": round(measured, 2), "error": round(error, 2)}
    verdict["causes"].append(row)
    if abs(error) > limit:
        verdict["faults"].append(f"{cause} is off by {error:+.1f} points")


def _holds_most(verdict, measured, state):
    """Where one state is the right answer by itself: whether another has more than it."""
    seen = max(measured, key=measured.get, default="nothing")
    if seen != state:
        verdict.setdefault("leader_faults", []).append(f"{seen} leads, not {state}")


def _leader(verdict, measured, truths):
    """Which cause leads in truth, if one does clearly, and whether it does as measured."""
    ranked = sorted(truths.items(), key=lambda item: -item[1])
    name, points = ranked[0]
    second = ranked[1][1] if len(ranked) > 1 else 0.0
    stalls = {cause: got for cause, got in measured.items() if cause != ACTIVE}
    seen = max(stalls, key=stalls.get) if stalls else None
    clear = name != "other" and points - second >= LIMITS["lead_points"]
    verdict["leader"] = {"truth": name if clear else None, "measured": seen, "right": None}
    if clear:
        verdict["leader"]["right"] = seen in name.split("+")
        if not verdict["leader"]["right"]:
            fault = f"{seen} leads, not {name}"
            verdict["faults"].append(fault)
            verdict["leader_faults"] = [fault]
