"""The values: their schema, what it refuses, and the daemon's configuration in them."""

import json
import re
import subprocess
import tomllib

import yaml

from chart import CHART, ROOT, only, toml_of

# Values whose fields are Kubernetes' own or free names; the objects that come of them are checked.
OPEN = {
    "affinity", "tolerations", "resources", "extraEnv", "extraVolumes", "extraVolumeMounts", "extraInitContainers", "config",
    "global", "endpoint", "tlsConfig", "relabelings", "metricRelabelings", "from", "apiServer", "httpHeaders",
}

# What is set, and a part of what must be answered.
REFUSED = (
    (["profile=everything"], "counters"),
    (["profile="], "profile"),
    (["deviceAccess=hostPath"], "deviceAccess"),
    (["deviceaccess=cdi"], "deviceaccess"),
    (["image.repositry=x"], "repositry"),
    (["image.repository=UPPER/x"], "repository"),
    (["image.digest=abc"], "digest"),
    (["image.tag=a b"], "tag"),
    (["image.pullPolicy=Sometimes"], "pullPolicy"),
    (["port=0"], "port"),
    (["port=65536"], "port"),
    (["port=metrics"], "port"),
    (["listenAddress=localhost"], "listenAddress"),
    (["updateStrategy.rollingUpdate.maxSurge=1"], "maxSurge"),
    (["updateStrategy.rollingUpdate.maxUnavailable=half"], "maxUnavailable"),
    (["updateStrategy.type=Recreate"], "type"),
    (["openFiles=maybe"], "openFiles"),
    (["cdi.device=all"], "device"),
    (["cdi.request=resource"], "request"),
    (["runtimeClass.request=annotation"], "request"),
    (["kubelet.rootDir=var/lib/kubelet"], "rootDir"),
    (["control.hostPath=run"], "hostPath"),
    (["privileged.driver=nvidia"], "driver"),
    (["config.price=2.95"], "price"),
    (["config.bpf.enabled=false"], "set profile: counters"),
    (["profile=counters", "config.bpf.enabled=true"], "profile: full"),
    (["profile=counters", "config.bpf.enabled=auto"], "profile: full"),
    (["config=x"], "config"),
    (["config.http.listen=1.2.3.4:1"], "set listenAddress and port instead"),
    (["deviceAccess=privileged", "config.nvidia.libraries={/x}"], "empty one of them"),
    (["pmSampling.toolkit=cuda"], "toolkit"),
    (["pmSampling.enabled=true", "config.cupti.enabled=false"], "contradicts pmSampling.enabled"),
    (["pmSampling.enabled=true", "config.cupti.libraries={/x}"], "empty one of them"),
    (["runtimeClass.create=true", "runtimeClass.name="], "needs runtimeClass.name"),
    (["criticalPodsQuota=1", "priorityClassName="], "needs priorityClassName"),
    (["podMonitor.enable=true"], "enable"),
    (["podMonitor.interval=often"], "interval"),
    (["networkPolicy.apiServerPorts={https}"], "apiServerPorts"),
    (["gpuNodes.any[0].labels=x"], "labels"),
    (["livenessProbe.periodSeconds=0"], "periodSeconds"),
    (["seccompProfile.type=Off"], "seccompProfile"),
    (["podLabels.x.y=z"], "podLabels"),
    (["podLabels.app\\.kubernetes\\.io/name=other"], "podLabels: app.kubernetes.io/name is the chart's own"),
    (["podLabels.app\\.kubernetes\\.io/instance=other"], "podLabels: app.kubernetes.io/instance is the chart's own"),
    (["commonLabels.app\\.kubernetes\\.io/name=other"], "commonLabels: app.kubernetes.io/name is the chart's own"),
    (["commonLabels.app\\.kubernetes\\.io/instance=other"], "commonLabels: app.kubernetes.io/instance is the chart's own"),
    (["config.host.node=n1"], "NODE_NAME has the node's"),
    (["config.host.proc=/host/proc"], "mount it by extraVolumes"),
    (["config.host.dev=/device"], "mount it by extraVolumes"),
    (["config.kubelet.socket=/var/lib/k0s/kubelet/pod-resources/kubelet.sock"], "set kubelet.rootDir instead"),
    (["config.kubelet.pod_logs=/l/pods"], "set kubelet.podLogs instead"),
    (["config.kubelet.container_logs=/l/containers"], "set kubelet.containerLogs instead"),
    (["config.control.socket=/run/other/control.sock"], "set control.hostPath"),
    (["config.control.socket=/run/warpmeter-2/control.sock"], "set control.hostPath"),
    (["config.http.tls_certificate=/tls/tls.crt", "podMonitor.enabled=true"], "podMonitor.tlsConfig: with"),
    (["config.http.tls_certificate=/tls/tls.crt", "probeRequest.scheme=HTTP"], "probeRequest.scheme: HTTP"),
    (["config.http.tls_certificate=/tls/tls.crt", "podMonitor.enabled=true", "podMonitor.tlsConfig.serverName=x", "podMonitor.endpoint.scheme=http"], "podMonitor.endpoint.scheme"),
    (["podMonitor.enabled=true", "podMonitor.tlsConfig.serverName=x", "podMonitor.endpoint.tlsConfig.serverName=y"], "empty one of them"),
    (["serviceMonitor.enabled=true"], "serviceMonitor"),
)


def open_objects(schema, path=""):
    """Objects of the schema that take unknown fields without being meant to."""
    for name, part in schema.get("properties", {}).items():
        yield from open_objects(part, f"{path}.{name}")
    for part in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from open_objects(part, path)
    if schema.get("type") == "object" and "additionalProperties" not in schema and path.split(".")[-1] not in OPEN:
        yield path
    if schema.get("additionalProperties") is True:
        yield path


def undocumented(text):
    """Values at the top that have no comment: above them, above the group that they are in, or on what is in them."""
    for group in re.split(r"\n\n+", text):
        if "#" not in group:
            yield from re.findall(r"^\w+(?=:)", group, re.M)


def every_key():
    """A configuration with every key that the daemon knows: the one that its own test reads."""
    text = (ROOT / "daemon/src/config/tests.rs").read_text()
    start = text.index("fn every_key_is_taken")
    # A date has no quotes in TOML and has to have them in YAML; the daemon takes both.
    return json.loads(json.dumps(tomllib.loads(text[text.index('r#"', start) + 3 : text.index('"#', start)]), default=str))


def taken(warpmeter, scratch, name, text):
    """What the daemon has against a configuration."""
    file = scratch / f"{name}.toml"
    file.write_text(text)
    # It reads the configuration first, and then lacks the recording.
    result = subprocess.run([warpmeter, "replay", "--config", file, "/nonexistent/recording"], capture_output=True, text=True)
    if "/nonexistent/recording" in result.stderr and result.returncode == 1:
        return None
    return f"exit {result.returncode}: {result.stderr}"


def run(report, helms, warpmeter, scratch):
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    report.check("every object of the schema is closed", list(open_objects(schema)))
    report.equal("the schema has every value and no other", sorted(schema["properties"].keys() - {"global"}), sorted(values))
    for name, part in schema["properties"].items():
        if "properties" in part and name not in ("livenessProbe", "readinessProbe"):
            absent = set(part["properties"]) - set(values[name])
            report.check(f"{name}: every value that may be set is shown", absent if not name_is_kubernetes(name) else None)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    report.equal("the chart's appVersion is the daemon's version", chart["appVersion"], cargo)
    report.check("every value has a comment", list(undocumented(text)))

    for helm in helms:
        for settings, answer in REFUSED:
            _, problem = helm.template(*[word for setting in settings for word in ("--set", setting)])
            wrong = None if answer in problem else f"answered: {problem or 'nothing; it was taken'}"
            report.check(f"helm {helm.major}: {' '.join(settings)} is refused, and named", wrong)

        config = every_key()
        del config["http"]
        # A node's name cannot be that of all.
        del config["host"]["node"]
        # Numbers keep their digits on the way from YAML to TOML; beyond these Helm 4 writes powers of ten.
        config["price"].update({"T4": 0.0001, "A10": 50000, "B200": 999999.99, "L40S": 0.35})
        file = scratch / "every-key.yaml"
        mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("host", "k", "l")]
        volumes = [{"name": name, "emptyDir": {}} for name in ("host", "k", "l")]
        profile = "full" if config["bpf"]["enabled"] else "counters"
        file.write_text(yaml.safe_dump({"config": config, "profile": profile, "extraVolumes": volumes, "extraVolumeMounts": mounts}))
        objects, problem = helm.template("-f", str(file))
        report.check(f"helm {helm.major}: every key of the configuration is taken", problem)
        found = tomllib.loads(toml_of(objects))
        report.equal(f"helm {helm.major}: the address comes from the chart", found.pop("http"), {"listen": "0.0.0.0:9408"})
        report.equal(f"helm {helm.major}: every key arrives as it was written", found, config)
        report.check(f"helm {helm.major}: the daemon takes every key", taken(warpmeter, scratch, "every-key", toml_of(objects)))

        prices(report, helm, scratch)
        tls(report, helm)

    objects, _ = helms[0].template("--set", "config.price.h100=cheap", "--set", "config.prices.H100=1")
    problem = taken(warpmeter, scratch, "wrong", toml_of(objects)) or ""
    told = "exit 64" in problem and "`[prices]`" in problem and "`h100` in [price]" in problem
    report.check("what the daemon does not know it refuses with its place", None if told else problem or "it was taken")

    for settings, enabled in (([], "auto"), (["profile=counters"], False), (["config.bpf.enabled=true"], True), (["profile=counters", "config.bpf.enabled=false"], False)):
        objects, _ = helms[0].template(*[word for setting in settings for word in ("--set", setting)])
        name = " ".join(settings) or "the default"
        report.equal(f"probes by the profile, {name}", tomllib.loads(toml_of(objects))["bpf"], {"enabled": enabled})
        report.check(f"the daemon takes it, {name}", taken(warpmeter, scratch, "profile", toml_of(objects)))

    cuda = [f"/host/cuda/{part}" for part in ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")]
    for settings, cupti in (
        ([], None),
        (["pmSampling.enabled=true"], {"enabled": True, "libraries": cuda}),
        (["pmSampling.enabled=true", "pmSampling.toolkit="], {"enabled": True}),
        (["pmSampling.enabled=true", "config.cupti.architectures={hopper}"], {"enabled": True, "libraries": cuda, "architectures": ["hopper"]}),
    ):
        objects, _ = helms[0].template(*[word for setting in settings for word in ("--set", setting)])
        name = " ".join(settings) or "the default"
        report.equal(f"performance monitors, {name}", tomllib.loads(toml_of(objects)).get("cupti"), cupti)
        report.check(f"the daemon takes them, {name}", taken(warpmeter, scratch, "monitors", toml_of(objects)))

    before, _ = helms[0].template()
    after, _ = helms[0].template("--set", "config.price.H100=3")
    sums = [
        next(d for d in o if d["kind"] == "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for o in (before, after)
    ]
    report.check("a change of the configuration restarts the pods", None if sums[0] != sums[1] else "same checksum")


def prices(report, helm, scratch):
    """A number of `--set` that is not whole is a string to Helm, and a large one of a file has an exponent with Helm 4."""
    objects, _ = helm.template("--set", "config.price.H100=2.95", "--set", "config.price.B200=5e+06")
    report.equal(f"helm {helm.major}: prices by --set arrive as strings", tomllib.loads(toml_of(objects))["price"], {"H100": "2.95", "B200": "5e+06"})
    file = scratch / "large.yaml"
    file.write_text("config: { price: { H100: 2.95, B200: 5000000 } }\n")
    objects, _ = helm.template("-f", str(file))
    report.equal(f"helm {helm.major}: prices of a file arrive as numbers", tomllib.loads(toml_of(objects))["price"], {"H100": 2.95, "B200": 5e6})
    written = {3: "B200 = 5000000.0", 4: "B200 = 5e+06"}[helm.major]
    report.check(f"helm {helm.major}: a large one is written as {written}", None if written in toml_of(objects) else toml_of(objects))


def tls(report, helm):
    """Where the endpoints answer by TLS, whoever asks them does so by TLS."""
    certificate = ["--set", "config.http.tls_certificate=/tls/tls.crt", "--set", "config.http.tls_key=/tls/tls.key"]
    monitor = ["--set", "podMonitor.enabled=true"]
    for options, probes, scheme, config in (
        (monitor, None, None, None),
        ([*certificate, *monitor, "--set", "podMonitor.tlsConfig.serverName=w"], "HTTPS", "https", {"serverName": "w"}),
        ([*certificate, *monitor, "--set", "podMonitor.endpoint.tlsConfig.serverName=w", "--set", "podMonitor.endpoint.scheme=https"], "HTTPS", "https", {"serverName": "w"}),
        ([*monitor, "--set", "podMonitor.tlsConfig.serverName=w", "--set", "podMonitor.endpoint.scheme=https", "--set", "probeRequest.scheme=HTTPS"], "HTTPS", "https", {"serverName": "w"}),
    ):
        objects, problem = helm.template(*options)
        if problem:
            report.check(f"helm {helm.major}: TLS by {options}", problem)
            continue
        (container,) = only(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
        found = (*(container[probe]["httpGet"].get("scheme") for probe in ("livenessProbe", "readinessProbe")), endpoint.get("scheme"), endpoint.get("tlsConfig"))
        report.equal(f"helm {helm.major}: TLS by {options}", found, (probes, probes, scheme, config))
    objects, problem = helm.template(*certificate)
    report.check(f"helm {helm.major}: TLS without a PodMonitor needs no tlsConfig", problem)


def name_is_kubernetes(name):
    return name in ("probeRequest", "seccompProfile", "appArmorProfile", "seLinuxOptions")
