#!/usr/bin/env python3
"""Every query of every dashboard, every choice, and every rule, against a real Prometheus: see test.sh.

    test.py ANSWERS DEMO…      a file for what Prometheus answered, and the command that runs the demo
"""

import copy
import json
import pathlib
import sys
import tempfile
import time

import checks
import parts
from live import Live, tools

# What is asked of each source. Concrete values, not ".*": a label that does not exist would match that.
DEMO = {
    "cluster": "", "namespace": "research|notebooks|serving|batch", "workload": ".*", "node": "demo", "gpu": "GPU-.+",
    "pod": "trainer-busy|trainer-waits|notebook-ada|server|embedder|augmenter|forgotten", "__rate_interval": "8s", "__range": "60s",
}
GOLDEN = {
    "cluster": "golden", "namespace": "team-a", "workload": "nightly|trainer|server", "node": "node-1", "gpu": "GPU-[abcd]",
    "pod": 'trainer-0|server-8|server \\"7\\"', "__rate_interval": "2m", "__range": "1h",
}
# Queries that a healthy demo of one minute answers with nothing, and why. Each has data in the golden source.
EMPTY_IN_DEMO = {
    "annotation alerts": "no alert fires within a minute",
    "Pods under 30 %": "the alert's conditions need an hour of history",
    "XID faults": "no GPU of the demo has a fault",
    "XID faults, since the daemon started": "no GPU of the demo has a fault",
    "Free, against what waits": "nothing waits, and no kube-state-metrics is there",
    "Held by owners that are not pods": "all programs of the demo are pods",
    "What the pods' threads do": "the demo is at level standard",
    "CPU": "no cAdvisor is there",
    "CPU throttled": "no cAdvisor is there",
    "Disk and network": "no cAdvisor is there",
}
faults = []


def complain(where, what):
    faults.append(f"{where}: {what}")


def static():
    queries = checks.check_names(complain)
    panels = checks.check_panels(complain)
    closest = min(checks.check_colours(complain, colours) for colours in (parts.STATES, parts.CLASSES))
    print(f"{queries} queries and choices by name, {panels} panels, states and classes at least {closest:.0f} apart in colour")


def must_notice():
    """The checks of names must be able to fail."""
    real = checks.boards()
    changes = {
        "a metric that does not exist": lambda expr: expr.replace("warpmeter_gpu_up", "warpmeter_gpu_alive"),
        "a label that a metric lacks": lambda expr: expr.replace("warpmeter_source_degraded{cluster", 'warpmeter_source_degraded{origin="x", cluster'),
        "a query of all clusters": lambda expr: expr.replace('warpmeter_gpu_xid_errors_total{cluster=~"$cluster", ', "warpmeter_gpu_xid_errors_total{"),
        "a cause that does not exist": lambda expr: expr.replace("source_lost|conflict", "source_gone|conflict"),
    }
    for what, change in changes.items():
        changed = copy.deepcopy(real)
        for page in changed.values():
            for panel in page["panels"]:
                for target in panel.get("targets") or []:
                    target["expr"] = change(target["expr"])
        noticed = []
        original, checks.boards = checks.boards, lambda: changed
        checks.check_names(lambda where, text: noticed.append(text))
        checks.boards = original
        if not noticed or changed == real:
            complain("the check of names", f"does not notice {what}")


def parsed(live):
    count = 0
    for name, page in checks.boards().items():
        for asked in checks.queries(name, page):
            try:
                live.ask("format_query", query=checks.plain(checks.substitute(asked.expr, DEMO)))
                count += 1
            except ValueError as error:
                complain(asked.where, f"does not parse: {error}")
    print(f"{count} queries parsed")


def check_values(where, asked, found):
    """Shares are from 0 to 1; nothing is negative, of temperatures apart."""
    values = [float(value) for item in found for _, value in item.get("values") or [item["value"]] if value != "NaN"]
    # 5 %: the jitter of scrapes, in rates of a few seconds.
    if asked.unit == "percentunit" and values and max(values) > 1.05:
        complain(where, f"a share of {max(values):.2f}: {asked.expr}")
    if asked.unit != "celsius" and values and min(values) < -1e-6:
        complain(where, f"negative, {min(values)}: {asked.expr}")


def answered(live):
    counts = {"demo": 0, "golden": 0, "both": 0}
    labels, answers = {}, {"demo": [], "golden": []}
    for name, page in checks.boards().items():
        for asked in checks.queries(name, page):
            got, seen = {}, labels.setdefault(asked.where, set())
            for source, values, seconds, step in (("demo", DEMO, 30, 2), ("golden", GOLDEN, 3600, 30)):
                expr = checks.substitute(asked.expr, values)
                try:
                    found = live.ranged(expr, seconds, step) if asked.ranged else live.settled(expr, 1 if source == "demo" and asked.where.split(": ", 1)[1] in EMPTY_IN_DEMO else 5)
                    got[source] = bool(found)
                    answers[source].append({"panel": asked.where, "letter": asked.letter, "series": found})
                    seen.update(label for item in found for label, value in item["metric"].items() if value)
                    check_values(f"{asked.where}, {source}", asked, found)
                    # What a panel shows when it is left as it is: all clusters.
                    live.instant(checks.substitute(asked.expr, values | {"cluster": ".*"}))
                except ValueError as error:
                    complain(asked.where, f"{source}: {error}")
            for label in asked.labels - seen:
                complain(asked.where, f"its legend has {label}, and no series does")
            title = asked.where.split(": ", 1)[1]
            for source in got:
                counts[source] += got[source]
            counts["both"] += all(got.values())
            if not got.get("demo") and title not in EMPTY_IN_DEMO:
                complain(asked.where, f"the demo has no data for {asked.expr}")
            if not got.get("golden"):
                complain(asked.where, f"the golden source has no data for {asked.expr}")
        for title, wanted, sorts, headings in checks.columns(page):
            for label in wanted - labels[f"{name}: {title}"]:
                complain(f"{name}: {title}", f"its column {label} is empty")
            for field in sorts - headings:
                complain(f"{name}: {title}", f"is sorted by {field}, which it does not have")
        for variable, selector, label in checks.choices(page):
            values = live.values(checks.substitute(selector, GOLDEN), label)
            if not values:
                complain(f"{name}: ${variable}", f"nothing to choose: {selector}, {label}")
            if variable != "cluster" and variable != "workload" and not live.values(checks.substitute(selector, DEMO), label):
                complain(f"{name}: ${variable}", f"nothing to choose in the demo: {selector}, {label}")
    empty = {title for title in EMPTY_IN_DEMO if not any(asked.where.endswith(f": {title}") for name, page in checks.boards().items() for asked in checks.queries(name, page))}
    for title in empty:
        complain("EMPTY_IN_DEMO", f"no panel is called {title}")
    pathlib.Path(sys.argv[1]).write_text(json.dumps(answers))
    print(f"queries with data: {counts['demo']} of the demo, {counts['golden']} of the golden source, {counts['both']} of both")


def rules(live):
    groups = live.ask("rules")["groups"]
    count, demo, golden = 0, 0, 0
    for group in groups:
        for rule in group["rules"]:
            count += 1
            if rule["health"] != "ok" or rule.get("lastError"):
                complain(f"rule {rule['name']}", rule.get("lastError") or rule["health"])
            if rule["type"] != "recording":
                continue
            here = {source: bool(live.instant(f'{rule["name"]}{{cluster="{cluster}"}}')) for source, cluster in (("demo", ""), ("golden", "golden"))}
            demo, golden = demo + here["demo"], golden + here["golden"]
            if not here["golden"] and not live.settled(f'{rule["name"]}{{cluster="golden"}}'):
                complain(f"rule {rule['name']}", "has no series")
    print(f"{count} rules evaluated; recorded series exist of {demo} rules for the demo, of {golden} for the golden source")


def worked(live):
    """The page of joins: the golden source has kube-state-metrics and cAdvisor beside it."""
    queries = list(checks.worked())
    for query in queries:
        try:
            if not live.settled(query):
                complain("docs/joins.md", f"no data for {query}")
        except ValueError as error:
            complain("docs/joins.md", f"{error}: {query}")
    print(f"{len(queries)} queries of docs/joins.md answered")


def sums(live):
    """What the panels say of the demo, against what it is: three GPUs at 2.95 an hour."""
    for where, title, wanted in (("fleet", "GPU time by state", 3), ("fleet", "Cost per hour by state", 3 * 2.95), ("fleet", "GPUs that can be read", 3), ("fleet", "Cost per hour", 3 * 2.95), ("workload", "Held", 0)):
        page = checks.boards()[where]
        expr = next(asked.expr for asked in checks.queries(where, page) if asked.where == f"{where}: {title}")
        value = sum(float(item["value"][1]) for item in live.instant(checks.substitute(expr, DEMO)))
        if title == "Held":
            wanted = sum(float(item["value"][1]) for item in live.instant('sum(warpmeter_pod_allocated_gpus{node="demo"})'))
        if abs(value - wanted) > 0.05 * wanted:
            complain(f"{where}: {title}", f"shows {value:.3f} of the demo, which is {wanted:.3f}")
    bars = [float(live.instant(checks.substitute(asked.expr, DEMO))[0]["value"][1]) for asked in checks.queries("workload", checks.boards()["workload"]) if asked.where.startswith("workload: GPU time: held")]
    if bars[0] < max(bars[1], bars[3]) or bars[3] < bars[4] or bars[2] < bars[3]:
        complain("workload: the waterfall", f"does not fall: {bars}")


def main():
    tools()
    static()
    must_notice()
    with tempfile.TemporaryDirectory() as home, Live(sys.argv[2:], home) as live:
        parsed(live)
        ready = "count(count_over_time(warpmeter_pod_gpu_seconds_total{node=\"demo\", cause=\"none\"}[2m]) > 30) == 7"
        live.wait("the demo has been scraped for a minute, with all its pods", lambda: live.instant(ready), 180)
        live.wait("rules have been evaluated twice since", lambda beginning=time.time(): time.time() > beginning + 12, 30)
        answered(live)
        sums(live)
        worked(live)
        rules(live)
    for fault in faults:
        print("FAILED", fault)
    print(f"{len(faults)} failed")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
