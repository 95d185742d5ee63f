#!/usr/bin/env bash
# The dashboards and rules by the tool that reads them: a real Prometheus scrapes the demo and the exporter's golden
# exposition, evaluates the rules, and must answer every query of every panel with data. Takes two minutes.
# Needs prometheus and promtool 2.42 or later, Python 3.11 or later with PyPI, and root (the demo's cgroups).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/dashboards
here=deploy/dashboards

cargo build --quiet --release -p warpmeter-demo
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import grafana_foundation_sdk' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r $here/requirements.txt

"$venv/bin/python" $here/generate.py --check
exec "$venv/bin/python" $here/test.py "$target/release/warpmeter-demo"
