#!/usr/bin/env bash
# The autoscaling samples against schemas and by promtool. Needs python3 with PyPI, and promtool; the schema of KEDA's
# ScaledObject comes from npm, and is skipped where there is none (REQUIRE_NPM=1 makes that a failure).
set -euo pipefail
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-../../target}
mkdir -p "$target" && target=$(realpath "$target")
venv=$target/autoscaling

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import kubernetes_validate, yaml' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate

"$venv/bin/python" check.py

if command -v npm >/dev/null && command -v node >/dev/null; then
  models=$target/autoscaling-models
  mkdir -p "$models"
  [ -d "$models/node_modules/@kubernetes-models/keda" ] ||
    npm install --silent --no-fund --no-audit --prefix "$models" @kubernetes-models/keda@2 >/dev/null
  "$venv/bin/python" -c 'import json, yaml; print(json.dumps(yaml.safe_load(open("keda-scaledobject.yaml"))))' |
    (cd "$models" && node --input-type=module -e '
      import { readFileSync } from "node:fs";
      import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
      const sample = JSON.parse(readFileSync(0, "utf8"));
      const must = (change) => { const bad = structuredClone(sample); change(bad); return bad; };
      new ScaledObject(sample).validate();
      for (const bad of [must((s) => delete s.spec.triggers), must((s) => (s.spec.cooldownPeriod = "1800"))]) {
        let refused = false;
        try { new ScaledObject(bad).validate(); } catch { refused = true; }
        if (!refused) throw new Error("the schema refuses nothing");
      }
      console.log("keda-scaledobject.yaml follows the schema");
    ')
else
  echo "skipped: the schema of ScaledObject needs npm and node"
  [ -z "${REQUIRE_NPM:-}" ]
fi
