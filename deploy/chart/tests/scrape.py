"""A real Prometheus, configured as the operator would for the chart's PodMonitor, and as the plain sample says.

The cluster is made up: pods are given by file, with the labels that discovery gives them.
"""

import copy
import http.server
import json
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import yaml

from chart import ROOT

SAMPLE = ROOT / "deploy/prometheus/prometheus.yml"
NODES = ("node-1", "node-2")
WORKLOAD = ("namespace", "pod", "container", "endpoint")
# What Prometheus adds for each target.
OWN = re.compile(r"up|scrape_.*")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(text):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def samples(text):
    """Labels of every sample of an exposition, its name among them."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = re.match(r"(\w+)(\{(.*)\})? \S+$", line).groups()
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest or ""))
            # To Prometheus an empty label is none.
            labels = {key: re.sub(r"\\(.)", r"\1", value) for key, value in labels.items() if value}
            yield {"__name__": name, **labels}


def pods(labels, addresses):
    """The pods of the made-up cluster: the daemon's, and those that must not be scraped."""

    def pod(name, node, address, **changes):
        meta = {f"pod_label_{key}": value for key, value in labels.items()}
        meta |= {f"pod_labelpresent_{key}": "true" for key in labels}
        meta |= {
            "namespace": "gpu", "pod_name": name, "pod_node_name": node, "pod_phase": "Running", "pod_ready": "true",
            "pod_container_name": "warpmeter", "pod_container_port_name": "metrics", "pod_uid": "daemon-" + name,
        }
        meta |= changes
        return {"targets": [address], "labels": {f"__meta_kubernetes_{key}": value for key, value in meta.items()}}

    first, second = addresses
    stranger = {f"pod_label_{key}": "other" for key in labels}
    return [
        pod("warpmeter-a", NODES[0], first),
        # One that is not ready is scraped: its figures say why.
        pod("warpmeter-b", NODES[1], second, pod_ready="false"),
        pod("stranger", NODES[0], first, **stranger),
        pod("warpmeter-c", "gone", first, pod_phase="Failed"),
        pod("warpmeter-d", "other-port", first, pod_container_port_name="debug"),
    ]


def snake(rule):
    return {re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), key): value for key, value in rule.items()}


def operators_job(monitor):
    """What the Prometheus operator makes of a PodMonitor with one endpoint, in its order."""
    name = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    endpoint = copy.deepcopy(endpoint)
    port = endpoint.pop("port")
    relabel = [
        {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
    ]
    for key, value in spec["selector"]["matchLabels"].items():
        key = re.sub(r"\W", "_", key)
        sources = [f"__meta_kubernetes_pod_label_{key}", f"__meta_kubernetes_pod_labelpresent_{key}"]
        relabel.append({"action": "keep", "source_labels": sources, "regex": f"({re.escape(value)});true"})
    relabel.append({"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": port})
    for source, label in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod")):
        relabel.append({"source_labels": [f"__meta_kubernetes_{source}"], "target_label": label})
    relabel.append({"target_label": "job", "replacement": name})
    job = re.sub(r"\W", "_", spec["jobLabel"])
    source = f"__meta_kubernetes_pod_label_{job}"
    relabel.append({"source_labels": [source], "target_label": "job", "regex": "(.+)", "replacement": "${1}"})
    relabel.append({"target_label": "endpoint", "replacement": port})
    relabel += [snake(rule) for rule in endpoint.pop("relabelings", [])]
    relabel += [
        {"source_labels": ["__address__"], "target_label": "__tmp_hash", "modulus": 1, "action": "hashmod"},
        {"source_labels": ["__tmp_hash"], "regex": "0", "action": "keep"},
    ]
    scrape = {"job_name": f"podMonitor/{name}/0", "honor_labels": endpoint.pop("honorLabels", False)}
    scrape["metric_relabel_configs"] = [snake(rule) for rule in endpoint.pop("metricRelabelings", [])]
    assert not endpoint, f"fields that this does not know: {endpoint}"
    return {**scrape, "relabel_configs": relabel}


class Prometheus:
    """A server with one job over made-up pods."""

    def __init__(self, scratch: pathlib.Path, name, job, found):
        self.directory = scratch / name
        self.directory.mkdir()
        (self.directory / "pods.json").write_text(json.dumps(found))
        job = {key: value for key, value in job.items() if key != "kubernetes_sd_configs"}
        job["file_sd_configs"] = [{"files": [str(self.directory / "pods.json")]}]
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
        self.config = self.directory / "prometheus.yml"
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))
        self.port = free_port()
        self.log = (self.directory / "log").open("w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={self.directory}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
            stdout=self.log, stderr=self.log,
        )

    def query(self, text):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    def series(self, targets):
        """All series, once so many targets were scraped."""
        for _ in range(150):
            if sum(float(up["value"][1]) for up in self.query("min_over_time(up[10s])")) == targets:
                return [found["metric"] for found in self.query('{__name__=~".+"}')]
            time.sleep(0.2)
        return None

    def stop(self):
        self.process.terminate()
        self.process.wait(10)
        self.log.close()


def wrong(found, wanted):
    """What is wrong with the series of a Prometheus that scraped `wanted` from each node."""
    if found is None:
        return ["the targets were not scraped within half a minute"]
    problems = []
    own = [series for series in found if OWN.fullmatch(series["__name__"])]
    for series in own:
        if series.keys() - {"__name__"} != {"job", "instance", "node"}:
            problems.append(f"a target's own series: {series}")
    targets = sorted((s["job"], s["instance"], s.get("node")) for s in own if s["__name__"] == "up")
    if targets != [("warpmeter", node, node) for node in NODES]:
        problems.append(f"targets {targets}")
    scraped = sorted(sorted(s.items()) for s in found if not OWN.fullmatch(s["__name__"]))
    # What the daemon says, and of the target: job, instance, and the node where the daemon names none.
    right = [{"node": node, **labels, "job": "warpmeter", "instance": node} for node in NODES for labels in wanted]
    right = sorted(sorted(labels.items()) for labels in right)
    for labels in [labels for labels in scraped if labels not in right][:5]:
        problems.append(f"a series that should not be: {dict(labels)}")
    for labels in [labels for labels in right if labels not in scraped][:5]:
        problems.append(f"no such series: {dict(labels)}")
    if len(scraped) != len(right):
        problems.append(f"{len(scraped)} series instead of {len(right)}")
    return problems


def run(report, monitor, scratch):
    if not shutil.which("prometheus"):
        return report.skip("a real Prometheus", "prometheus is not installed")
    text = (ROOT / "tests/golden/shared-node.prom").read_text()
    wanted = list(samples(text))
    devices = [labels for labels in wanted if labels["__name__"].startswith("warpmeter_gpu_")]
    workloads = [labels for labels in wanted if labels["__name__"].startswith("warpmeter_pod_")]
    mixed = [labels for labels in devices if labels.keys() & set(WORKLOAD)]
    enough = len(devices) > 100 and len(workloads) > 100 and not mixed
    report.check("the exposition has series of devices without a pod, and series of pods", None if enough else mixed or "too few")

    plain = yaml.safe_load(SAMPLE.read_text())["scrape_configs"][0]
    job = operators_job(monitor)
    careless = {**job, "honor_labels": False}
    careless["relabel_configs"] = [rule for rule in job["relabel_configs"] if rule.get("action") != "labeldrop"]
    labels = {re.sub(r"\W", "_", key): value for key, value in monitor["spec"]["selector"]["matchLabels"].items()}

    servers = [serve(text) for _ in NODES]
    found = pods(labels, [f"127.0.0.1:{server.server_address[1]}" for server in servers])
    jobs = {"operator": job, "plain": plain, "careless": careless}
    running = {name: Prometheus(scratch, name, config, found) for name, config in jobs.items()}
    try:
        for name in ("operator", "plain"):
            checked = subprocess.run(["promtool", "check", "config", running[name].config], capture_output=True, text=True)
            report.check(f"{name}: promtool check config", checked.stderr + checked.stdout if checked.returncode else None)
            what = f"{name}: a real Prometheus keeps the workloads' labels, and devices have none of the daemon's"
            report.check(what, wrong(running[name].series(len(NODES)), wanted))
        careless = wrong(running["careless"].series(len(NODES)), wanted)
        seen = any("a series that should not be" in problem for problem in careless)
        report.check("a monitor without these settings would not pass", None if seen else f"it passes: {careless}")
    finally:
        for prometheus in running.values():
            prometheus.stop()
        for server in servers:
            server.shutdown()


def documentation(report):
    """What docs/scraping.md shows is what the sample and the PodMonitor do."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/scraping.md").read_text(), re.S)
    shown = [yaml.safe_load(block) for block in blocks]
    (job,) = next(block for block in shown if "scrape_configs" in block)["scrape_configs"]
    (wanted,) = yaml.safe_load(SAMPLE.read_text())["scrape_configs"]
    tls = {"scheme", "tls_config", "authorization"}
    report.equal("docs/scraping.md: the job is that of the sample, but for TLS", {key: job[key] for key in job.keys() - tls}, wanted)
    monitor = next(block for block in shown if block.get("kind") == "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    made = yaml.safe_load((ROOT / "deploy/manifests/podmonitor.yaml").read_text())
    (right,) = made["spec"]["podMetricsEndpoints"]
    report.equal("docs/scraping.md: the endpoint is that of the chart's PodMonitor, but for TLS", {key: endpoint.get(key) for key in right}, right)
    report.equal("docs/scraping.md: the job of the PodMonitor", monitor["spec"].get("jobLabel"), made["spec"]["jobLabel"])


def sample(report, scratch):
    """The sample's own text. Debian builds Prometheus without Kubernetes discovery, so that part is looked at here."""
    text = SAMPLE.read_text()
    (scrape,) = yaml.safe_load(text)["scrape_configs"]
    discovery = [{"role": "pod", "namespaces": {"names": ["warpmeter"]}}]
    report.equal("the sample discovers the pods of the namespace", scrape["kubernetes_sd_configs"], discovery)
    checked = subprocess.run(["promtool", "check", "config", SAMPLE], capture_output=True, text=True)
    if "kubernetes_sd_configs not found" in checked.stdout + checked.stderr:
        without = re.sub(r"kubernetes_sd_configs:\n.*\n.*\n", "static_configs: []\n", text)
        without = without.replace("../rules/", f"{ROOT}/deploy/rules/")
        file = scratch / "sample.yml"
        file.write_text(without)
        checked = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True)
    report.check("promtool check config takes the sample and its rules", checked.stdout + checked.stderr if checked.returncode else None)
    rules = "alert rules" if "rules found" not in checked.stdout else None
    report.check("the sample loads the rules", rules)
