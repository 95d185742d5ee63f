#!/usr/bin/env bash
# Everything about the rules, by the tools that read them: promtool, amtool. Closing line: `N passed, N failed`.
# Needs promtool 2.42 or later and python3 (its standard library); amtool and Alertmanager if they are there, else those
# checks are skipped (REQUIRE_AMTOOL=1 makes that a failure). JOBS=4 runs so many cases at once; a word runs only cases whose names have it.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
only=${1:-}
work=$(mktemp -d)
alertmanager_pid=
trap '[ -z "$alertmanager_pid" ] || kill "$alertmanager_pid"; rm -rf "$work"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf 'FAILED %s\n' "$1"; [ -z "${2:-}" ] || sed 's/^/    /' "$2"; }
check() { # NAME COMMAND…
  local name=$1
  shift
  if "$@" >"$work/out" 2>&1; then ok; else bad "$name" "$work/out"; fi
}
must_fail() {
  local name=$1
  shift
  if "$@" >"$work/out" 2>&1; then bad "$name" "$work/out"; else ok; fi
}

# What inhibits what, by a real Alertmanager: alerts are sent to it, and those that it would hold back are asked for.
inhibitions() { # BINARY CONFIG
  local port url
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  url=http://127.0.0.1:$port
  "$1" --config.file="$2" --storage.path="$work/alertmanager" --cluster.listen-address= --web.listen-address="127.0.0.1:$port" \
    --log.level=error >"$work/alertmanager.log" 2>&1 &
  alertmanager_pid=$!
  for _ in $(seq 100); do amtool --alertmanager.url="$url" alert query >/dev/null 2>&1 && break || sleep 0.1; done
  send() { amtool --alertmanager.url="$url" alert add "$@"; }
  send alertname=WarpmeterAllocatedIdle severity=warning cluster=c1 node=n1 namespace=ml pod=a pod_uid=u1
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n1 namespace=ml pod=a pod_uid=u1
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n1 namespace=ml pod=b pod_uid=u2
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c2 node=n1 namespace=ml pod=a pod_uid=u1
  send alertname=WarpmeterDataStarved severity=warning cluster=c1 node=n1 namespace=ml pod=e pod_uid=u5
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n1 namespace=ml pod=e pod_uid=u5
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n1 namespace=ml pod=f pod_uid=u6
  send alertname=WarpmeterDataStarved severity=warning cluster=c1 node=n2 namespace=ml pod=g pod_uid=u7
  send alertname=WarpmeterSourceDown severity=warning cluster=c1 node=n8 source=probes
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n8 namespace=ml pod=h pod_uid=u8
  send alertname=WarpmeterTargetDown severity=warning cluster=c1 node=n2 instance=n2
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n2 namespace=ml pod=d pod_uid=u4
  send alertname=WarpmeterGpuThrottled severity=warning cluster=c1 node=n2 gpu_uuid=g2
  send alertname=WarpmeterSourceDown severity=warning cluster=c1 node=n3 source=nvidia
  send alertname=WarpmeterGpuLost severity=critical cluster=c1 node=n3 gpu_uuid=g3
  send alertname=WarpmeterSourceDown severity=warning cluster=c1 node=n4 source=names
  send alertname=WarpmeterTimeUnknown severity=warning cluster=c1 node=n4 gpu_uuid=g4
  send alertname=WarpmeterGpuXid severity=critical cluster=c1 node=n5 gpu_uuid=g5 xid=79
  send alertname=WarpmeterGpuLost severity=critical cluster=c1 node=n5 gpu_uuid=g5
  send alertname=WarpmeterGpuLost severity=critical cluster=c1 node=n5 gpu_uuid=g6
  send alertname=WarpmeterGpuXid severity=info cluster=c1 node=n6 gpu_uuid=g7 xid=31
  send alertname=WarpmeterTimeUnknown severity=warning cluster=c1 node=n6 gpu_uuid=g7
  send alertname=WarpmeterGpuEccUncorrected severity=critical cluster=c1 node=n7 gpu_uuid=g8
  send alertname=WarpmeterGpuRowRemap severity=warning cluster=c1 node=n7 gpu_uuid=g8
  # Pods beside a broken device.
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 node=n5 namespace=ml pod=i pod_uid=u9
  send alertname=WarpmeterAllocatedIdle severity=warning cluster=c1 node=n5 namespace=ml pod=j pod_uid=u10
  # Targets without `node`: each instance for itself.
  send alertname=WarpmeterTargetDown severity=warning cluster=c1 instance=i1
  send alertname=WarpmeterGpuLost severity=critical cluster=c1 instance=i1 gpu_uuid=h1
  send alertname=WarpmeterGpuLost severity=critical cluster=c1 instance=i2 gpu_uuid=h2
  send alertname=WarpmeterPodUnder30Percent severity=warning cluster=c1 namespace=ml pod=k pod_uid=u11
  send alertname=WarpmeterUnallocated severity=warning cluster=c1
  send alertname=WarpmeterSourceDown severity=warning cluster=c1 instance=i3 source=nvidia
  send alertname=WarpmeterTimeUnknown severity=warning cluster=c1 instance=i3 gpu_uuid=h3
  send alertname=WarpmeterTimeUnknown severity=warning cluster=c1 instance=i4 gpu_uuid=h4
  # One cluster is not scraped, another is, but for a node.
  send alertname=WarpmeterAbsent severity=critical cluster=c3
  send alertname=WarpmeterNodeNotCovered severity=warning cluster=c3 node=n9
  send alertname=WarpmeterNodeNotCovered severity=warning cluster=c4 node=n9
  amtool --alertmanager.url="$url" -o json alert query --inhibited | python3 -c '
import json, sys
for alert in json.load(sys.stdin):
    labels = alert["labels"]
    if alert["status"]["inhibitedBy"]:
        print(labels["alertname"], labels["cluster"], labels.get("gpu_uuid") or labels.get("pod") or labels.get("node"))' | sort >"$work/inhibited"
  kill "$alertmanager_pid" && wait "$alertmanager_pid" 2>/dev/null || true
  alertmanager_pid=
  cat >"$work/expected" <<'LIST'
WarpmeterDataStarved c1 g
WarpmeterGpuLost c1 g3
WarpmeterGpuLost c1 g5
WarpmeterGpuLost c1 h1
WarpmeterGpuRowRemap c1 g8
WarpmeterGpuThrottled c1 g2
WarpmeterNodeNotCovered c3 n9
WarpmeterPodUnder30Percent c1 a
WarpmeterPodUnder30Percent c1 d
WarpmeterPodUnder30Percent c1 e
WarpmeterTimeUnknown c1 h3
LIST
  check "alertmanager: the consequence is inhibited by the cause, and nothing else is" diff "$work/expected" "$work/inhibited"
}

command -v promtool >/dev/null || { echo "promtool is needed (Debian: apt-get install prometheus)" >&2; exit 2; }

if [ -z "$only" ]; then
  check "promtool check rules" promtool check rules warpmeter.rules.yaml
  check "the manifest is current" ./generate.py --check
  # The manifest without its frame is a rule file again: the same rules.
  sed -n '/^spec:/,$p' warpmeter.prometheusrule.yaml | sed '1d; s/^  //' >"$work/manifest.yaml"
  check "promtool check rules (manifest)" promtool check rules "$work/manifest.yaml"
  grep -v '^ *#' warpmeter.rules.yaml | sed -n '/^groups:/,$p' | grep -v '^$' >"$work/plain"
  grep -v '^$' "$work/manifest.yaml" >"$work/unframed"
  check "the manifest and the plain file agree" diff "$work/plain" "$work/unframed"
  ./generate.py --plain --runbooks https://example.com/main >"$work/linked.yaml"
  check "promtool check rules (with links)" promtool check rules "$work/linked.yaml"

  check "names, labels, values, pages" ./check.py --queries "$work/queries.yaml"
  check "promtool parses every query of the pages and descriptions" promtool check rules "$work/queries.yaml"

  # The check of names must be able to fail.
  mkdir -p "$work/tree/deploy/rules" "$work/tree/docs" "$work/tree/exporter"
  cp -r $root/docs/runbooks "$work/tree/docs/"
  cp $root/exporter/*.golden "$work/tree/exporter/"
  cp check.py "$work/tree/deploy/rules/"
  for change in 's/warpmeter_gpu_up\[5m\]/warpmeter_gpu_alive[5m]/' 's/cause!~"source_lost/cause!~"source_gone/' \
    's/warpmeter_source_up{source=/warpmeter_source_up{origin=/' 's/runbook_url: docs\/runbooks\/WarpmeterGpuLost/runbook_url: docs\/runbooks\/Lost/'; do
    sed "$change" warpmeter.rules.yaml >"$work/tree/deploy/rules/warpmeter.rules.yaml"
    must_fail "check.py notices $change" "$work/tree/deploy/rules/check.py"
  done

  if command -v amtool >/dev/null; then
    config=../alertmanager/alertmanager.yaml
    check "amtool check-config" amtool check-config $config
    route() { # RECEIVER LABELS…
      local receiver=$1
      shift
      check "alertmanager: $* goes to $receiver" amtool config routes test --config.file $config --verify.receivers "$receiver" "$@"
    }
    route workload-owners alertname=WarpmeterPodUnder30Percent severity=warning namespace=ml workload=train
    route workload-owners alertname=WarpmeterDataStarved severity=warning namespace=ml workload=train
    route workload-owners alertname=WarpmeterAllocatedIdle severity=warning namespace=ml
    route workload-owners alertname=WarpmeterNamespaceUnder30Percent severity=warning namespace=ml
    route capacity alertname=WarpmeterClusterUnder30Percent severity=warning
    route capacity alertname=WarpmeterUnallocated severity=warning node=n1
    route gpu-platform alertname=WarpmeterSourceDown severity=warning node=n1
    route gpu-platform alertname=WarpmeterScrapedTwice severity=warning gpu_uuid=g1
    route nobody alertname=WarpmeterSourceDegraded severity=info node=n1 source=prices
    route on-call alertname=WarpmeterGpuLost severity=critical node=n1
    route on-call alertname=WarpmeterGpuXid severity=critical xid=79
    route nobody alertname=WarpmeterGpuXid severity=info xid=31
    route default alertname=KubePodNotReady severity=warning
    # An inhibition or route that names an alert which does not exist does nothing, silently.
    grep -o 'Warpmeter[A-Z][A-Za-z0-9]*' $config | sort -u >"$work/named"
    grep -o 'alert: Warpmeter[A-Za-z0-9]*' warpmeter.rules.yaml | sed 's/alert: //' | sort -u >"$work/alerts"
    check "alertmanager: every alert that it names exists" test -z "$(comm -23 "$work/named" "$work/alerts")"
    if command -v prometheus-alertmanager >/dev/null; then alertmanager=prometheus-alertmanager; else alertmanager=alertmanager; fi
    if command -v $alertmanager >/dev/null; then
      inhibitions $alertmanager $config
    else
      echo "skipped: what inhibits what, for want of alertmanager"
    fi
  elif [ -n "${REQUIRE_AMTOOL:-}" ]; then
    bad "amtool is missing (Debian: apt-get install prometheus-alertmanager)"
  else
    echo "skipped: the Alertmanager example, for want of amtool (Debian: apt-get install prometheus-alertmanager)"
  fi
fi

mkdir "$work/cases"
python3 cases.py "$work/cases"
for name in "$work"/cases/*.name; do
  grep -qF -- "$only" "$name" || rm -f "$name" "${name%.name}.json"
done
find "$work/cases" -name '*.json' -print0 | sort -z |
  xargs -0 -r -n 1 -P "${JOBS:-2}" sh -c 'promtool test rules "$1" >"${1%.json}.log" 2>&1 && touch "${1%.json}.ok" || true' case
# Every alert must have fired in some case: an alert without one is not tested.
for alert in $(grep -o 'alert: Warpmeter[A-Za-z0-9]*' warpmeter.rules.yaml | sed 's/alert: //' | sort -u); do
  [ -n "$only" ] || check "a case in which $alert fires" grep -rqs "exp_samples\": \[{\"labels\": \"{alertname=\\\\\"[^]]*$alert" "$work/cases"
done
for name in "$work"/cases/*.name; do
  [ -e "$name" ] || continue
  if [ -e "${name%.name}.ok" ]; then ok; else bad "$(cat "$name")" "${name%.name}.log"; fi
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
