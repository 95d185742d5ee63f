"""Objects against the schemas of Kubernetes and of the Prometheus operator."""

import json
import pathlib
import subprocess

import kubernetes_validate

# The oldest that Chart.yaml allows, the oldest with everything in use, and the newest.
VERSIONS = ("1.25", "1.30", "1.37")
OPERATOR = "monitoring.coreos.com/"


def kubernetes(objects):
    """What is wrong with those that are Kubernetes' own, in any of the versions."""
    problems = []
    for document in objects:
        if document["apiVersion"].startswith(OPERATOR):
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(map(str, error.path))
                problems.append(f"{document['kind']} in {version}: {path}: {error.message[:300]}")
    return problems


def operator(node: pathlib.Path, documents):
    """For each of the operator's objects, what is wrong with it: unknown fields by the compiler, which checks the literal
    against the type, and forms of values by the CRD's own validation."""
    scratch = node / "check"
    scratch.mkdir(exist_ok=True)
    package = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"
    head = f'import {{ IPodMonitor, PodMonitor, IPrometheusRule, PrometheusRule }} from "{package}";\n'
    typed = [f"export const a{n}: I{d['kind']} = {json.dumps(d)};" for n, d in enumerate(documents)]
    (scratch / "check.ts").write_text(head + "\n".join(typed) + "\n")
    options = "--noEmit --strict --skipLibCheck --target es2022 --module nodenext --moduleResolution nodenext".split()
    compiled = subprocess.run(
        ["npx", "--no-install", "tsc", *options, "check.ts"], cwd=scratch, capture_output=True, text=True
    )
    problems = [[] for _ in documents]
    for line in compiled.stdout.splitlines():
        if line.startswith("check.ts("):
            row = int(line.split("(")[1].split(",")[0]) - 2
            problems[row if 0 <= row < len(documents) else 0].append(line[:400])
    if compiled.returncode and not any(problems):
        problems[0].append(f"tsc: {compiled.stdout[:400]}{compiled.stderr[:400]}")
    script = f"""import {{ PodMonitor, PrometheusRule }} from "{package}";
for (const d of {json.dumps(documents)}) {{
  let problem = "";
  try {{ new ({{ PodMonitor, PrometheusRule }})[d.kind](d).validate(); }} catch (error) {{ problem = String(error.message); }}
  console.log(JSON.stringify(problem));
}}"""
    (scratch / "check.mjs").write_text(script)
    checked = subprocess.run(["node", "check.mjs"], cwd=scratch, capture_output=True, text=True)
    lines = checked.stdout.splitlines()
    if checked.returncode or len(lines) != len(documents):
        problems[0].append(f"node: {checked.stderr[:400]}")
    for row, line in enumerate(lines):
        if json.loads(line):
            problems[row].append(json.loads(line)[:400])
    return problems
