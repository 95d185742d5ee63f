#!/usr/bin/env bash
# The dashboards and rules by the tools that read them. A real Prometheus scrapes the demo and the exporter's golden
# exposition, evaluates the rules, and must answer every query of every panel with data; then Grafana's own data library
# makes series and tables of the answers. Takes two minutes.
# Needs prometheus and promtool 2.42 or later, Python 3.11 or later with PyPI, and root (the demo's cgroups). Node 18 or
# later with npm for Grafana's library, else that part is skipped (REQUIRE_NODE=1 makes that a failure).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
venv=$target/dashboards
node=$target/dashboards-node
here=deploy/dashboards

cargo build --quiet --release -p warpmeter-demo
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import grafana_foundation_sdk' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r $here/requirements.txt

"$venv/bin/python" $here/generate.py --check
"$venv/bin/python" $here/test.py "$target/dashboards-answers.json" "$target/release/warpmeter-demo"

if command -v npm >/dev/null; then
  mkdir -p "$node"
  cmp -s $here/grafana/package.json "$node/package.json" || {
    cp $here/grafana/package.json "$node/"
    (cd "$node" && npm install --silent --no-audit --no-fund --no-package-lock --legacy-peer-deps --ignore-scripts) || { rm "$node/package.json"; exit 1; }
  }
  node $here/grafana/panels.cjs "$node" "$target/dashboards-answers.json"
elif [ -n "${REQUIRE_NODE:-}" ]; then
  echo "npm is missing (Debian: apt-get install npm)" >&2
  exit 1
else
  echo "skipped: what Grafana's library makes of the answers, for want of npm"
fi
