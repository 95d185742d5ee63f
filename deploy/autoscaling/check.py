#!/usr/bin/env python3
"""Checks the samples: Kubernetes' schema, the adapter's templates expanded as it expands them, and what each query
answers, evaluated by promtool. Prints one line per failure and, at the end, `N passed, N failed`."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
passed, failures = 0, []


def check(name, holds, why=""):
    global passed
    if holds:
        passed += 1
    else:
        failures.append(f"{name}: {why}")


def load(name):
    return yaml.safe_load((HERE / name).read_text())


def expand(rule, namespace, pods):
    """A rule's query for these pods, as the adapter fills in its template."""
    series = re.match(r"[A-Za-z_:][A-Za-z0-9_:]*", rule["seriesQuery"]).group()
    label = {resource["resource"]: label for label, resource in rule["resources"]["overrides"].items()}
    matchers = f'{label["namespace"]}="{namespace}",{label["pod"]}=~"{"|".join(pods)}"'
    query = rule["metricsQuery"]
    for name, value in [("Series", series), ("LabelMatchers", matchers), ("GroupBy", label["pod"])]:
        query = query.replace(f"<<.{name}>>", value)
    return query


def evaluated(cases):
    """Runs cases of (name, series, query, samples at 2 m) by promtool."""
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": series, "values": f"{values}x20"} for series, values in given],
            "promql_expr_test": [
                {
                    "expr": query,
                    "eval_time": "2m",
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in wanted],
                }
            ],
        }
        for _, given, query, wanted in cases
    ]
    for (name, *_), test in zip(cases, tests):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"rule_files": [], "tests": [test]}, file)
            file.flush()
            run = subprocess.run(["promtool", "test", "rules", file.name], capture_output=True, text=True)
        check(name, run.returncode == 0, run.stdout + run.stderr)


adapter = load("prometheus-adapter.values.yaml")["rules"]["custom"]
hpa = load("hpa.yaml")
scaled = load("keda-scaledobject.yaml")

try:
    kubernetes_validate.validate(hpa, kubernetes_validate.latest_version(), strict=True)
    check("hpa.yaml follows the schema", True)
except kubernetes_validate.ValidationError as error:
    check("hpa.yaml follows the schema", False, str(error))

served = {rule["name"]["as"] for rule in adapter}
read = {metric["pods"]["metric"]["name"] for metric in hpa["spec"]["metrics"]}
check("the autoscaler reads what the adapter serves", read == served, f"{read} {served}")
for rule in adapter:
    check(f"{rule['name']['as']}: the rule's name matches its series", re.match(
        rule["name"]["matches"], rule["seriesQuery"].split("{")[0]))
    left = re.findall(r"<<[^>]*>>", expand(rule, "n", ["p"]))
    check(f"{rule['name']['as']}: no template is left", not left, str(left))
for trigger in scaled["spec"]["triggers"]:
    metadata = trigger["metadata"]
    check("an absent value is not a zero", metadata["ignoreNullValues"] == "false", str(metadata))
    check("values are texts", all(isinstance(value, str) for value in metadata.values()), str(metadata))

queue, ratio = (expand(rule, "serving", ["llm-1", "llm-2"]) for rule in adapter)
waiting, busy = (trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])


def utilization(pod, value, namespace="serving"):
    return f'warpmeter_pod_gpu_utilization_ratio{{namespace="{namespace}",pod="{pod}",pod_uid="{pod}"}}', value


def info(pod):
    return f'warpmeter_pod_info{{namespace="serving",pod="{pod}",pod_uid="{pod}"}}', "1"


def replicas(number):
    return 'kube_deployment_status_replicas{namespace="serving",deployment="llm"}', str(number)


def depth(pod, value):
    return f'vllm:num_requests_waiting{{namespace="serving",pod="{pod}",engine="0"}}', value


PODS = [("{pod=\"llm-1\"}", 0.5), ("{pod=\"llm-2\"}", 0.25)]
evaluated(
    [
        ("the queue of each pod", [depth("llm-1", "3"), depth("llm-2", "5"), depth("other", "9")], queue,
         [("{pod=\"llm-1\"}", 3), ("{pod=\"llm-2\"}", 5)]),
        ("the ratio of each pod", [utilization("llm-1", "0.5"), utilization("llm-2", "0.25")], ratio, PODS),
        ("a pod of the same name elsewhere", [utilization("llm-1", "0.5"), utilization("llm-2", "0.25"),
                                              utilization("llm-1", "0.9", "staging")], ratio, PODS),
        ("an unknown ratio is absent, not 0", [utilization("llm-1", "0.5")], ratio, PODS[:1]),
        ("requests at the gateway", [('gateway_requests_waiting{namespace="serving",service="llm",zone="a"}', "3"),
                                     ('gateway_requests_waiting{namespace="serving",service="llm",zone="b"}', "4")],
         waiting, [("{}", 7)]),
        ("no gateway is no answer", [], waiting, []),
        ("work in progress", [utilization("llm-1", "0.5"), utilization("llm-2", "0.25"), info("llm-1"), info("llm-2"),
                              replicas(2)], busy, [("{}", 0.75)]),
        ("one unknown pod makes the sum unknown", [utilization("llm-1", "0.5"), info("llm-1"), info("llm-2"),
                                                   replicas(2)], busy, []),
        ("nothing known is no answer", [replicas(2)], busy, []),
        ("no replica does no work", [replicas(0)], busy, [("{}", 0)]),
    ]
)

print(json.dumps(failures, indent=1) if failures else "", end="\n" if failures else "")
print(f"{passed} passed, {len(failures)} failed")
sys.exit(bool(failures))
