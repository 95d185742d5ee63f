"""The study's result as tables of a document."""

import json
import statistics
from collections import defaultdict

BEGIN, END = "<!-- accuracy: generated -->", "<!-- accuracy: end -->"


def read(path):
    """The study's head and its runs."""
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return lines[0]["study"], lines[1:]


def spread(values):
    """Mean, with least and greatest where they differ."""
    low, high = min(values), max(values)
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if high - low < 0.05 else f"{mean:.1f} ({low:.1f} … {high:.1f})"


def rows(runs):
    """By scenario, pod and cause: truths, measured values, errors."""
    found = defaultdict(lambda: {"truth": [], "measured": [], "error": []})
    for run in runs:
        for verdict in run.get("verdicts", []):
            for row in verdict["causes"]:
                at = found[run["scenario"], verdict["pod"], row["cause"]]
                for key in at:
                    at[key].append(row[key])
    return found


def leaders(runs):
    """By scenario and pod: how often a leading cause was to be found, and how often the right one was."""
    found = defaultdict(lambda: [0, 0])
    for run in runs:
        for verdict in run.get("verdicts", []):
            right = verdict.get("leader", {}).get("right")
            if right is not None:
                found[run["scenario"], verdict["pod"]][0] += 1
                found[run["scenario"], verdict["pod"]][1] += right
    return found


def table(head, runs, titles, limits):
    """The text between the markers."""
    names = list(dict.fromkeys(run["scenario"] for run in runs))
    failed = [run for run in runs if "error" in run]
    wrong = [run for run in runs if "error" in run or any(verdict["faults"] for verdict in run["verdicts"])]
    asked = leaders(runs)
    of, right = (sum(part) for part in zip(*asked.values())) if asked else (0, 0)
    noise = head["noise"]["band_points"]
    text = [
        f"{len(names)} scenarios, {head['repeats']} repeats, seed {head['seed']}, commit `{head['revision']}`, {head['began']}, "
        f"kernel {head['kernel']} on {head['processors']} processors. Points are hundredths of the pod's allocated time.", "",
        f"* Runs that hold every threshold: {len(runs) - len(wrong)} of {len(runs)}. Runs that failed to measure: {len(failed)}.",
        f"* Leading cause right: {right} of {of}.",
        f"* Noise band of the machine (baseline steps, largest less smallest over the median): {noise} points"
        + (" — **above the limit; take the result as inconclusive**." if noise > limits["noise"]["band_points"] else "."),
        f"* Load average of the machine when runs began: {spread([run['load'] for run in runs])}. The noise band is of the time "
        "before the study, when nothing of it ran.", "",
        "## By cause", "",
        "| cause | rows | mean error | mean size of the error | worst | within the threshold |", "|---|---:|---:|---:|---:|---:|",
    ]
    by_cause = defaultdict(list)
    for (_, _, cause), row in rows(runs).items():
        by_cause[cause] += row["error"]
    for cause, errors in sorted(by_cause.items()):
        limit = limits["active_points"] if cause == "active" else limits["cause_points"]
        inside = sum(abs(error) <= limit for error in errors)
        text.append(f"| `{cause}` | {len(errors)} | {statistics.fmean(errors):+.1f} | {statistics.fmean(map(abs, errors)):.1f} "
                    f"| {max(errors, key=abs):+.1f} | {inside} of {len(errors)} |")
    text += ["", "## By scenario", "", "Truth and measured: mean (least … greatest) over the repeats, each with parameters of its own.", "",
             "| scenario | pod | cause | truth | measured | error | leader right |", "|---|---|---|---:|---:|---:|---:|"]
    seen = set()
    for (name, pod, cause), row in rows(runs).items():
        shown = name if name not in seen else ""
        seen.add(name)
        total, correct = asked[name, pod]
        leader = f"{correct} of {total}" if total and cause == "active" else ""
        title = f"`{name}`: {titles.get(name, '')}" if shown else ""
        text.append(f"| {title} | {pod} | `{cause}` | {spread(row['truth'])} | {spread(row['measured'])} | {spread(row['error'])} | {leader} |")
    if failed:
        text += ["", "Runs without a measurement:", ""]
        text += [f"* `{run['scenario']}`, repeat {run['repeat']}: {run['error'].splitlines()[0]}" for run in failed]
    return "\n".join(text)


def put(document, text):
    """Replaces what is between the markers of a document."""
    old = document.read_text()
    before, rest = old.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
