"""All checks of the chart; test.sh brings the tools."""

import argparse
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import yaml

import container
import daemonset
import nodes
import schemas
import scrape
import values
from chart import CHART, ROOT, Helm, matrix, of_kind, only
from report import Report


def rendering(report, helms, node):
    """Lint, every combination, the schemas. Gives the objects of the operator's kinds."""
    documents = []
    for name, options in matrix():
        rendered = []
        for helm in helms:
            linted = helm.run("lint", "--strict", ".", *options)
            report.check(f"helm {helm.major} lint --strict, {name}", linted.stdout + linted.stderr if linted.returncode else None)
            objects, problem = helm.template(*options)
            report.check(f"helm {helm.major} template, {name}", problem)
            rendered.append(objects)
        report.check(f"helm 3 and 4 render the same, {name}", None if rendered[0] == rendered[1] else "they differ")
        if not all(rendered):
            continue
        values_name, access, profile = name.split(", ")
        report.check(f"schemas of Kubernetes, {name}", schemas.kubernetes(rendered[0]))
        report.check(f"what must be true, {name}", daemonset.problems(rendered[0], values_name, access, profile))
        documents += [document for document in rendered[0] if document["apiVersion"].startswith(schemas.OPERATOR)]
    for option in ("openFiles=false", "seccompProfile.type=Unconfined", "kubelet.podLogs=/var/log", "config.names.api=true"):
        objects, _ = helms[0].template("--set", "profile=counters", "--set", option)
        seen = daemonset.problems(objects, "defaults", "runtimeClass", "counters")
        report.check(f"what must be true is not with {option}", None if seen else "nothing was noticed")
    unique = {yaml.safe_dump(document): document for document in documents}
    return list(unique.values())


def operators_kinds(report, node, documents):
    """The operator's objects, and some with mistakes, which must be found."""
    monitor = next(document for document in documents if document["kind"] == "PodMonitor")
    spoilt = []
    for change in (
        lambda endpoint: endpoint.update(honorlabels=True),
        lambda endpoint: endpoint.update(honorLabels="yes"),
        lambda endpoint: endpoint["relabelings"][0].update(action="dropall"),
    ):
        copy = yaml.safe_load(yaml.safe_dump(monitor))
        change(copy["spec"]["podMetricsEndpoints"][0])
        spoilt.append(copy)
    results = schemas.operator(node, documents + spoilt)
    for document, problems in zip(documents, results):
        report.check(f"CRD of {document['kind']} {document['metadata']['name']}", problems)
    for number, problems in enumerate(results[len(documents) :], 1):
        report.check(f"mistake {number} in a PodMonitor is found", None if problems else "it is not")


def rules(report, helm, scratch):
    """The chart's rules are those of deploy/rules: one file, of which there is no second copy."""
    source = yaml.safe_load((ROOT / "deploy/rules/warpmeter.rules.yaml").read_text())
    manifest = yaml.safe_load((ROOT / "deploy/rules/warpmeter.prometheusrule.yaml").read_text())
    objects, _ = helm.template("--set", "prometheusRule.enabled=true")
    spec = only(objects, "PrometheusRule")["spec"]
    report.check("the chart's rules are those of deploy/rules", None if spec == source else "they differ")
    report.check("and those of the manifest", None if spec == manifest["spec"] else "they differ")
    file = scratch / "rules.yaml"
    file.write_text(yaml.safe_dump(spec, sort_keys=False, width=1000))
    checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    report.check("promtool check rules takes the chart's", checked.stdout + checked.stderr if checked.returncode else None)
    prefix = "https://git.example.com/main"
    objects, _ = helm.template("--set", "prometheusRule.enabled=true", "--set", f"prometheusRule.runbooks={prefix}/")
    groups = only(objects, "PrometheusRule")["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
    odd = [link for link in links if not (ROOT / link.removeprefix(prefix + "/")).is_file()]
    report.check("links to runbooks lead to a page", odd if links else "no links")


def package(report, helm, scratch):
    packed = helm.run("package", ".", "--destination", str(scratch))
    if packed.returncode:
        return report.check(f"helm {helm.major} package", packed.stderr)
    (archive,) = scratch.glob("*.tgz")
    with tarfile.open(archive) as tar:
        members = {member.name.removeprefix("warpmeter/"): member for member in tar.getmembers()}
        file = members.get("files/warpmeter.rules.yaml")
        text = tar.extractfile(file).read().decode() if file and file.isfile() else ""
    right = text == (ROOT / "deploy/rules/warpmeter.rules.yaml").read_text()
    report.check(f"helm {helm.major} package: the rules are in it", None if right else "they are not")
    tests = [name for name in members if name.startswith("test")]
    report.check(f"helm {helm.major} package: the tests are not", tests)
    packaged = subprocess.run([helm.program, "template", "x", str(archive)], capture_output=True, text=True)
    report.check(f"helm {helm.major} template of the package", packaged.stderr if packaged.returncode else None)
    archive.unlink()


def notes(report, helm):
    """What is said after an installation fits what was installed."""
    for options, words in (
        ([], ["enforce=privileged", "No price", "podMonitor.enabled"]),
        (["--set", "deviceAccess=cdi"], ["NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES"]),
        (["--set", "deviceAccess=privileged"], ["root on the node"]),
        (["--set", "profile=full"], ['warpmeter/probes: "off"']),
        (["--set", "profile=counters"], ["stalls have no causes"]),
        (["--set", "profile=counters", "--set", "openFiles=false"], ["stalls have no causes", "idle/no_process"]),
    ):
        shown = helm.run("install", "warpmeter", ".", "--dry-run=client", "--namespace", "gpu", *options)
        text = shown.stdout[shown.stdout.find("NOTES:") :]
        missing = [word for word in words if word not in text]
        report.check(f"helm {helm.major}: notes with {options}", shown.stderr if shown.returncode else missing)


def manifests(report, helms):
    """The committed manifests are what the chart renders, for each way to the devices."""
    directory = ROOT / "deploy/manifests"
    for helm in helms:
        checked = subprocess.run(
            [directory / "generate.sh", "--check"], env={**os.environ, "HELM": helm.program}, capture_output=True, text=True
        )
        report.check(f"helm {helm.major}: the manifests are current", checked.stdout + checked.stderr if checked.returncode else None)
    for access in ("cdi", "runtimeclass", "privileged"):
        objects = list(yaml.safe_load_all((directory / f"warpmeter-{access}.yaml").read_text()))
        report.check(f"manifest {access}: schemas of Kubernetes", schemas.kubernetes(objects))
        levels = only(objects, "Namespace")["metadata"]["labels"]
        pod = only(objects, "DaemonSet")["spec"]["template"]["spec"]
        host = pod["hostPID"] or any("hostPath" in volume for volume in pod["volumes"])
        right = host and levels["pod-security.kubernetes.io/enforce"] == "privileged"
        report.check(f"manifest {access}: its namespace admits its pods", None if right else str(levels))
        inside = {document["metadata"].get("namespace") for document in objects if document["kind"] != "Namespace"}
        report.equal(f"manifest {access}: all in that namespace", inside, {only(objects, "Namespace")["metadata"]["name"]})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    tools = parser.parse_args().tools.resolve()
    helms = [Helm(major, tools / f"helm{major}/helm/helm") for major in (3, 4)]
    warpmeter = os.path.abspath(os.environ["WARPMETER"])
    report = Report()
    with tempfile.TemporaryDirectory(prefix="warpmeter-chart-") as directory:
        scratch = pathlib.Path(directory)
        documents = rendering(report, helms, tools / "node")
        monitor = yaml.safe_load((ROOT / "deploy/manifests/podmonitor.yaml").read_text())
        operators_kinds(report, tools / "node", [*documents, monitor])
        values.run(report, helms, warpmeter, scratch)
        nodes.run(report, helms[0])
        for helm in helms:
            package(report, helm, scratch)
        # Helm 3 asks a cluster even if it is told not to.
        notes(report, helms[-1])
        rules(report, helms[0], scratch)
        manifests(report, helms)
        scrape.sample(report, scratch)
        scrape.documentation(report)
        objects, _ = helms[0].template("--set", "podMonitor.enabled=true", release="gpu-metrics")
        (monitor,) = of_kind(objects, "PodMonitor")
        scrape.run(report, monitor, scratch)
        container.run(report, helms[0], warpmeter, os.environ["LIBCUDA"], scratch)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
