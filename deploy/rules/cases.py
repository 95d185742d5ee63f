#!/usr/bin/env python3
"""The cases of the rules: writes one promtool test file each into the directory given.

A case is a simulated fleet and, at some times, exactly which alerts fire: any other that fires fails the case.
Samples are 30 s apart; a time is in minutes. Only the standard library is needed: JSON is YAML.
"""

import json
import pathlib
import sys

STEP = 0.5
CASES = []


def text(value):
    return f"{value:.10g}"


class Life:
    """When something is seen: from `born` until `dies`, except in `gap`; its daemon restarts at `restart` (minutes).

    A scrape that fails leaves a mark of staleness at once; with `marked=False`, Prometheus itself was away: nothing.
    """

    def __init__(self, until=90, born=0, dies=None, gap=None, restart=None, marked=True, step=STEP):
        self.until, self.born, self.dies, self.gap, self.restart = until, born, dies, gap, restart
        self.marked, self.step = marked, step

    def values(self, sample):
        parts, seen = [], False
        for index in range(int(self.until / self.step) + 1):
            at = index * self.step
            gone = self.dies is not None and at >= self.dies
            hidden = self.gap is not None and self.gap[0] <= at < self.gap[1]
            value = None if at < self.born or gone or hidden else sample(at)
            if value is None:
                parts.append("stale" if seen and self.marked else "_")
                seen = False
            else:
                parts.append(text(value))
                seen = True
        return " ".join(parts)

    def counter(self, rate, born=None):
        def sample(at):
            since = self.restart if self.restart is not None and at >= self.restart else max(self.born, born or 0)
            return None if born is not None and at < born else (at - since) * 60 * rate

        return self.values(sample)

    def gauge(self, value):
        return self.values(value if callable(value) else lambda at: value)


def series(metric, labels, values):
    inner = ",".join(f'{key}="{value}"' for key, value in labels.items() if value is not None)
    return {"series": f"{metric}{{{inner}}}", "values": values}


def target(node="n1", cluster="c1"):
    return {"cluster": cluster, "node": node, "instance": node, "job": "warpmeter"}


CAUSES = ["disk_read", "disk_write", "network", "cpu", "cpu_wait", "memory", "lock", "transfer", "launch", "sync", "contended"]
PAIRS = (
    [("active", "none")]
    + [("stalled", cause) for cause in CAUSES]
    + [("idle", cause) for cause in ("no_process", "initializing", "model_load", "no_work")]
    + [("unknown", cause) for cause in ("no_evidence", "source_lost", "conflict")]
)


def daemon(life=None, node="n1", cluster="c1", nvidia=1, error=0, up=None):
    """What the daemon of a node says of itself."""
    life = life or Life()
    own = target(node, cluster)
    found = [
        series("up", own, Life(life.until, step=life.step).gauge(lambda at: 0 if life.gap and life.gap[0] <= at < life.gap[1] else 1) if up is None else up),
        series("warpmeter_build_info", own | {"version": "1"}, life.gauge(1)),
        series("warpmeter_windows_total", own, life.counter(1)),
        series("warpmeter_conservation_error_seconds", own, life.gauge(error)),
        series("warpmeter_source_up", own | {"source": "host"}, life.gauge(1)),
    ]
    if nvidia is not None:
        found.append(series("warpmeter_source_up", own | {"source": "nvidia"}, life.gauge(nvidia)))
    return found


def pod(name="a", uid="u1", gpu="g1", mig="", share=1.0, sm=None, dram=None, price=None, life=None, node="n1", cluster="c1",
        namespace="ml", container="c", info=(), gauges=True, held_life=None, standard=True, **states):
    """A container with a device. States are parts of what it holds, such as active=.2, no_evidence=.8, disk_read=.1."""
    life = life or Life()
    held_life = held_life or life
    whose = target(node, cluster) | {"namespace": namespace, "pod": name, "pod_uid": uid}
    account = whose | {"container": container, "gpu_uuid": gpu, "mig": mig}
    names = {cause if state != "active" else "active": (state, cause) for state, cause in PAIRS}
    assert set(states) <= set(names) and abs(sum(states.values()) - 1) < 1e-9, states
    found = []
    classes = dict.fromkeys(("active", "stalled", "idle", "unknown"), 0.0)
    for key, (state, cause) in names.items():
        part = states.get(key, 0)
        classes[state] += part
        found.append(series("warpmeter_pod_gpu_seconds_total", account | {"state": state, "cause": cause}, life.counter(part * share)))
    for state, part in classes.items():
        if price is not None:
            found.append(series("warpmeter_pod_cost_total", account | {"currency": "USD", "state": state}, life.counter(part * share * price / 3600)))
    lost = states.get("source_lost", 0) + states.get("conflict", 0)
    if standard:
        found.append(series("warpmeter_pod_profiled_seconds_total", account, life.counter((1 - lost) * share)))
        if sm is not None:
            found.append(series("warpmeter_pod_sm_active_seconds_total", account, life.counter(sm * share) if not callable(sm) else life.values(sm)))
        if dram is not None:
            found.append(series("warpmeter_pod_dram_bandwidth_seconds_total", account, life.counter(dram * share)))
        found.append(series("warpmeter_pod_allocated_gpus", account, held_life.gauge(share)))
    if gauges:
        said = {"workload_kind": "Job", "workload": "train", "team": "vision", "app": "", "model": "", "environment": "", "idle_ok": "false"}
        found.append(series("warpmeter_pod_info", whose | said | dict(info), held_life.gauge(1)))
    return found


def namespace(life=None, name="ml", node="n1", cluster="c1", gpus=1.0, price=None):
    life = life or Life()
    found = [series("warpmeter_namespace_gpu_seconds_total", target(node, cluster) | {"namespace": name, "state": state}, life.counter(gpus if state == "active" else 0))
             for state in ("active", "stalled", "idle", "unknown")]
    if price is not None:
        found.append(series("warpmeter_namespace_cost_total", target(node, cluster) | {"namespace": name, "currency": "USD", "state": "active"}, life.counter(gpus * price / 3600)))
    return found


def gpu(name="g1", mig="", share=1.0, sm=None, engine=None, dram=None, use_unknown=0.0, price=None, life=None, node="n1",
        cluster="c1", standard=True, **states):
    """A device; states are parts of it."""
    life = life or Life()
    device = target(node, cluster) | {"gpu_uuid": name, "mig": mig}
    found = []
    for state in ("active", "stalled", "idle", "unknown", "unallocated"):
        part = states.get(state, 0) * share
        found.append(series("warpmeter_gpu_seconds_total", device | {"state": state}, life.counter(part)))
        if price is not None:
            found.append(series("warpmeter_gpu_cost_total", device | {"currency": "USD", "state": state}, life.counter(part * price / 3600)))
    if standard:
        found.append(series("warpmeter_gpu_use_unknown_seconds_total", device, life.counter(use_unknown * share)))
        for metric, value in (("sm_active", sm), ("engine_active", engine), ("dram_bandwidth", dram)):
            if value is not None:
                found.append(series(f"warpmeter_gpu_{metric}_seconds_total", device, life.counter(value * share)))
    if price is not None:
        found.append(series("warpmeter_gpu_price_per_hour", device | {"currency": "USD"}, life.gauge(price)))
    return found


def board(metric, value, name="g1", life=None, node="n1", cluster="c1", **labels):
    life = life or Life()
    return [series(metric, target(node, cluster) | {"gpu_uuid": name} | labels, life.gauge(value))]


def fires(name, **labels):
    return name, labels


def samples(expr, *expected):
    """A query with its answer, beside the alerts: pairs of labels and value."""
    return expr, expected


def case(name, fleet, checks, step=STEP, texts=()):
    """`checks`: minute -> what fires then, and queries. `texts`: (minute, alert, labels, annotations)."""
    queries = []
    for minute, expected in checks.items():
        alerts = [item for item in expected if isinstance(item[1], dict)]
        names = {}
        for alert, _ in alerts:
            names[alert] = names.get(alert, 0) + 1
        at = f"{int(minute * 60)}s"
        queries.append({
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": at,
            "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": count} for alert, count in names.items()],
        })
        for alert, labels in alerts:
            keys = ", ".join(labels) or "alertname"
            matchers = ",".join(f'{key}="{value}"' for key, value in labels.items())
            queries.append({
                "expr": f'sum by ({keys}) (ALERTS{{alertstate="firing",alertname="{alert}"{"," if matchers else ""}{matchers}}})',
                "eval_time": at,
                "exp_samples": [{"labels": "{" + (",".join(f'{key}="{value}"' for key, value in labels.items() if value) or (f'alertname="{alert}"' if not labels else "")) + "}", "value": 1 if labels else names[alert]}],
            })
        for expr, answer in (item for item in expected if not isinstance(item[1], dict)):
            queries.append({"expr": expr, "eval_time": at, "exp_samples": [{"labels": labels, "value": value} for labels, value in answer]})
    CASES.append((name, {
        "rule_files": [str(pathlib.Path(__file__).resolve().parent / "warpmeter.rules.yaml")],
        "evaluation_interval": "1m" if step <= 1 else f"{step}m",
        "tests": [{
            "name": name, "interval": f"{int(step * 60)}s", "input_series": fleet, "promql_expr_test": queries,
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}]}
                for minute, alert, labels, annotations in texts
            ],
        }],
    }))


POD = "WarpmeterPodUnder30Percent"
STARVED = "WarpmeterDataStarved"
IDLE = "WarpmeterAllocatedIdle"
NAMESPACE = "WarpmeterNamespaceUnder30Percent"
CLUSTER = "WarpmeterClusterUnder30Percent"
XID = "WarpmeterGpuXid"
LOW = {"active": 0.2, "no_evidence": 0.8}
DATA = CAUSES[:7]
WAITS = {"active": 0.4, "disk_read": 0.4, "cpu": 0.2}


def pods():
    case("a pod under 30 % fires after 30 minutes, with its workload and team, and not before",
         daemon() + pod(**LOW),
         {25: [], 45: [fires(POD, cluster="c1", node="n1", namespace="ml", pod="a", pod_uid="u1", workload_kind="Job", workload="train", team="vision")]})
    case("a busy pod does not fire", daemon() + pod(active=0.9, no_evidence=0.1, sm=0.6, dram=0.2), {45: [], 90: []})
    case("a busy engine with few SMs fires: SM-active decides where there is one",
         daemon() + pod(active=0.9, no_evidence=0.1, sm=0.1, dram=0.05), {45: [fires(POD, pod="a")]})
    case("without SM counters the engine decides", daemon() + pod(active=0.9, no_evidence=0.1), {45: []})
    case("an SM counter that stands still while the engine works is not believed",
         daemon() + pod(active=0.9, no_evidence=0.1, sm=lambda at: min(at, 40) * 60 * 0.6), {39: [], 55: [], 70: [], 90: []})
    case("unknown/no_evidence does not silence: the device was measured to be inactive",
         daemon() + pod(active=0.05, no_evidence=0.95, sm=0.04, dram=0.01), {45: [fires(POD, pod="a")]})
    case("the same where causes of stalls are measured",
         daemon() + pod(active=0.05, disk_read=0.7, cpu=0.2, no_evidence=0.05, sm=0.04, dram=0.01),
         {45: [fires(POD, pod="a"), fires(STARVED, pod="a"), samples("round(pod:warpmeter_starved:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml",pod="a",pod_uid="u1"}', 0.9))]})
    case("activity unknown for 10 % or more silences (source_lost)", daemon() + pod(active=0.1, no_evidence=0.7, source_lost=0.2), {45: [], 90: []})
    case("activity unknown for 10 % or more silences (conflict)", daemon() + pod(active=0.1, no_evidence=0.7, conflict=0.2), {45: [], 90: []})
    case("a little of it does not, and is left out of the ratio",
         daemon() + pod(active=0.19, no_evidence=0.76, source_lost=0.05),
         {45: [fires(POD, pod="a"), samples("round(pod:warpmeter_utilization:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml",pod="a",pod_uid="u1"}', 0.2))]})
    case("a decoding server that fills memory bandwidth does not fire", daemon() + pod(active=0.95, no_evidence=0.05, sm=0.15, dram=0.7), {45: [], 90: []})
    case("neither SMs nor bandwidth: fires", daemon() + pod(active=0.95, no_evidence=0.05, sm=0.15, dram=0.2), {45: [fires(POD, pod="a")]})
    case("a failing scrape for 12 minutes does not restart the alert",
         daemon(life := Life(gap=(40, 52))) + pod(**LOW, life=life),
         {38: [fires(POD, pod="a")], 46: [fires(POD, pod="a")], 51: [fires(POD, pod="a")], 54: [fires(POD, pod="a")], 70: [fires(POD, pod="a")]})
    case("nor does Prometheus being away for 12 minutes",
         daemon(life := Life(gap=(40, 52), marked=False), up=Life(gap=(40, 52), marked=False).gauge(1)) + pod(**LOW, life=life),
         {38: [fires(POD, pod="a")], 46: [fires(POD, pod="a")], 51: [fires(POD, pod="a")], 54: [fires(POD, pod="a")], 70: [fires(POD, pod="a")]})
    case("a gap makes no busy pod look idle",
         daemon(life := Life(gap=(40, 52))) + pod(active=0.9, no_evidence=0.1, life=life), {46: [], 54: [], 70: []})
    case("a restart of the daemon, which sets its counters back, keeps the alert",
         daemon(life := Life(restart=40)) + pod(**LOW, life=life), {39: [fires(POD, pod="a")], 41: [fires(POD, pod="a")], 45: [fires(POD, pod="a")], 60: [fires(POD, pod="a")]})
    # 30 and 60 minutes after the restart, the sample that is looked back at is the first of the new counters: 0.
    case("nor does the restart end it when the look back reaches it",
         daemon(life := Life(until=150, restart=40)) + pod(**LOW, life=life),
         {minute: [fires(POD, pod="a")] for minute in (69, 70, 71, 72, 75, 99, 100, 101, 130)})
    case("the same for an idle pod, whose look back is an hour",
         daemon(life := Life(until=210, restart=80)) + pod(no_work=1.0, life=life),
         {minute: [fires(POD, pod="a"), fires(IDLE, pod="a")] for minute in (79, 109, 110, 111, 139, 140, 141, 142, 170)})
    case("the same for a pod that waits for data",
         daemon(life := Life(until=150, restart=40)) + pod(**WAITS, life=life), {minute: [fires(STARVED, pod="a")] for minute in (69, 70, 71, 75, 100)})
    case("the same for a namespace and for a cluster",
         daemon(life := Life(until=150, restart=40)) + pod(**LOW, life=life) + namespace(life=life, gpus=2) + gpu(active=0.2, unknown=0.8, engine=0.2, sm=0.2, life=life),
         {minute: [fires(POD, pod="a"), fires(NAMESPACE, namespace="ml"), fires(CLUSTER, cluster="c1")] for minute in (69, 70, 71, 72, 75, 100)})
    case("a restart whose first scrape knows no pods yet keeps it too",
         daemon(Life(restart=40)) + pod(**LOW, life=Life(restart=40, gap=(40, 41))), {39: [fires(POD, pod="a")], 40: [fires(POD, pod="a")], 40.5: [fires(POD, pod="a")], 42: [fires(POD, pod="a")], 46: [fires(POD, pod="a")]})
    case("a restart makes no busy pod look idle", daemon(life := Life(restart=40)) + pod(active=0.9, no_evidence=0.1, sm=0.5, life=life), {41: [], 45: [], 60: []})
    case("a daemon away for 25 minutes of 30 has seen too little",
         daemon(life := Life(gap=(35, 60), restart=60)) + pod(**LOW, life=life), {67: [], 72: [], 85: [fires(POD, pod="a")]})
    case("a new daemon on an old pod waits for a window of its own",
         daemon(life := Life(until=120, born=40), up=Life(until=120, born=40).gauge(1)) + pod(**LOW, life=life), {65: [], 69: [], 80: [fires(POD, pod="a")]})
    case("a pod younger than the window does not fire",
         daemon(Life(until=120)) + pod(**LOW, life=Life(until=120, born=40)), {60: [], 69: [], 80: [fires(POD, pod="a")]})
    case("a pod of the same name that replaces a lazy one starts anew, and the lazy one's alert ends with it",
         daemon(Life(until=120)) + pod(**LOW, life=Life(until=120, dies=55), held_life=Life(until=120, dies=50))
         + pod(uid="u2", active=0.1, no_evidence=0.9, life=Life(until=120, born=51)),
         {49: [fires(POD, pod="a", pod_uid="u1")], 57: [], 75: [], 90: [fires(POD, pod="a", pod_uid="u2")]})
    case("and its busy replacement is not charged with the past",
         daemon(Life(until=120)) + pod(**LOW, life=Life(until=120, dies=55), held_life=Life(until=120, dies=50))
         + pod(uid="u2", active=0.9, no_evidence=0.1, life=Life(until=120, born=51)), {49: [fires(POD, pod_uid="u1")], 57: [], 90: []})
    case("a pod that has ended does not fire by the rates that outlive it",
         daemon() + pod(**LOW, life=Life(dies=47), held_life=Life(dies=42)), {41: [fires(POD, pod="a")], 43: [], 48: [], 60: []})
    case("a container that restarts holds on: a crash loop is no excuse",
         daemon() + pod(active=0.05, initializing=0.95) + [series("warpmeter_pod_start_timestamp_seconds", target() | {"namespace": "ml", "pod": "a", "pod_uid": "u1"}, Life().gauge(lambda at: at // 10 * 600))],
         {45: [fires(POD, pod="a")], 60: [fires(POD, pod="a")]})
    case("a busy MIG slice does not fire: relative to what it holds",
         daemon() + pod(mig="MIG-1", share=1 / 7, active=0.9, no_evidence=0.1, sm=0.8, dram=0.2),
         {45: [samples("round(pod:warpmeter_utilization:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml",pod="a",pod_uid="u1"}', 0.8))]})
    case("an idle MIG slice fires though its GPU is busy",
         daemon() + pod(mig="MIG-1", share=1 / 7, active=0.1, no_evidence=0.9, sm=0.1, dram=0.1) + pod(name="b", uid="u2", mig="MIG-2", share=3 / 7, active=0.9, no_evidence=0.1, sm=0.9, dram=0.1),
         {45: [fires(POD, pod="a")]})
    case("two GPUs, one busy and one idle: 45 %, no alert",
         daemon() + pod(active=0.9, no_evidence=0.1, sm=0.9, dram=0.1) + pod(gpu="g2", no_work=1.0, sm=0.0, dram=0.0, gauges=False), {45: [], 90: []})
    case("two GPUs, one at 40 % and one idle: 20 %, one alert for the pod",
         daemon() + pod(active=0.4, no_evidence=0.6, sm=0.4, dram=0.1) + pod(gpu="g2", no_work=1.0, sm=0.0, dram=0.0, gauges=False), {45: [fires(POD, pod="a")]})
    case("two GPUs, one with SM counters and one without: each by what it has",
         daemon() + pod(active=0.9, no_evidence=0.1, sm=0.1, dram=0.1) + pod(gpu="g2", active=0.7, no_evidence=0.3, gauges=False), {45: []})
    case("two GPUs, the counters of one invalid: silent, half is unknown",
         daemon() + pod(active=0.1, no_evidence=0.9) + pod(gpu="g2", source_lost=1.0, gauges=False), {45: [], 90: []})
    case("unattributed work on a shared device that may be the pod's silences",
         daemon() + pod(share=0.25, active=0.1, no_evidence=0.9)
         + [series("warpmeter_gpu_unattributed_seconds_total", target() | {"gpu_uuid": "g1", "mig": ""}, Life().counter(0.5))], {45: [], 90: []})
    case("a little of it does not",
         daemon() + pod(share=0.25, active=0.1, no_evidence=0.9)
         + [series("warpmeter_gpu_unattributed_seconds_total", target() | {"gpu_uuid": "g1", "mig": ""}, Life().counter(0.02))], {45: [fires(POD, pod="a")]})
    case("unattributed work cannot be that of a pod that was idle",
         daemon() + pod(share=0.25, no_process=1.0)
         + [series("warpmeter_gpu_unattributed_seconds_total", target() | {"gpu_uuid": "g1", "mig": ""}, Life().counter(0.5))], {45: [fires(POD, pod="a")]})
    case("two clusters with the same names are kept apart",
         daemon() + daemon(cluster="c2") + pod(**LOW) + pod(cluster="c2", active=0.9, no_evidence=0.1), {45: [fires(POD, cluster="c1", pod="a")]})
    case("idle_ok: silent", daemon(Life(until=150)) + pod(no_work=1.0, life=Life(until=150), info={"idle_ok": "true"}), {45: [], 140: []})
    case("without pod_info a pod is not passed over", daemon() + pod(**LOW, gauges=False), {45: [fires(POD, pod="a", namespace="ml")]})
    case("at level minimal (no SM, no profiled time, no gauges) it fires as well", daemon() + pod(**LOW, standard=False), {45: [fires(POD, pod="a")]})
    case("a single cluster without a cluster label", daemon(cluster=None) + pod(**LOW, cluster=None), {45: [fires(POD, pod="a")]})
    case("an idle pod is reported after an hour",
         daemon(life := Life(until=150)) + pod(no_work=1.0, life=life), {50: [fires(POD, pod="a")], 75: [fires(POD, pod="a"), fires(IDLE, pod="a", workload="train", team="vision", node="n1")]})
    case("a pod that never opened its GPU is reported", daemon(life := Life(until=150)) + pod(no_process=1.0, life=life), {75: [fires(POD, pod="a"), fires(IDLE, pod="a")]})
    case("an idle pod is reported through a failing scrape",
         daemon(life := Life(until=150, gap=(90, 99))) + pod(no_work=1.0, life=life), {97: [fires(POD, pod="a"), fires(IDLE, pod="a")], 100: [fires(POD, pod="a"), fires(IDLE, pod="a")]})
    case("10 % of use in the hour is not idle", daemon(life := Life(until=150)) + pod(no_work=0.9, active=0.1, life=life), {100: [fires(POD, pod="a")]})
    case("unknown is not idle", daemon(life := Life(until=150)) + pod(no_work=0.9, source_lost=0.1, life=life), {100: []})
    case("no evidence is not idle", daemon(life := Life(until=150)) + pod(no_evidence=1.0, life=life), {100: [fires(POD, pod="a")]})
    case("a pod idle for less than an hour is not reported", daemon(life := Life(until=150)) + pod(no_work=1.0, life=Life(until=150, born=60)), {119: [fires(POD, pod="a")]})
    case("an idle pod without pod_info is not passed over", daemon(life := Life(until=150)) + pod(no_work=1.0, life=life, gauges=False), {75: [fires(POD, pod="a"), fires(IDLE, pod="a")]})
    case("what a pod costs, and what of it was for nothing, is in the alert",
         daemon() + pod(active=0.2, no_evidence=0.75, source_lost=0.05, price=3.0), {45: [fires(POD, pod="a")]},
         texts=[(45, POD, {"severity": "warning", "cluster": "c1", "node": "n1", "namespace": "ml", "pod": "a", "pod_uid": "u1", "workload_kind": "Job", "workload": "train", "team": "vision"},
                 {"summary": "ml/a used 21.05% of its GPUs for 30 minutes.",
                  "description": "Pod ml/a of Job train did work in 21.05% of the GPU time that it held. It costs 3.00 USD per hour; 2.25 USD of that bought no work.",
                  "runbook_url": "docs/runbooks/WarpmeterPodUnder30Percent.md"})])
    case("two series of a pod's labels, for a moment, disturb nobody",
         daemon() + pod(**LOW) + pod(name="b", uid="u2", gpu="g2", **LOW)
         + [series("warpmeter_pod_info", target() | {"namespace": "ml", "pod": "b", "pod_uid": "u2", "workload_kind": "Job", "workload": "train", "team": "other", "app": "", "model": "", "environment": "", "idle_ok": "false"}, Life(born=60).gauge(1))],
         {59: [fires(POD, pod="a"), fires(POD, pod="b")], 66: [fires(POD, pod="a"), fires(POD, pod="b")]})
    case("without a price the alert says so",
         daemon() + pod(**LOW), {45: [fires(POD, pod="a")]},
         texts=[(45, POD, {"severity": "warning", "cluster": "c1", "node": "n1", "namespace": "ml", "pod": "a", "pod_uid": "u1", "workload_kind": "Job", "workload": "train", "team": "vision"},
                 {"summary": "ml/a used 20% of its GPUs for 30 minutes.",
                  "description": "Pod ml/a of Job train did work in 20% of the GPU time that it held. What it costs is not known: no price is configured. ",
                  "runbook_url": "docs/runbooks/WarpmeterPodUnder30Percent.md"})])


def starving():
    own = {"severity": "warning", "cluster": "c1", "node": "n1", "namespace": "ml", "pod": "a", "pod_uid": "u1", "workload_kind": "Job", "workload": "train", "team": "vision"}
    page = {"summary": "ml/a kept its GPUs waiting for data for 60% of 30 minutes.", "runbook_url": "docs/runbooks/WarpmeterDataStarved.md"}
    waited = "Pod ml/a of Job train waited for its data in 60% of the GPU time that it held, most of all by disk_read. "
    case("a pod that waits for data fires after 30 minutes, with the leading cause and what the waiting costs",
         daemon() + pod(**WAITS, price=3.0), {25: [], 45: [fires(STARVED, cluster="c1", node="n1", namespace="ml", pod="a", pod_uid="u1", workload_kind="Job", workload="train", team="vision")]},
         texts=[(45, STARVED, own, page | {"description": waited + "The waiting costs 1.80 USD per hour. It did work in 40%."})])
    case("without a price it says so", daemon() + pod(**WAITS), {45: [fires(STARVED, pod="a")]},
         texts=[(45, STARVED, own, page | {"description": waited + "What the waiting costs is not known: no price is configured. It did work in 40%."})])
    each = lambda causes: [item for cause in causes for item in pod(name=cause, uid="u-" + cause, gpu="g-" + cause, active=0.7, **{cause: 0.3})]
    case("every cause of data starvation counts", daemon() + each(DATA), {45: [fires(STARVED, pod=cause) for cause in DATA]})
    case("no other cause does", daemon() + each([cause for _, cause in PAIRS[1:] if cause not in DATA and cause not in ("source_lost", "conflict")]), {45: [], 90: []})
    case("causes add up", daemon() + pod(active=0.6, network=0.1, cpu=0.1, cpu_wait=0.1, lock=0.1), {45: [fires(STARVED, pod="a")]})
    case("less than a quarter does not fire", daemon() + pod(active=0.76, disk_read=0.24), {45: [], 90: []})
    case("without probes nothing is starved, and use is judged as before",
         daemon() + pod(active=0.1, no_evidence=0.9), {45: [fires(POD, pod="a"), samples("pod:warpmeter_starved:ratio_rate30m", ('pod:warpmeter_starved:ratio_rate30m{cluster="c1",namespace="ml",pod="a",pod_uid="u1"}', 0)), samples("pod_cause:warpmeter_starved_gpus:rate30m")]})
    case("causes that are unknown for much of the time silence neither", daemon() + pod(active=0.1, disk_read=0.3, no_evidence=0.6), {45: [fires(STARVED, pod="a"), fires(POD, pod="a")]})
    case("activity unknown for 10 % or more silences", daemon() + pod(active=0.2, disk_read=0.6, source_lost=0.2), {45: [], 90: []})
    case("a little of it does not", daemon() + pod(active=0.45, disk_read=0.5, source_lost=0.05), {45: [fires(STARVED, pod="a")]})
    case("that idleness is intended is no excuse for starving", daemon() + pod(**WAITS, info={"idle_ok": "true"}), {45: [fires(STARVED, pod="a")]})
    case("nor that memory bandwidth is used", daemon() + pod(**WAITS, sm=0.2, dram=0.35), {45: [fires(STARVED, pod="a")]})
    case("a starved pod younger than the window does not fire", daemon(Life(until=120)) + pod(**WAITS, life=Life(until=120, born=40)), {60: [], 69: [], 80: [fires(STARVED, pod="a")]})
    case("a starved pod that has ended does not fire by the rates that outlive it",
         daemon() + pod(**WAITS, life=Life(dies=47), held_life=Life(dies=42)), {41: [fires(STARVED, pod="a")], 48: [], 60: []})
    case("a pod that replaces a starved one of the same name starts anew",
         daemon(Life(until=120)) + pod(**WAITS, life=Life(until=120, dies=55), held_life=Life(until=120, dies=50)) + pod(uid="u2", active=0.9, cpu=0.1, life=Life(until=120, born=51)),
         {49: [fires(STARVED, pod="a", pod_uid="u1")], 57: [], 90: []})
    case("starvation through a failing scrape", daemon(life := Life(gap=(40, 52))) + pod(**WAITS, life=life),
         {38: [fires(STARVED, pod="a")], 46: [fires(STARVED, pod="a")], 54: [fires(STARVED, pod="a")], 70: [fires(STARVED, pod="a")]})
    case("starvation through a restart of the daemon", daemon(life := Life(restart=40)) + pod(**WAITS, life=life), {39: [fires(STARVED, pod="a")], 41: [fires(STARVED, pod="a")], 60: [fires(STARVED, pod="a")]})
    case("of starvation a daemon away for 25 minutes of 30 has seen too little",
         daemon(life := Life(gap=(35, 60), restart=60)) + pod(**WAITS, life=life), {67: [], 72: [], 85: [fires(STARVED, pod="a")]})
    case("a starved MIG slice fires though its GPU is busy",
         daemon() + pod(mig="MIG-1", share=1 / 7, **WAITS) + pod(name="b", uid="u2", mig="MIG-2", share=3 / 7, active=0.9, disk_read=0.1), {45: [fires(STARVED, pod="a")]})
    case("two GPUs, one starved: by what is held of both", daemon() + pod(active=0.4, disk_read=0.6) + pod(gpu="g2", active=1.0, gauges=False), {45: [fires(STARVED, pod="a")]})
    case("two GPUs, one starved a little", daemon() + pod(active=0.6, disk_read=0.4) + pod(gpu="g2", active=1.0, gauges=False), {45: []})
    case("starved pods of two clusters with the same names are kept apart",
         daemon() + daemon(cluster="c2") + pod(**WAITS) + pod(cluster="c2", active=0.9, cpu=0.1), {45: [fires(STARVED, cluster="c1", pod="a")]})
    case("starvation in a single cluster without a cluster label", daemon(cluster=None) + pod(**WAITS, cluster=None), {45: [fires(STARVED, pod="a")]})
    case("without pod_info a starved pod is not passed over", daemon() + pod(**WAITS, gauges=False), {45: [fires(STARVED, pod="a", namespace="ml")]})
    case("starvation at level minimal", daemon() + pod(**WAITS, standard=False), {45: [fires(STARVED, pod="a")]})
    cost = lambda *parts: samples('round(pod_cause:warpmeter_starved_cost_per_hour:rate30m, 0.001)', *((f'{{cluster="c1",namespace="ml",pod="{name}",pod_uid="{uid}",currency="{currency}",cause="{cause}"}}', value) for name, uid, currency, cause, value in parts))
    case("what starvation costs, by cause, at each device's own price, with other stalls left out",
         daemon() + pod(active=0.2, disk_read=0.3, sync=0.3, cpu=0.2, price=4.0) + pod(gpu="g2", active=0.5, cpu=0.4, transfer=0.1, price=1.0, gauges=False),
         {45: [fires(STARVED, pod="a"), cost(("a", "u1", "USD", "disk_read", 1.2), ("a", "u1", "USD", "cpu", 1.2))]})
    euros = [series("warpmeter_pod_cost_total", target() | {"namespace": "ml", "pod": "b", "pod_uid": "u2", "container": "c", "gpu_uuid": "g2", "mig": "", "currency": "EUR", "state": "stalled"}, Life(until=90, born=80).counter(2 / 3600))]
    case("a change of currency disturbs nobody",
         daemon() + pod(**WAITS, price=3.0) + pod(name="b", uid="u2", gpu="g2", **WAITS, price=1.0) + euros,
         {85: [fires(STARVED, pod="a"), fires(STARVED, pod="b"), samples('round(sum by (currency) (pod_cause:warpmeter_starved_cost_per_hour:rate30m{pod="a"}), 0.001)', ('{currency="USD"}', 1.8))]})
    serving = {"workload_kind": "Deployment", "workload": "serve"}
    case("starvation by workload and namespace, weighted by what is held",
         daemon() + pod(**WAITS, price=3.0) + pod(name="b", uid="u2", gpu="g2", active=0.8, disk_read=0.2, price=3.0) + pod(name="s", uid="u3", gpu="g3", active=1.0, info=serving) + pod(name="x", uid="u4", gpu="g4", active=0.9, network=0.1, price=3.0, gauges=False),
         {45: [fires(STARVED, pod="a"),
               samples("round(workload:warpmeter_starved:ratio_rate30m, 0.001)", *((f'{{cluster="c1",namespace="ml"{more}}}', value) for more, value in ((',workload_kind="Job",workload="train"', 0.4), (',workload_kind="Deployment",workload="serve"', 0), ("", 0.1)))),
               samples("round(workload_cause:warpmeter_starved_gpus:rate30m, 0.001)", *((f'{{cluster="c1",namespace="ml"{more}}}', value) for more, value in ((',workload_kind="Job",workload="train",cause="disk_read"', 0.6), (',workload_kind="Job",workload="train",cause="cpu"', 0.2), (',cause="network"', 0.1)))),
               samples('round(sum by (workload) (workload_cause:warpmeter_starved_cost_per_hour:rate30m), 0.001)', ('{workload="train"}', 2.4), ("{}", 0.3)),
               samples("round(namespace:warpmeter_starved:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml"}', 0.225))]})


def levels():
    idle = [item for index in range(4) for item in pod(name=f"i{index}", uid=f"ui{index}", gpu=f"h{index}", active=0.02, no_evidence=0.98)]
    lazy = [fires(POD, pod=f"i{index}") for index in range(4)]
    busy = pod(active=0.9, no_evidence=0.1, price=2.0)
    case("a namespace is weighted: one busy of five GPUs fires", daemon() + busy + idle + namespace(gpus=5, price=2.0),
         {45: lazy + [fires(NAMESPACE, cluster="c1", namespace="ml")]})
    case("a namespace with one busy of two GPUs does not", daemon() + busy + idle[: len(idle) // 4] + namespace(gpus=2), {45: lazy[:1]})
    case("a namespace below one GPU is left to its pods", daemon() + pod(share=0.25, **LOW) + namespace(gpus=0.25), {45: [fires(POD, pod="a")]})
    case("a namespace that has just begun does not", daemon() + pod(**LOW, gpu="g1", life=Life(born=40)) + namespace(Life(born=40), gpus=8), {65: []})
    case("a namespace of decoding servers does not", daemon() + pod(active=0.95, no_evidence=0.05, sm=0.15, dram=0.7) + namespace(gpus=1), {45: []})
    case("a namespace whose activity is unknown does not", daemon() + pod(active=0.1, no_evidence=0.4, source_lost=0.5) + namespace(gpus=1), {45: []})
    case("a namespace through a gap and a restart", daemon(life := Life(gap=(40, 47), restart=47)) + busy + [item for index in range(4) for item in pod(name=f"i{index}", uid=f"ui{index}", gpu=f"h{index}", active=0.02, no_evidence=0.98, life=life)] + namespace(life, gpus=5),
         {46: lazy + [fires(NAMESPACE, namespace="ml")], 48: lazy + [fires(NAMESPACE, namespace="ml")]})
    case("a namespace of the same name in another cluster is another", daemon() + daemon(cluster="c2") + pod(**LOW) + namespace(gpus=1) + pod(cluster="c2", active=0.9, no_evidence=0.1) + namespace(cluster="c2", gpus=1),
         {45: [fires(POD, cluster="c1"), fires(NAMESPACE, cluster="c1", namespace="ml")]})
    case("a cluster counts what nobody holds",
         daemon() + gpu("g1", active=0.8, unknown=0.2, engine=0.8, price=3.0) + gpu("g2", unallocated=1, engine=0, price=3.0) + gpu("g3", unallocated=1, engine=0, price=3.0),
         {45: [fires(CLUSTER, cluster="c1")]},
         texts=[(45, CLUSTER, {"severity": "warning", "cluster": "c1"},
                 {"summary": "The cluster c1 used 26.67% of its GPUs for 30 minutes.",
                  "description": "Of all GPU time, unallocated time included, 26.67% did work. It costs 9.00 USD per hour; 6.60 USD of that bought no work.",
                  "runbook_url": "docs/runbooks/WarpmeterClusterUnder30Percent.md"})])
    case("a cluster at 40 % does not fire", daemon() + gpu("g1", active=0.8, unknown=0.2, engine=0.8) + gpu("g2", unallocated=1, engine=0), {45: []})
    case("a cluster by SMs where there are SM counters", daemon() + gpu("g1", active=0.9, unknown=0.1, engine=0.9, sm=0.1, dram=0.1), {45: [fires(CLUSTER, cluster="c1")]})
    case("a cluster of decoding servers does not", daemon() + gpu("g1", active=0.9, unknown=0.1, engine=0.9, sm=0.1, dram=0.6), {45: []})
    case("a cluster at level minimal is judged by states", daemon() + gpu("g1", active=0.1, unknown=0.9, standard=False), {45: [fires(CLUSTER, cluster="c1")]})
    case("a cluster whose activity is unknown is not judged",
         daemon() + gpu("g1", active=0.1, unknown=0.9, engine=0.1, use_unknown=0.5), {45: [fires("WarpmeterTimeUnknown", gpu_uuid="g1")]})
    case("unknown causes are not unknown activity: a cluster of waiting trainers fires", daemon() + gpu("g1", active=0.1, unknown=0.9, engine=0.1), {45: [fires(CLUSTER, cluster="c1")]})
    case("of two clusters the low one fires", daemon() + daemon(cluster="c2") + gpu("g1", active=0.1, unknown=0.9, engine=0.1) + gpu("g1", cluster="c2", active=0.9, unknown=0.1, engine=0.9),
         {45: [fires(CLUSTER, cluster="c1")]})
    case("MIG: slices that belong to no instance count",
         daemon() + gpu("g1", mig="MIG-1", share=1 / 7, active=0.9, unknown=0.1, engine=0.9) + gpu("g1", share=6 / 7, unallocated=1, standard=False), {45: [fires(CLUSTER, cluster="c1")]})
    records = daemon() + pod(active=0.5, no_evidence=0.5, price=2.0) + pod(name="b", uid="u2", gpu="g2", active=0.7, no_evidence=0.3, price=2.0, info={"team": "speech", "workload": "serve", "workload_kind": "Deployment"}) + pod(name="x", uid="u3", gpu="g3", active=0.9, no_evidence=0.1, price=2.0, gauges=False)
    case("records by workload and team; who has none counts under the empty name", records, {45: [
        samples("workload:warpmeter_utilization:ratio_rate30m",
                ('workload:warpmeter_utilization:ratio_rate30m{cluster="c1",namespace="ml",workload_kind="Job",workload="train"}', 0.5),
                ('workload:warpmeter_utilization:ratio_rate30m{cluster="c1",namespace="ml",workload_kind="Deployment",workload="serve"}', 0.7),
                ('workload:warpmeter_utilization:ratio_rate30m{cluster="c1",namespace="ml"}', 0.9)),
        samples("round(team:warpmeter_unused_cost_per_hour:rate30m, 0.001)", ('{cluster="c1",team="vision",currency="USD"}', 1), ('{cluster="c1",team="speech",currency="USD"}', 0.6), ('{cluster="c1",currency="USD"}', 0.2)),
        samples("round(sum(team:warpmeter_allocated_gpus:rate30m), 0.001)", ("{}", 3)),
        samples("round(sum(workload:warpmeter_cost_per_hour:rate30m), 0.001)", ("{}", 6)),
    ]})


def free():
    life = Life(until=960, step=5)
    UNALLOCATED = "WarpmeterUnallocated"
    case("a GPU that nobody held for 6 hours fires, with what it costs",
         daemon(life) + gpu("g1", life=life, unallocated=1, engine=0, price=3.0) + gpu("g2", life=life, active=0.9, unknown=0.1, engine=0.9, price=3.0),
         {300: [], 420: [fires(UNALLOCATED, cluster="c1", node="n1")]}, step=5,
         texts=[(420, UNALLOCATED, {"severity": "warning", "cluster": "c1", "node": "n1"},
                 {"summary": "1.0 GPUs of node n1 were allocated to nobody for 6 hours.",
                  "description": "Nothing held 1.0 GPUs of node n1 for 6 hours. The unallocated time of this node costs 3.00 USD per hour.",
                  "runbook_url": "docs/runbooks/WarpmeterUnallocated.md"})])
    case("a GPU that was held for half of the time does not", daemon(life) + gpu("g1", life=life, unallocated=0.5, active=0.5, engine=0.5), {420: [], 900: []}, step=5)
    case("one free MIG slice of seven does not", daemon(life) + gpu("g1", mig="M1", share=6 / 7, life=life, active=1, engine=1) + gpu("g1", mig="M2", share=1 / 7, life=life, unallocated=1), {420: [], 900: []}, step=5)
    case("four free slices of seven do", daemon(life) + gpu("g1", mig="M1", share=3 / 7, life=life, active=1, engine=1) + gpu("g1", mig="M2", share=3 / 7, life=life, unallocated=1) + gpu("g1", share=1 / 7, life=life, unallocated=1, standard=False), {420: [fires(UNALLOCATED, node="n1")]}, step=5)
    young = Life(until=960, born=300, step=5)
    case("a node that came an hour ago does not", daemon(life) + daemon(young, node="n2", up=young.gauge(1)) + [item for index in range(8) for item in gpu(f"y{index}", life=young, node="n2", unallocated=1, active=0, engine=0)] + [item for index in range(8) for item in gpu(f"z{index}", life=life, active=1, engine=1)],
         {420: [], 600: []}, step=5)
    gone = Life(until=960, dies=500, step=5)
    case("a node that has left does not", daemon(life) + daemon(gone, node="n2", up=gone.gauge(1)) + gpu("g1", life=gone, node="n2", unallocated=1, engine=0) + gpu("g2", life=life, active=1, engine=1),
         {450: [fires(UNALLOCATED, node="n2")], 540: []}, step=5)


def telemetry():
    case("nothing is scraped: the one alert that needs no series", [series("up", {"job": "other"}, Life().gauge(1))], {10: [], 20: [fires("WarpmeterAbsent")]})
    down = Life(gap=(10, 90))
    case("a target that is down", daemon() + daemon(down, node="n2"), {9: [], 15: [], 25: [fires("WarpmeterTargetDown", node="n2", cluster="c1")]})
    case("a scrape that fails once in a while is not down", daemon(up=Life().gauge(lambda at: 0 if at % 5 == 0 else 1)), {25: [], 60: []})
    # One minute up of five, as the kubelet lets a container be that fails again and again.
    looping = Life().gauge(lambda at: 1 if at < 20 or at % 5 < 1 else 0)
    case("a daemon that crashes again and again", daemon(up=looping),
         {19: [], 25: [], 60: [fires("WarpmeterTargetDown", node="n1", cluster="c1")]},
         texts=[(60, "WarpmeterTargetDown", target() | {"severity": "warning"},
                 {"summary": "Warpmeter on n1 answered 21.31% of its scrapes in 30 minutes.",
                  "description": "The daemon on n1 is not scraped, answers 503 because its pipeline stands still, or ends and is started again and again. GPU time of this node is not measured meanwhile; what its GPUs cost is not known.",
                  "runbook_url": "docs/runbooks/WarpmeterTargetDown.md"})])
    case("a daemon that has stopped crashing is not down for long", daemon(up=Life(until=120).gauge(lambda at: 1 if at < 20 or at % 5 < 1 or at >= 60 else 0)), {59: [fires("WarpmeterTargetDown")], 72: [], 110: []})
    case("a daemon that crashed twice in half an hour and mostly answers is not down", daemon(up=Life().gauge(lambda at: 0 if 20 <= at < 25 or 35 <= at < 40 else 1)), {26: [], 41: [], 50: [], 60: []})
    case("an outage of 9 minutes, or one of 25 that is over, is not a crash loop",
         daemon(up=Life().gauge(lambda at: 0 if 20 <= at < 29 else 1)) + daemon(up=Life().gauge(lambda at: 0 if 20 <= at < 45 else 1), node="n2"),
         {29: [], 44: [fires("WarpmeterTargetDown", node="n2")], 46: [], 60: []})
    twice = lambda life=None: board("warpmeter_gpu_up", 1) + [series("warpmeter_gpu_up", target() | {"job": "gpu/warpmeter", "instance": "10.0.0.1:9408", "gpu_uuid": "g1"}, (life or Life()).gauge(1))]
    case("two targets for one GPU", daemon() + twice() + board("warpmeter_gpu_up", 1, name="g2") + [series("warpmeter_gpu_price_per_hour", target() | {"gpu_uuid": "g1", "currency": "USD"}, Life().gauge(2.5))],
         {14: [], 20: [fires("WarpmeterScrapedTwice", cluster="c1", gpu_uuid="g1")]},
         texts=[(20, "WarpmeterScrapedTwice", {"severity": "warning", "cluster": "c1", "gpu_uuid": "g1"},
                 {"summary": "g1 of c1 is reported by 2 targets.",
                  "description": "Its time and its cost are counted 2 times in every sum over nodes, namespaces and teams. Charge nobody by them until one target is left. The GPU costs 2.50 USD per hour, counted so often.",
                  "runbook_url": "docs/runbooks/WarpmeterScrapedTwice.md"})])
    case("two targets for a while, as when a pod moves, and the same name in another cluster", daemon() + daemon(cluster="c2") + twice(Life(born=10, dies=22)) + board("warpmeter_gpu_up", 1, cluster="c2"), {15: [], 25: [], 60: []})
    case("a target of another job is not ours", daemon() + [series("up", {"job": "dcgm", "instance": "n3"}, Life().gauge(0))], {25: []})
    case("the job of a PodMonitor", daemon() + [series("up", {"job": "gpu/warpmeter", "instance": "n3"}, Life().gauge(0))], {25: [fires("WarpmeterTargetDown", instance="n3")]})
    capacity = lambda node, resource="nvidia_com_gpu", cluster="c1": [series("kube_node_status_capacity", {"cluster": cluster, "node": node, "resource": resource, "unit": "integer"}, Life().gauge(8))]
    case("a GPU node without us fires; a covered one, a down one and one without GPUs do not",
         daemon() + daemon(Life(gap=(10, 90)), node="n4") + capacity("n1") + capacity("n2") + capacity("n3", "cpu") + capacity("n4") + capacity("n5", "nvidia_com_mig_1g_10gb"),
         {10: [], 30: [fires("WarpmeterNodeNotCovered", node="n2"), fires("WarpmeterNodeNotCovered", node="n5"), fires("WarpmeterTargetDown", node="n4")]})
    case("a node of the same name in another cluster is not covered by ours", daemon() + capacity("n1") + capacity("n1", cluster="c2"), {30: [fires("WarpmeterNodeNotCovered", cluster="c2", node="n1")]})
    case("a source that is down", daemon(nvidia=lambda at: 1 if at < 10 else 0), {12: [], 30: [fires("WarpmeterSourceDown", source="nvidia", node="n1")]})
    case("a source that restarts is not down", daemon(nvidia=lambda at: 0 if at % 10 == 0 else 1), {30: [], 60: []})
    case("a source down through a failing scrape", daemon(Life(gap=(40, 46)), nvidia=0), {30: [fires("WarpmeterSourceDown", source="nvidia")], 43: [fires("WarpmeterSourceDown", source="nvidia")]})
    degraded = lambda sample, source="prices": [series("warpmeter_source_degraded", target() | {"source": source}, Life().gauge(sample))]
    case("a price file that was refused, so that its source is degraded", daemon() + degraded(lambda at: 0 if at < 10 else 1) + degraded(0, "host"),
         {30: [], 60: [fires("WarpmeterSourceDegraded", source="prices", node="n1", severity="info")]})
    case("a source that is degraded now and then", daemon() + degraded(lambda at: 1 if at % 10 < 4 else 0), {60: [], 90: []})
    case("a source that is mended", daemon() + degraded(lambda at: 1 if at < 60 else 0), {55: [fires("WarpmeterSourceDegraded", source="prices")], 70: []})
    case("activity that is unknown", daemon() + gpu(active=0.7, unknown=0.3, engine=0.7, use_unknown=0.3), {45: [fires("WarpmeterTimeUnknown", gpu_uuid="g1", node="n1", cluster="c1")]})
    case("no evidence of causes is not a fault", daemon() + gpu(active=0.7, unknown=0.3, engine=0.7), {45: []})
    case("unknown activity at level minimal", daemon() + gpu(active=0.8, unknown=0.2, standard=False) + pod(active=0.8, source_lost=0.2, standard=False), {45: [fires("WarpmeterTimeUnknown", gpu_uuid="g1")]})
    case("released on purpose: neither down nor lost nor unknown",
         daemon(nvidia=lambda at: 1 if at < 20 else None) + gpu(active=0.5, unknown=0.5, engine=0.5, use_unknown=0.4, life=Life()) + board("warpmeter_gpu_up", lambda at: 1 if at < 20 else 0), {18: [fires("WarpmeterTimeUnknown", gpu_uuid="g1")], 40: [], 80: []})
    long = Life(until=600, step=5)
    case("a release that was forgotten", daemon(long, nvidia=lambda at: 1 if at < 100 else None) + gpu(active=1, engine=1, life=long), {200: [], 400: [fires("WarpmeterReleased", node="n1")]}, step=5)
    case("a node without GPUs is not released", daemon(long, nvidia=None), {400: []}, step=5)
    case("ledgers that do not add up", daemon(error=lambda at: 0.5 if at == 30 else 0), {29: [], 31: [fires("WarpmeterConservationError", node="n1")], 50: []})


def prices():
    STALE, BUILT_IN = "WarpmeterPriceStale", "WarpmeterPriceBuiltIn"
    # Time begins at 0 here, so that a day before it is negative.
    dated = lambda day, node="n1", life=None: [series("warpmeter_price_table_timestamp_seconds", target(node), (life or Life()).gauge(day * 86400))]
    figure = lambda origin, priced="gpu", node="n1", life=None: [series("warpmeter_price_info", target(node) | {"priced": priced, "origin": origin, "source": "s-" + origin, "as_of": "", "capacity_type": ""}, (life or Life()).gauge(1))]
    perhour = lambda price: [series("warpmeter_gpu_price_per_hour", target() | {"gpu_uuid": name, "currency": "USD"}, Life().gauge(price)) for name in ("g1", "g2")]
    case("a price of 91 days ago is old, one of 89 is not", daemon() + daemon(node="n2") + dated(-91) + dated(-89, "n2") + perhour(2.5),
         {10: [], 20: [fires(STALE, node="n1", severity="warning")]},
         texts=[(30, STALE, {"severity": "warning", "cluster": "c1", "node": "n1", "instance": "n1", "job": "warpmeter"},
                 {"summary": "A price of n1 is 91d 0h 30m 0s old.",
                  "description": "The oldest price in use is of 91d 0h 30m 0s ago, and costs accrue by it. By it the GPUs of this node cost 5.00 USD per hour.",
                  "runbook_url": "docs/runbooks/WarpmeterPriceStale.md"})])
    case("a price that is renewed is no longer old", daemon() + [series("warpmeter_price_table_timestamp_seconds", target(), Life().gauge(lambda at: -91 * 86400 if at < 40 else -86400))], {30: [fires(STALE)], 45: []})
    case("a price without a day is not old", daemon() + figure("configuration") + perhour(2.5), {90: []})
    case("the built-in table alone", daemon() + figure("built_in") + perhour(2.5), {30: [], 75: [fires(BUILT_IN, node="n1", severity="info")]})
    case("the built-in table with a price of energy is still alone for GPUs", daemon() + figure("built_in") + figure("configuration", "energy"), {75: [fires(BUILT_IN)]})
    case("the built-in table beside a price of one's own, or on another node", daemon() + daemon(node="n2") + figure("built_in") + figure("file") + figure("configuration", node="n2"), {75: []})


def devices():
    own = target()
    xid = lambda number, values, gpu="g1": [series("warpmeter_gpu_xid_errors_total", own | {"gpu_uuid": gpu, "xid": number}, values)]
    case("the first XID fires, though its series begins with 1", daemon(Life(until=150)) + xid("79", Life(until=150, born=70).gauge(1)),
         {69: [], 72: [fires(XID, xid="79", gpu_uuid="g1", severity="critical", node="n1")], 100: [fires(XID, xid="79")], 135: []})
    case("a further XID of the same number fires", daemon(Life(until=150)) + xid("79", Life(until=150).gauge(lambda at: 3 if at < 100 else 4)), {99: [], 101: [fires(XID, xid="79")]})
    case("an old XID does not", daemon(Life(until=150)) + xid("79", Life(until=150).gauge(3)), {65: [], 120: []})
    case("nor after a gap of scrapes", daemon(life := Life(until=150, gap=(90, 97))) + xid("79", life.gauge(3)), {96: [], 99: [], 120: []})
    case("nor when the daemon restarts and has forgotten it", daemon(Life(until=150, restart=90)) + xid("79", Life(until=150, dies=90).gauge(3)), {95: []})
    case("an XID just after a restart, with the same count as before, fires",
         daemon(Life(until=150, restart=90)) + xid("79", Life(until=150, gap=(90, 95)).gauge(1)), {89: [], 96: [fires(XID, xid="79")]})
    case("an XID of a daemon that has just come", daemon(Life(until=150)) + daemon(Life(until=150, born=80), node="n2", up=Life(until=150, born=80).gauge(1)) + [series("warpmeter_gpu_xid_errors_total", target("n2") | {"gpu_uuid": "g1", "xid": "48"}, Life(until=150, born=80).gauge(1))],
         {82: [fires(XID, xid="48", node="n2")]})
    case("the severity is that of the number", daemon(Life(until=150)) + xid("31", Life(until=150, born=70).gauge(1)) + xid("63", Life(until=150, born=70).gauge(1)) + xid("95", Life(until=150, born=70).gauge(1)),
         {72: [fires(XID, xid="31", severity="info"), fires(XID, xid="63", severity="warning"), fires(XID, xid="95", severity="critical")]})
    case("what a lost GPU costs is in the alert",
         daemon() + board("warpmeter_gpu_up", lambda at: 1 if at < 30 else 0) + gpu(active=1, engine=1, price=3.0, life=Life(dies=35)), {40: [fires("WarpmeterGpuLost", gpu_uuid="g1")]},
         texts=[(40, "WarpmeterGpuLost", own | {"severity": "critical", "gpu_uuid": "g1"},
                 {"summary": "g1 of n1 is lost.",
                  "description": "The GPU cannot be read, or is no longer there though its node answers. Pods that hold it do no work. It costs 3.00 USD per hour.",
                  "runbook_url": "docs/runbooks/WarpmeterGpuLost.md"})])
    ecc = lambda values: [series("warpmeter_gpu_ecc_uncorrected_errors_total", own | {"gpu_uuid": "g1"}, values)]
    case("an uncorrected error fires", daemon() + ecc(Life().gauge(lambda at: 2 if at < 30 else 3)), {29: [], 31: [fires("WarpmeterGpuEccUncorrected", gpu_uuid="g1", node="n1")]})
    case("errors from before do not, nor does a reload of the driver", daemon() + ecc(Life().gauge(lambda at: 2 if at < 30 else 0)), {29: [], 31: []})
    case("an error during a gap fires", daemon(life := Life(gap=(30, 36))) + ecc(life.gauge(lambda at: 2 if at < 33 else 3)), {37: [fires("WarpmeterGpuEccUncorrected", gpu_uuid="g1")]})
    case("row remapping: pending warns, failed is critical",
         daemon() + board("warpmeter_gpu_row_remap_pending", 1) + board("warpmeter_gpu_row_remap_failed", lambda at: 0 if at < 30 else 1) + board("warpmeter_gpu_row_remap_pending", 0, "g2"),
         {5: [], 20: [fires("WarpmeterGpuRowRemap", gpu_uuid="g1", severity="warning")], 35: [fires("WarpmeterGpuRowRemap", gpu_uuid="g1", severity="warning"), fires("WarpmeterGpuRowRemap", gpu_uuid="g1", severity="critical")]})
    case("a GPU that cannot be read is lost", daemon() + board("warpmeter_gpu_up", lambda at: 1 if at < 30 else 0), {33: [], 40: [fires("WarpmeterGpuLost", gpu_uuid="g1", node="n1")]})
    case("one bad reading is not a loss", daemon() + board("warpmeter_gpu_up", lambda at: 0 if at == 30 else 1), {31: [], 40: []})
    case("a GPU that vanishes while its node answers is lost", daemon() + board("warpmeter_gpu_up", 1, life=Life(dies=30)) + board("warpmeter_gpu_up", 1, "g2"), {50: [], 70: [fires("WarpmeterGpuLost", gpu_uuid="g1")]})
    case("a node that is gone is not a lost GPU", daemon() + daemon(Life(dies=30), node="n2", up=Life(dies=30).gauge(1)) + board("warpmeter_gpu_up", 1, node="n2", life=Life(dies=30)), {70: []})
    throttled = lambda reason, rate, life=None: [series("warpmeter_gpu_throttled_seconds_total", own | {"gpu_uuid": "g1", "reason": reason}, (life or Life()).counter(rate))]
    case("throttled by heat", daemon() + throttled("hw_thermal", 0.3), {30: [fires("WarpmeterGpuThrottled", gpu_uuid="g1", reason="hw_thermal")]})
    case("throttled by heat through a restart", daemon(life := Life(restart=40)) + throttled("hw_thermal", 0.3, life), {39: [fires("WarpmeterGpuThrottled", gpu_uuid="g1")], 41: [fires("WarpmeterGpuThrottled", gpu_uuid="g1")]})
    case("a power cap and a little heat are not", daemon() + throttled("sw_power_cap", 0.9) + throttled("sw_thermal", 0.05), {30: [], 60: []})


def borrowing():
    # One pod of a quarter takes half the device; its sibling holds another quarter and does nothing.
    case("what one pod borrows does not hide what its sibling wastes, nor is more used than is held",
         daemon() + pod(share=0.25, sm=2.0, active=1, price=4.0) + pod(name="b", uid="u2", share=0.25, sm=0, no_work=1, price=4.0),
         {45: [samples("round(pod:warpmeter_utilization:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml",pod="a",pod_uid="u1"}', 1), ('{cluster="c1",namespace="ml",pod="b",pod_uid="u2"}', 0)),
               samples("round(namespace:warpmeter_utilization:ratio_rate30m, 0.001)", ('{cluster="c1",namespace="ml"}', 0.5)),
               samples("round(team:warpmeter_utilization:ratio_rate30m, 0.001)", ('{cluster="c1",team="vision"}', 0.5)),
               samples("round(sum(pod_device:warpmeter_work_gpus:rate30m), 0.001)", ("{}", 0.5)),
               samples("round(team:warpmeter_unused_cost_per_hour:rate30m, 0.001)", ('{cluster="c1",team="vision",currency="USD"}', 1)),
               fires("WarpmeterPodUnder30Percent", pod="b")]})


def joins():
    kube = lambda metric, value=1, **labels: [series(metric, {"cluster": "c1"} | labels, Life().gauge(value))]
    anonymous = {"team": "", "workload": "", "workload_kind": ""}
    case("team, app and model from kube-state-metrics where the daemon does not know them",
         daemon() + pod(active=0.5, no_evidence=0.5, info=anonymous) + pod(name="b", uid="u2", gpu="g2", active=0.5, no_evidence=0.5)
         + kube("kube_pod_labels", namespace="ml", pod="a", uid="u1", label_team="speech", label_model="whisper", label_app_kubernetes_io_name="asr", label_environment="prod")
         + kube("kube_pod_labels", namespace="ml", pod="b", uid="u2", label_team="other"),
         {45: [samples('sum by (pod, team, app, model, environment) (pod:warpmeter_attributes:last15m)', ('{pod="a",team="speech",app="asr",model="whisper",environment="prod"}', 1), ('{pod="b",team="vision"}', 1)),
               samples('round(sum by (team) (team:warpmeter_allocated_gpus:rate30m), 0.001)', ('{team="speech"}', 1), ('{team="vision"}', 1))]})
    owner = lambda pod, kind, name: kube("kube_pod_owner", namespace="ml", pod=pod, uid=pod, owner_kind=kind, owner_name=name, owner_is_controller="true" if kind else "")
    unowned = {"workload": "", "workload_kind": ""}
    fleet = [item for name in "abcdefg" for item in pod(name=name, uid="u" + name, gpu="g" + name, active=1, info=unowned if name != "g" else ())]
    case("whose pod it is, from kube-state-metrics where the daemon does not know it",
         daemon() + fleet + owner("a", "ReplicaSet", "serve-6d4") + owner("b", "Job", "nightly-29") + owner("c", "StatefulSet", "db") + owner("d", "Node", "n1") + owner("e", "", "") + owner("f", "ReplicaSet", "alone")
         + owner("g", "Job", "other")
         + kube("kube_replicaset_owner", namespace="ml", replicaset="serve-6d4", owner_kind="Deployment", owner_name="serve", owner_is_controller="true")
         + kube("kube_replicaset_owner", namespace="ml", replicaset="alone", owner_kind="<none>", owner_name="<none>", owner_is_controller="<none>")
         + kube("kube_job_owner", namespace="ml", job_name="nightly-29", owner_kind="CronJob", owner_name="nightly", owner_is_controller="true"),
         {45: [samples("sum by (pod, workload_kind, workload, team) (pod:warpmeter_attributes:last15m)",
                       ('{pod="a",workload_kind="Deployment",workload="serve",team="vision"}', 1), ('{pod="b",workload_kind="CronJob",workload="nightly",team="vision"}', 1),
                       ('{pod="c",workload_kind="StatefulSet",workload="db",team="vision"}', 1), ('{pod="d",team="vision"}', 1), ('{pod="e",team="vision"}', 1),
                       ('{pod="f",workload_kind="ReplicaSet",workload="alone",team="vision"}', 1), ('{pod="g",workload_kind="Job",workload="train",team="vision"}', 1)),
               samples("round(sum by (workload) (workload:warpmeter_allocated_gpus:rate30m), 0.001)",
                       ("{}", 2), ('{workload="serve"}', 1), ('{workload="nightly"}', 1), ('{workload="db"}', 1), ('{workload="alone"}', 1), ('{workload="train"}', 1))]})
    case("pods of a workload that only kube-state-metrics knows fire with its name",
         daemon() + pod(active=0.1, no_evidence=0.9, info=unowned, price=3.0) + owner("a", "ReplicaSet", "serve-6d4")
         + kube("kube_replicaset_owner", namespace="ml", replicaset="serve-6d4", owner_kind="Deployment", owner_name="serve", owner_is_controller="true"),
         {70: [fires("WarpmeterPodUnder30Percent", pod="a", workload="serve", workload_kind="Deployment")]})
    request = lambda name, gpus: kube("kube_pod_container_resource_requests", gpus, namespace="ml", pod=name, container="c", resource="nvidia_com_gpu", unit="integer", node="")
    waits = lambda name: kube("kube_pod_status_scheduled", namespace="ml", pod=name, uid=name, condition="false")
    nodes = [item for node in ("n1", "n2") for item in daemon(node=node) + gpu("g-" + node, node=node, unallocated=1, engine=0) + gpu("h-" + node, node=node, unallocated=0, active=1, engine=1)]
    case("pending pods against free GPUs: fragmentation",
         nodes + request("two", 2) + waits("two") + request("one", 1) + waits("one") + request("nine", 9) + waits("nine") + request("runs", 2),
         {45: [samples("cluster:warpmeter_pending_gpus:sum", ('cluster:warpmeter_pending_gpus:sum{cluster="c1"}', 12)),
               samples("cluster:warpmeter_fragmented_gpus:sum", ('cluster:warpmeter_fragmented_gpus:sum{cluster="c1"}', 2))]})
    sharing = lambda name, kind, mig="", profile="", node="n1": [series("warpmeter_gpu_info", target(node) | {"gpu_uuid": name, "mig": mig, "mig_profile": profile, "sharing": kind}, Life().gauge(1))]
    case("slices and replicas that are free are not whole GPUs that are",
         daemon() + gpu("w", unallocated=1, engine=0) + gpu("m", "", 2.0, unallocated=1, engine=0) + sharing("m", "mig") + sharing("w", "none") + request("two", 2) + waits("two")
         + daemon(node="n2") + gpu("v", node="n2", unallocated=1, engine=0) + sharing("v", "none", node="n2"),
         {20: [samples("round(node:warpmeter_free_whole_gpus:rate5m, 0.001)", ('{cluster="c1",node="n1"}', 1), ('{cluster="c1",node="n2"}', 1)),
               samples("round(node:warpmeter_free_gpus:rate5m, 0.001)", ('{cluster="c1",node="n1"}', 3), ('{cluster="c1",node="n2"}', 1)),
               samples("cluster:warpmeter_fragmented_gpus:sum", ('cluster:warpmeter_fragmented_gpus:sum{cluster="c1"}', 2))]})
    wants = lambda name, profile, count=1: kube("kube_pod_container_resource_requests", count, namespace="ml", pod=name, container="c", resource="nvidia_com_mig_" + profile, unit="integer", node="") + waits(name)
    # One GPU: a free 1g.10gb, a held 2g.20gb, and four slices that belong to no instance.
    carved = (daemon() + sharing("m", "mig") + gpu("m", "i1", 1 / 7, unallocated=1, engine=0) + sharing("m", "mig", "i1", "1g.10gb")
              + gpu("m", "i2", 2 / 7, active=1, engine=1) + sharing("m", "mig", "i2", "2g.20gb") + gpu("m", "", 4 / 7, unallocated=1))
    case("pending pods that want a MIG profile, against free instances and slices",
         carved + wants("fits", "1g_10gb") + wants("split", "3g_40gb") + wants("media", "1g_10gb_me") + wants("big", "7g_80gb") + kube("kube_pod_container_resource_requests", namespace="ml", pod="runs", container="c", resource="nvidia_com_mig_2g_20gb", unit="integer", node="n1"),
         {20: [samples("cluster:warpmeter_pending_mig_instances:sum", *((f'cluster:warpmeter_pending_mig_instances:sum{{cluster="c1",mig_profile="{profile}"}}', 1) for profile in ("1g.10gb", "1g.10gb+me", "3g.40gb", "7g.80gb"))),
               samples("cluster:warpmeter_free_mig_instances:count", ('cluster:warpmeter_free_mig_instances:count{cluster="c1",mig_profile="1g.10gb"}', 1)),
               samples("round(cluster:warpmeter_fragmented_mig_gpus:sum * 7, 0.01)", ('{cluster="c1"}', 4))]})
    case("a pending pod for whose profile an instance is free, or no slices are, is not fragmentation",
         carved + wants("fits", "1g_10gb") + wants("big", "7g_80gb"), {20: [samples("cluster:warpmeter_fragmented_mig_gpus:sum")]})
    labelled = lambda node, **labels: kube("kube_node_labels", node=node, **labels)
    case("a node whose GPUs only DRA gives out is known by its labels",
         daemon() + labelled("n1", label_nvidia_com_gpu_present="true") + labelled("n2", label_nvidia_com_gpu_present="true") + labelled("n3", label_feature_node_kubernetes_io_pci_10de_present="true")
         + labelled("n4", label_kubernetes_io_arch="amd64") + labelled("n5", label_nvidia_com_gpu_present="false"),
         {10: [], 30: [fires("WarpmeterNodeNotCovered", node="n2"), fires("WarpmeterNodeNotCovered", node="n3")]})
    case("how long jobs wait and run",
         daemon() + request("j-x", 1) + kube("kube_pod_owner", namespace="ml", pod="j-x", owner_kind="Job", owner_name="j", owner_is_controller="true")
         + kube("kube_job_created", 100, namespace="ml", job_name="j") + kube("kube_pod_status_scheduled_time", 400, namespace="ml", pod="j-x", uid="j")
         + kube("kube_job_status_start_time", 340, namespace="ml", job_name="j") + kube("kube_job_status_active", 1, namespace="ml", job_name="j")
         + kube("kube_job_created", 100, namespace="ml", job_name="cpu-only") + kube("kube_job_status_start_time", 100, namespace="ml", job_name="cpu-only") + kube("kube_job_status_completion_time", 200, namespace="ml", job_name="cpu-only"),
         {45: [samples("job:warpmeter_queue:seconds", ('job:warpmeter_queue:seconds{cluster="c1",namespace="ml",job_name="j"}', 300)),
               samples("job:warpmeter_duration:seconds", ('job:warpmeter_duration:seconds{cluster="c1",namespace="ml",job_name="j"}', 2360))]})
    case("a quota that is claimed and half used",
         daemon() + pod(active=0.5, no_evidence=0.5) + pod(name="b", uid="u2", gpu="g2", active=0.5, no_evidence=0.5)
         + kube("kube_resourcequota", 4, namespace="ml", resourcequota="q", resource="requests.nvidia.com/gpu", type="hard") + kube("kube_resourcequota", 2, namespace="ml", resourcequota="q", resource="requests.nvidia.com/gpu", type="used"),
         {45: [samples("namespace:warpmeter_quota_claimed:ratio", ('namespace:warpmeter_quota_claimed:ratio{cluster="c1",namespace="ml"}', 0.5)),
               samples("namespace:warpmeter_quota_utilization:ratio_rate30m", ('namespace:warpmeter_quota_utilization:ratio_rate30m{cluster="c1",namespace="ml"}', 0.25))]})
    serving = {"workload_kind": "Deployment", "workload": "serve"}
    hpa = lambda name, workload, metric: kube("kube_horizontalpodautoscaler_info", namespace="ml", horizontalpodautoscaler=name, scaletargetref_api_version="apps/v1", scaletargetref_kind="Deployment", scaletargetref_name=workload) + kube("kube_horizontalpodautoscaler_spec_target_metric", 80, namespace="ml", horizontalpodautoscaler=name, metric_name=metric, metric_target_type="utilization")
    case("an autoscaler of a GPU workload that looks at CPU only",
         daemon() + pod(active=0.5, no_evidence=0.5, info=serving) + pod(name="b", uid="u2", gpu="g2", active=0.5, no_evidence=0.5, info=serving | {"workload": "good"})
         + hpa("blind", "serve", "cpu") + hpa("sees", "good", "queue_depth") + hpa("web", "frontend", "cpu"),
         {45: [samples("workload:warpmeter_autoscaler_ignores_gpu:info", ('workload:warpmeter_autoscaler_ignores_gpu:info{cluster="c1",namespace="ml",horizontalpodautoscaler="blind",workload_kind="Deployment",workload="serve"}', 1))]})
    counter = lambda metric, rate, **labels: [series(metric, {"cluster": "c1", "namespace": "ml", "pod": "a"} | labels, Life().counter(rate))]
    case("CPU, disk and network beside the GPU, of pods that hold one",
         daemon() + pod(active=0.5, no_evidence=0.5)
         + counter("container_cpu_usage_seconds_total", 3, container="c") + counter("container_cpu_usage_seconds_total", 3, container="") + counter("container_cpu_usage_seconds_total", 3, pod="web", container="c")
         + counter("container_cpu_cfs_throttled_periods_total", 5, container="c") + counter("container_cpu_cfs_periods_total", 10, container="c")
         + counter("container_fs_reads_bytes_total", 1000, container="c", device="/dev/sda") + counter("container_fs_reads_bytes_total", 500, container="c", device="/dev/sdb")
         + counter("container_fs_writes_bytes_total", 10, container="c", device="/dev/sda")
         + counter("container_network_receive_bytes_total", 2000, interface="eth0") + counter("container_network_transmit_bytes_total", 200, interface="eth0"),
         {45: [samples(f"round(pod:warpmeter_{name}:{kind}rate30m, 0.001)", ('{cluster="c1",namespace="ml",pod="a"}', value))
               for name, kind, value in (("cpu_cores", "", 3), ("cpu_throttled", "ratio_", 0.5), ("disk_read_bytes", "", 1500), ("disk_written_bytes", "", 10), ("network_received_bytes", "", 2000), ("network_sent_bytes", "", 200))]})


def main():
    where = pathlib.Path(sys.argv[1])
    for family in (pods, starving, levels, free, telemetry, prices, devices, borrowing, joins):
        family()
    for index, (name, content) in enumerate(CASES):
        (where / f"{index:03}.json").write_text(json.dumps(content))
        (where / f"{index:03}.name").write_text(name)


if __name__ == "__main__":
    main()
