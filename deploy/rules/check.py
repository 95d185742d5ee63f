#!/usr/bin/env python3
"""Checks of names: one line of complaint each, and the exit status says whether there was any.

* every metric of the rules and of the runbooks' queries is in the frozen catalogue, or is recorded by a rule, or is one
  of kube-state-metrics, cAdvisor or Prometheus named below; so is each label that selects it, and each value of
  `state`, `cause`, `reason` and `source`;
* every alert has a severity, a summary, a description that speaks of money, and a page;
* every page belongs to an alert.

It reads the rules' own shape (`expr: |` blocks), not YAML at large: `promtool check rules` has read them before.

    check.py [--queries FILE]    also writes the runbooks' queries as rules, for promtool to parse
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = {"cluster", "node", "instance", "job"}
FOREIGN = {
    "up": set(),
    "kube_node_status_capacity": {"resource", "unit"},
    "kube_node_labels": {"label_nvidia_com_gpu_present", "label_feature_node_kubernetes_io_pci_10de_present"},
    "kube_pod_labels": {"namespace", "pod", "uid", "label_team", "label_app_kubernetes_io_name", "label_model", "label_environment"},
    "kube_pod_created": {"namespace", "pod", "uid"},
    "kube_pod_owner": {"namespace", "pod", "uid", "owner_kind", "owner_name", "owner_is_controller"},
    "kube_replicaset_owner": {"namespace", "replicaset", "owner_kind", "owner_name", "owner_is_controller"},
    "kube_job_owner": {"namespace", "job_name", "owner_kind", "owner_name", "owner_is_controller"},
    "kube_pod_resourceclaim_info": {"namespace", "pod", "uid", "claim_name", "resourceclaim_name", "resourceclaim_template_name"},
    "kube_pod_status_scheduled": {"namespace", "pod", "uid", "condition"},
    "kube_pod_status_scheduled_time": {"namespace", "pod", "uid"},
    "kube_pod_container_resource_requests": {"namespace", "pod", "uid", "container", "resource", "unit"},
    "kube_job_created": {"namespace", "job_name"},
    "kube_job_status_start_time": {"namespace", "job_name"},
    "kube_job_status_completion_time": {"namespace", "job_name"},
    "kube_job_status_active": {"namespace", "job_name"},
    "kube_resourcequota": {"namespace", "resourcequota", "resource", "type"},
    "kube_horizontalpodautoscaler_info": {"namespace", "horizontalpodautoscaler", "scaletargetref_kind", "scaletargetref_name"},
    "kube_horizontalpodautoscaler_spec_target_metric": {"namespace", "horizontalpodautoscaler", "metric_name", "metric_target_type"},
    "container_cpu_usage_seconds_total": {"namespace", "pod", "container"},
    "container_cpu_cfs_throttled_periods_total": {"namespace", "pod", "container"},
    "container_cpu_cfs_periods_total": {"namespace", "pod", "container"},
    "container_fs_reads_bytes_total": {"namespace", "pod", "container"},
    "container_fs_writes_bytes_total": {"namespace", "pod", "container"},
    "container_network_receive_bytes_total": {"namespace", "pod"},
    "container_network_transmit_bytes_total": {"namespace", "pod"},
    "ALERTS": {"alertname", "alertstate", "severity"},
}
KEYWORDS = set(
    "and or unless on ignoring group_left group_right by without offset bool sum min max avg count group topk bottomk rate increase resets absent time round"
    " clamp_min clamp_max label_replace sort_desc timestamp changes max_over_time min_over_time avg_over_time last_over_time count_over_time sum_over_time vector count_values".split()
)
LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^{}]*)\}")
MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
VALUED = ("state", "cause", "reason", "source")

faults = []


def complain(where, what):
    faults.append(f"{where}: {what}")


def catalogue():
    metrics = {}
    for line in (ROOT / "exporter/catalogue.golden").read_text().splitlines():
        name, _kind, _level, labels = line.split(" ", 3)
        metrics[name] = set(filter(None, labels.strip("{}").replace(" ", "").split(",")))
    return metrics


def known_values():
    values = {label: set() for label in VALUED}
    text = (ROOT / "exporter/exposition.golden").read_text()
    for label in VALUED:
        values[label] = set(re.findall(rf'[{{,]{label}="([^"]*)"', text))
    return values


def blocks(text):
    """(name, kind, expr, annotations) of every rule."""
    for rule in re.split(r"\n(?=  - (?:record|alert): )", text)[1:]:
        kind, name = re.match(r"  - (record|alert): (\S+)", rule).groups()
        block = re.search(r"\n    expr: \|\n((?:      .*\n|\n)+)", rule + "\n")
        expr = block.group(1) if block else re.search(r"\n    expr: (.*)", rule).group(1)
        yield name, kind, expr, rule


def check_query(where, expr, metrics, values):
    bare = expr
    for name, inner in SELECTOR.findall(expr):
        labels = metrics.get(name)
        if labels is None:
            continue
        for label, operator, value in MATCHER.findall(inner):
            if labels and label not in labels | TARGET:
                complain(where, f"{name} has no label {label}")
            if label in VALUED and name.startswith("warpmeter_"):
                options = value.split("|") if operator in ("=~", "!~") else [value]
                for option in options:
                    if option not in values[label]:
                        complain(where, f"no {label} is called {option}")
    everything = set().union(*metrics.values()) | TARGET | set(re.findall(r'count_values[^"]*"(\w+)"', expr))
    for labels in LISTS.findall(expr):
        for label in filter(None, re.split(r"[,\s]+", labels)):
            if label not in everything and label not in ("job_name", "workload_kind"):
                complain(where, f"nothing has a label {label}")
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", bare)
    bare = LISTS.sub(" ", bare)
    bare = re.sub(r"\{[^{}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\boffset\s+\w+", "", bare)
    for name in re.findall(r"(?<![\w:.])[a-zA-Z_:][a-zA-Z0-9_:]*", bare):
        if name not in KEYWORDS and name not in metrics:
            complain(where, f"no metric is called {name}")


def main():
    rules = list(blocks((HERE / "warpmeter.rules.yaml").read_text()))
    metrics = catalogue() | FOREIGN
    for name, kind, _expr, _rule in rules:
        if kind == "record":
            metrics[name] = set()
    values = known_values()
    alerts, queries, checked = set(), [], 0
    for name, kind, expr, rule in rules:
        check_query(name, expr, metrics, values)
        checked += 1
        if kind == "record":
            continue
        alerts.add(name)
        for query in re.findall(r"printf `([^`]*)`", rule):
            filled = query.replace("%s", "x")
            check_query(f"{name}, description", filled, metrics, values)
            queries.append(filled)
            checked += 1
        for what in ("severity: ", "summary: ", "description: ", "runbook_url: "):
            if what not in rule:
                complain(name, f"no {what.strip(' :')}")
        money = re.search(r"per hour|No GPU is watched", rule)
        if not money:
            complain(name, "its description does not say what it costs per hour")
        if f"runbook_url: docs/runbooks/{name}.md\n" not in rule + "\n":
            complain(name, "runbook_url is not that of its page")
    pages = {page.stem: page for page in (ROOT / "docs/runbooks").glob("*.md") if page.stem != "README"}
    for name in sorted(alerts - set(pages)):
        complain(name, "has no page in docs/runbooks")
    for name in sorted(set(pages) - alerts):
        complain(f"docs/runbooks/{name}.md", "belongs to no alert")
    for name, page in sorted(pages.items()):
        text = page.read_text()
        for heading in ("## What it means", "## Check", "## What to do"):
            if heading not in text:
                complain(page.name, f"lacks {heading}")
        found = re.findall(r"```promql\n(.*?)```", text, re.S)
        if not found:
            complain(page.name, "has no query")
        for block in found:
            for query in filter(None, (part.strip() for part in block.split("\n\n"))):
                query = "\n".join(line for line in query.splitlines() if not line.startswith("#"))
                filled = re.sub(r"\$[A-Z]+", "x", query)
                check_query(page.name, filled, metrics, values)
                queries.append(filled)
                checked += 1
    if len(sys.argv) == 3:
        lines = ["groups:", "- name: queries", "  rules:"]
        for index, query in enumerate(queries):
            lines += [f"  - record: query:{index}", "    expr: |", *("      " + line for line in query.splitlines())]
        pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
    for fault in faults:
        print(fault)
    print(f"{checked} expressions, {len(alerts)} alerts, {len(pages)} pages")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
