"""The study's result as tables of a document."""

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from bench.judge import ACTIVE
from bench.scenario import Scenario

BEGIN, END = "<!-- accuracy: generated -->", "<!-- accuracy: end -->"

# Rows of a verdict that name no cause: the device's log, and what is left of all others' errors.
UNNAMED = ("active", "any stall", "other")

# Points that a table with one decimal shows.
SHOWN = 0.05


def read(path):
    """The study's head and its runs. A last line that was cut short, as where a study was ended, is left out."""
    with open(path) as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    if not lines:
        raise ValueError(f"{path} holds no result: the study did not begin")
    return lines[0]["study"], lines[1:]


def progress(head, runs):
    """How many runs there are, of how many there should be."""
    # A head that does not name its scenarios is of a study that has begun all of them.
    names = head.get("scenarios") or {run["scenario"] for run in runs}
    return len({(run["scenario"], run["repeat"]) for run in runs}), len(names) * head["repeats"]


@dataclass
class Row:
    """One cause in one pod of a scenario: a value for each run, in points."""

    scenario: Scenario
    pod: str
    cause: str
    truth: list = field(default_factory=list)
    measured: list = field(default_factory=list)
    error: list = field(default_factory=list)
    # What the loops' own account gives it, where that shows it.
    account: list = field(default_factory=list)

    def defined(self):
        """Whether it holds by definition."""
        return self.scenario.truth == "definition" and self.cause not in UNNAMED


def verdicts(runs):
    """Each verdict, with its run."""
    return [(run, verdict) for run in runs for verdict in run.get("verdicts", [])]


def known(scenarios, name):
    """A scenario; one that is no more is taken to have been compared with a removal."""
    return scenarios.get(name) or Scenario(name, "", None)


def named(verdict):
    """The causes that a scenario names in a pod."""
    return {part for row in verdict["causes"] if row["cause"] not in UNNAMED for part in row["cause"].split("+")}


def account(run, pod, phase):
    """The share of its time that a pod's loops spent in a phase, by their own clocks, in points."""
    first = next(iter(run["ran"].values()))
    shares = [loop["phases_ns"][phase] / (loop["end_ns"] - loop["start_ns"]) for loop in first[pod]["runs"]]
    return 100 * statistics.fmean(shares)


def rows(runs, scenarios):
    """By scenario, pod and cause, in the order of the runs."""
    found = {}
    for run, verdict in verdicts(runs):
        scenario = known(scenarios, run["scenario"])
        for one in verdict["causes"]:
            key = run["scenario"], verdict["pod"], one["cause"]
            row = found.setdefault(key, Row(scenario, *key[1:]))
            row.truth.append(one["truth"])
            row.measured.append(one["measured"])
            row.error.append(one["error"])
            if scenario.phase and one["cause"] not in UNNAMED:
                row.account.append(account(run, verdict["pod"], scenario.phase))
    return list(found.values())


def leaders(runs):
    """By scenario and pod: how often a leading cause was to be found, and how often the right one was."""
    found = defaultdict(lambda: [0, 0])
    for run, verdict in verdicts(runs):
        right = verdict.get("leader", {}).get("right")
        if right is not None:
            found[run["scenario"], verdict["pod"]][0] += 1
            found[run["scenario"], verdict["pod"]][1] += right
    return found


def held(runs):
    """How many runs hold every threshold."""
    return sum("error" not in run and not any(verdict["faults"] for verdict in run["verdicts"]) for run in runs)


def claimed(runs):
    """By cause that some run has: its points, and the scenario, of each run whose scenario does not name it."""
    causes = {cause for _, verdict in verdicts(runs) for cause in verdict["measured"]} - {ACTIVE}
    found = defaultdict(list)
    for run, verdict in verdicts(runs):
        for cause in causes - named(verdict) if verdict["measured"] else ():
            found[cause].append((verdict["measured"].get(cause, 0.0), run["scenario"]))
    return {cause: of for cause, of in found.items() if max(of)[0] >= SHOWN}


def when(head):
    """When the study began, or each part of it."""
    parts = [part["began"] for part in head.get("parts", ())]
    return f"in parts that began {', '.join(parts)}" if parts else head["began"]


def span(values):
    """Mean, with least and greatest where they differ."""
    low, high = min(values), max(values)
    mean = statistics.fmean(values)
    return f"{mean:z.1f}" if high - low < 0.05 else f"{mean:z.1f} ({low:z.1f} … {high:z.1f})"


def deviation(values):
    """The standard deviation of a sample; `None` of a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def points(value):
    return "–" if value is None else f"{value:z.1f}"


def table(head, runs, scenarios, limits):
    """The text between the markers."""
    found = rows(runs, scenarios)
    text = heading(head, runs, scenarios, limits, found)
    text += by_cause([row for row in found if not row.defined()], limits)
    text += not_named(claimed(runs))
    text += by_definition([row for row in found if row.defined()])
    text += by_scenario(head, runs, found)
    failed = [run for run in runs if "error" in run]
    if failed:
        text += ["", "Runs without a measurement:", ""]
        text += [f"* `{run['scenario']}`, repeat {run['repeat']}: {run['error'].splitlines()[0]}" for run in failed]
    return "\n".join(text)


def heading(head, runs, scenarios, limits, found):
    """What was run on what, and how much of it holds."""
    done, planned = progress(head, runs)
    kinds = {kind: [run for run in runs if known(scenarios, run["scenario"]).truth == kind]
             for kind in ("removal", "log", "definition")}
    hold = {kind: f"{held(of)} of {len(of)}" for kind, of in kinds.items()}
    asked = leaders(kinds["removal"])
    of, right = (sum(part) for part in zip(*asked.values())) if asked else (0, 0)
    noise = head["noise"]["band_points"]
    # An older head does not say how long a run is.
    length = f", {head['seconds']:g} s of steps each" if "seconds" in head else ""
    text = [
        f"{len({run['scenario'] for run in runs})} scenarios, {head['repeats']} repeats{length}, seed {head['seed']}, commit "
        f"`{head['revision']}`, {when(head)}, kernel {head['kernel']} on {head['processors']} processors. "
        "Points are hundredths of the pod's allocated time.", "",
    ]
    if done < planned:
        text += [f"**This study is partial: {done} of {planned} runs. Everything below is of these alone.**", ""]
    text += [
        f"* Runs: {done} of {planned}, of which {sum('error' in run for run in runs)} failed to measure.",
        f"* Runs that hold every threshold: {hold['removal']} with a counterfactual truth, {hold['log']} where nothing stalls by "
        f"the device's log, {hold['definition']} by definition.",
        f"* Leading cause right, where a removal says which one leads: {right} of {of}.",
        f"* Noise band of the machine (baseline steps, largest less smallest over the median): {noise} points"
        + (" — **above the limit; take the result as inconclusive**." if noise > limits["noise"]["band_points"] else "."),
    ]
    if runs:
        text.append(f"* Load average of the machine when runs began: {span([run['load'] for run in runs])}. The noise band is of "
                    "the time before the study, when nothing of it ran.")
    off = [(own - truth, row.scenario.name) for row in found for own, truth in zip(row.account, row.truth)]
    if off:
        worst, name = max(off, key=lambda one: abs(one[0]))
        text.append("* The loops' own accounts of their phases, a second reference, differ from the truth by "
                    f"{statistics.fmean(abs(one) for one, _ in off):z.1f} points in the mean, at most by {worst:+z.1f} (`{name}`).")
    return text


def by_cause(found, limits):
    """Of each cause: truth, measured, error and how that spreads."""
    text = [
        "", "## By cause", "",
        "One row is one pod of one run whose scenario names the cause. The error's spread is its standard deviation: over all "
        "rows, and over the repeats of a scenario, as the mean of the scenarios. What holds by definition is further below.", "",
        "| cause | rows | truth | measured | error | its size | spread | over repeats | worst | within the threshold |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    causes = defaultdict(list)
    for row in found:
        if row.cause != "other":
            causes[row.cause].append(row)
    for cause, of in sorted(causes.items()):
        errors = [error for row in of for error in row.error]
        own = [spread for row in of if (spread := deviation(row.error)) is not None]
        limit = limits["active_points" if cause == "active" else "cause_points"]
        mean = lambda key: statistics.fmean(value for row in of for value in getattr(row, key))
        text.append(
            f"| `{cause}` | {len(errors)} | {mean('truth'):z.1f} | {mean('measured'):z.1f} | {mean('error'):+z.1f} "
            f"| {statistics.fmean(map(abs, errors)):z.1f} | {points(deviation(errors))} "
            f"| {points(statistics.fmean(own) if own else None)} | {max(errors, key=abs):+z.1f} "
            f"| {sum(abs(error) <= limit for error in errors)} of {len(errors)} |")
    return text


def not_named(found):
    """What was claimed where the scenario does not name it."""
    text = ["", "## Claimed where it was not", "",
            "Points of a cause in pods whose scenario does not name it: the mean over all of those runs, and the worst one. Some of "
            "it is there, such as what a loop computes by itself.", "",
            "| cause | rows | mean | worst | in |", "|---|---:|---:|---:|---|"]
    for cause, of in sorted(found.items(), key=lambda item: (-statistics.fmean(got for got, _ in item[1]), item[0])):
        worst, name = max(of)
        text.append(f"| `{cause}` | {len(of)} | {statistics.fmean(got for got, _ in of):z.1f} | {worst:z.1f} | `{name}` |")
    return text


def by_definition(found):
    """What holds by definition."""
    text = ["", "## By definition", "",
            "| cause | scenario | runs | truth | measured | error |", "|---|---|---:|---:|---:|---:|"]
    return text + [f"| `{row.cause}` | `{row.scenario.name}` | {len(row.error)} | {span(row.truth)} | {span(row.measured)} "
                   f"| {span(row.error)} |" for row in found] if found else []


def by_scenario(head, runs, found):
    """Of each scenario and pod."""
    text = [
        "", "## By scenario", "",
        "Truth and measured: mean (least … greatest) over the repeats, each with parameters of its own. The loop's account is the "
        "share of its time that it spent, by its own clock, in the phase that the cause holds up; it is there where that is one "
        "phase of one cause. `other` is what no removal explains.", "",
        "| scenario | runs | pod | cause | truth | measured | error | loop's account | leader right |",
        "|---|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    measured = defaultdict(set)
    for run, _ in verdicts(runs):
        measured[run["scenario"]].add(run["repeat"])
    asked, seen = leaders(runs), set()
    for row in found:
        name, title, runs_of = row.scenario.name, "", ""
        if name not in seen:
            seen.add(name)
            title, runs_of = f"`{name}`: {row.scenario.title}", f"{len(measured[name])} of {head['repeats']}"
        total, right = asked[name, row.pod]
        leader = f"{right} of {total}" if total and row.cause == "active" else ""
        text.append(f"| {title} | {runs_of} | {row.pod} | `{row.cause}` | {span(row.truth)} | {span(row.measured)} "
                    f"| {span(row.error)} | {span(row.account) if row.account else ''} | {leader} |")
    return text


def put(document, text):
    """Replaces what is between the markers of a document."""
    old = document.read_text()
    before, rest = old.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
