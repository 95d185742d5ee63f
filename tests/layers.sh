#!/usr/bin/env bash
# Dependencies point one way: core knows nobody, its neighbours know only core, the product knows no simulator, and
# what is injected into other programs knows none of it.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() { echo "layers: $*" >&2; failed=1; }

# Direct normal dependencies of a package, one name a line.
direct() { cargo tree --offline -p "$1" -e normal --depth 1 --prefix none --format '{p}' | tail -n +2 | cut -d' ' -f1 | sort -u; }
# All of them.
all() { cargo tree --offline -p "$1" -e normal --prefix none --format '{p}' | cut -d' ' -f1 | sort -u; }

for name in $(direct warpmeter-core); do
  case "$name" in serde | thiserror) ;; *) complain "core must stay pure, and depends on $name" ;; esac
done
for name in $(direct warpmeter-inject-page); do
  complain "the page of injected libraries is linked by both sides, and depends on $name"
done
for pair in "warpmeter-exporter:aya nvml-wrapper nvml-wrapper-sys cudarc warpmeter-cuda warpmeter-ebpf" \
            "warpmeter-cuda:aya tokio prometheus warpmeter-ebpf warpmeter-exporter" \
            "warpmeter-inject:aya tokio prometheus serde nvml-wrapper warpmeter-core warpmeter-cuda warpmeter-ebpf warpmeter-exporter" \
            "warpmeter-ebpf:tokio prometheus nvml-wrapper cudarc warpmeter-cuda warpmeter-exporter" \
            "warpmeter:warpmeter-inject warpmeter-simgpu warpmeter-simkubelet warpmeter-workload warpmeter-demo warpmeter-tests prost"; do
  package=${pair%%:*}
  tree=$(all "$package")
  for banned in ${pair#*:}; do
    if grep -qx "$banned" <<<"$tree"; then complain "$package must not depend on $banned"; fi
  done
done

[ "$failed" = 0 ] && echo "layers: dependencies point one way"
exit "$failed"
