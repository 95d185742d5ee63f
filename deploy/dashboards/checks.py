"""What can be said of the dashboards and rules without running anything: names, labels, units, words, colours."""

import importlib.util
import itertools
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("fleet", "workload", "health")


def rules_check():
    """The checks of names that the rules have."""
    path = HERE.parent / "rules/check.py"
    spec = importlib.util.spec_from_file_location("check", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def boards():
    return {name: json.loads((HERE / f"{name}.json").read_text()) for name in NAMES}


class Asked:
    """A query of a dashboard, as it is written there."""

    def __init__(self, board, panel, expr, ranged, unit="", labels=(), letter=""):
        self.where = f"{board}: {panel}"
        self.expr, self.ranged, self.unit, self.labels, self.letter = expr, ranged, unit, set(labels), letter


def queries(board, page):
    found = [Asked(board, f"annotation {item['name']}", item["expr"], True) for item in page["annotations"]["list"]]
    for panel in page["panels"]:
        for target in panel.get("targets") or []:
            unit = panel["fieldConfig"]["defaults"].get("unit", "")
            if panel["type"] == "table":
                unit = column_unit(panel, target["refId"])
            found.append(Asked(board, panel["title"], target["expr"], bool(target.get("range")), unit, re.findall(r"{{(\w+)}}", target["legendFormat"]), target["refId"]))
    return found


def organised(panel):
    return next(step["options"] for step in panel["transformations"] if step["id"] == "organize")


def column_unit(panel, letter):
    heading = next((heading for value, heading in organised(panel)["renameByName"].items() if value in ("Value", f"Value #{letter}")), None)
    return next((item["value"] for override in panel["fieldConfig"]["overrides"] if override["matcher"]["options"] == heading for item in override["properties"] if item["id"] == "unit"), "")


def hidden(panel, letter):
    return any(name in organised(panel)["excludeByName"] for name in (f"Value #{letter}",))


def columns(page):
    """(title, headings that come from labels, headings that rows are sorted by or linked from, headings of values) of every table."""
    for panel in page["panels"]:
        if panel["type"] == "table":
            steps = organised(panel)
            labels = {name for name in steps["indexByName"] if not name.startswith("Value")}
            sorts = {item["field"] for step in panel["transformations"] if step["id"] == "sortBy" for item in step["options"]["sort"]}
            yield panel["title"], labels, sorts, set(steps["renameByName"].values())


def choices(page):
    """(variable, metric selector, label) of every `label_values`."""
    for variable in page["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], *re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()


def worked():
    """The queries of docs/joins.md: blocks of promql, with empty lines between."""
    for block in re.findall(r"```promql\n(.*?)```", (HERE.parents[1] / "docs/joins.md").read_text(), re.S):
        yield from (query for query in block.strip().split("\n\n") if query)


def substitute(expr, values):
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    return expr


def plain(expr):
    return substitute(expr, {"__rate_interval": "1m", "__range": "1h"})


def check_names(complain):
    check = rules_check()
    rules = list(check.blocks((HERE.parent / "rules/warpmeter.rules.yaml").read_text()))
    recorded = {name for name, kind, *_ in rules if kind == "record"}
    metrics = check.catalogue() | check.FOREIGN | {name: set() for name in recorded}
    values = check.known_values()
    check.complain = complain
    count = 0
    for query in worked():
        check.check_query("docs/joins.md", query, metrics, values)
        count += 1
    page = (HERE.parents[1] / "docs/joins.md").read_text()
    for name in re.findall(r"`((?:\w+:warpmeter|kube|container)_[\w:]+)`", page):
        if name not in metrics:
            complain("docs/joins.md", f"no rule or metric is called {name}")
    for name, page in boards().items():
        for asked in queries(name, page):
            check.check_query(asked.where, plain(asked.expr), metrics, values)
            count += 1
            # Every selector has the cluster: what a query adds up must be of the clusters that were chosen.
            bare = re.sub(r'"[^"]*"', '""', asked.expr)
            selectors = re.findall(r"([a-zA-Z_:][\w:]*)\{([^{}]*)\}", asked.expr)
            named = re.findall(r"(?<![\w:$.])((?:\w+:)?warpmeter_[\w:]+|ALERTS|up)(?![\w:])", bare)
            if len(selectors) < len(named):
                complain(asked.where, "a metric without a selector")
            for metric, inner in selectors:
                if 'cluster=~"$cluster"' not in inner:
                    complain(asked.where, f"{metric} is not narrowed to $cluster")
        for variable, selector, label in choices(page):
            check.check_query(f"{name}: ${variable}", selector, metrics, values)
            metric = selector.split("{")[0]
            if metrics[metric] and label not in metrics[metric] | check.TARGET:
                complain(f"{name}: ${variable}", f"{metric} has no label {label}")
            count += 1
    return count


UNITLESS = {"none", "short", "bool_yes_no"}


def check_panels(complain):
    colours, count, uids = {}, 0, set()
    for name, page in boards().items():
        if page["uid"] in uids or not page["uid"].startswith("warpmeter-"):
            complain(name, "uid")
        uids.add(page["uid"])
        if [variable["name"] for variable in page["templating"]["list"]][:2] != ["datasource", "cluster"]:
            complain(name, "its first choices are not datasource and cluster")
        cluster = page["templating"]["list"][1]
        if (cluster.get("allValue"), cluster["current"]["value"]) != (".*", ["$__all"]):
            complain(name, "the choice of clusters leaves out what has no such label")
        titles = [panel["title"] for panel in page["panels"] if panel["type"] != "row"]
        for title in {title for title in titles if titles.count(title) > 1}:
            complain(name, f"two panels are called {title}")
        filled = {}
        for panel in page["panels"]:
            place = panel["gridPos"]
            for x, y in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])):
                if x >= 24 or (x, y) in filled:
                    complain(f"{name}: {panel['title']}", f"overlaps {filled.get((x, y), 'the edge')}")
                    break
                filled[x, y] = panel["title"]
            if panel["type"] == "row":
                continue
            count += 1
            where = f"{name}: {panel['title']}"
            text = panel.get("description", "")
            if len(text) < 10 or not text.endswith("."):
                complain(where, "no description")
            if not panel["targets"] or panel["datasource"]["uid"] != "${datasource}":
                complain(where, "no query, or a data source of its own")
            unit = panel["fieldConfig"]["defaults"].get("unit")
            if panel["type"] == "table":
                unit = unit is None and all(column_unit(panel, target["refId"]) for target in panel["targets"] if not hidden(panel, target["refId"]))
            if not unit:
                complain(where, "no unit, or one for labels")
            if unit == "percentunit" and "/" not in "".join(target["expr"] for target in panel["targets"]) and not re.search("ratio|seconds_total", str(panel["targets"])):
                complain(where, "a share that divides nothing")
            if "cost" in "".join(target["expr"] for target in panel["targets"]):
                signs = {code["value"] for override in panel["fieldConfig"]["overrides"] for code in override["properties"] if code["id"] == "unit"}
                if panel["type"] != "table" and "currencyUSD" not in signs:
                    complain(where, "money without a currency")
            for override in panel["fieldConfig"]["overrides"]:
                for item in override["properties"]:
                    if item["id"] == "color":
                        key = override["matcher"]["options"]
                        if colours.setdefault(key, item["value"]["fixedColor"]) != item["value"]["fixedColor"]:
                            complain(where, f"{key} has another colour elsewhere")
    return count


def linear(colour):
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]


# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def lab(rgb):
    x = [sum(a * b for a, b in zip(line, rgb)) for line in ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))]
    f = [value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (max(x[0], 0) / 0.95047, max(x[1], 0), max(x[2], 0) / 1.08883)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def check_colours(complain, states, least=20.0):
    """States stay apart (CIE76) under each kind of colour blindness: 20 is far more than is just seen (2.3)."""
    closest = 1e9
    for kind, matrix in BLINDNESS.items():
        seen = {name: lab([min(max(sum(a * b for a, b in zip(line, linear(colour))), 0), 1) for line in matrix]) for name, colour in states.items()}
        for (one, first), (other, second) in itertools.combinations(seen.items(), 2):
            distance = sum((a - b) ** 2 for a, b in zip(first, second)) ** 0.5
            closest = min(closest, distance)
            if distance < least:
                complain("colours", f"{one} and {other} are {distance:.0f} apart with {kind}")
    return closest

