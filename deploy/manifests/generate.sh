#!/usr/bin/env bash
# Writes the plain manifests from the chart. `--check` fails instead if one of them is not current.
# Needs helm (HELM names another).
set -euo pipefail
cd "$(dirname "$0")"
helm=${HELM:-helm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Pod Security: hostPID and hostPath are refused below "privileged", whatever the container may do.
namespace() {
  cat <<'MANIFEST'
---
apiVersion: v1
kind: Namespace
metadata:
  name: warpmeter
  labels:
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/audit: privileged
    pod-security.kubernetes.io/warn: privileged
MANIFEST
}
render() { # NAME OPTION…
  local name=$1
  shift
  {
    printf '# Made by generate.sh from deploy/chart with: %s. Do not edit.\n' "$*"
    case $name in podmonitor) ;; *) namespace ;; esac
    "$helm" template warpmeter ../chart --namespace warpmeter "$@" 2>"$work/log" | sed '/^# Source: /d'
  } >"$work/$name.yaml" || { cat "$work/log" >&2; exit 1; }
}

render warpmeter-runtimeclass --set deviceAccess=runtimeClass
render warpmeter-cdi --set deviceAccess=cdi
render warpmeter-privileged --set deviceAccess=privileged
render podmonitor --set podMonitor.enabled=true --show-only templates/podmonitor.yaml

if [ "${1:-}" = --check ]; then
  for file in "$work"/*.yaml; do
    diff -u "$(basename "$file")" "$file" || { echo "$(basename "$file") is not current: run deploy/manifests/generate.sh" >&2; exit 1; }
  done
else
  cp "$work"/*.yaml .
fi
