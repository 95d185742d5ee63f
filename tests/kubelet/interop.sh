#!/usr/bin/env bash
# The kubelet source against a server of another make: grpcio for Python, from the same definition.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet grpcio grpcio-tools
mkdir "$work/stubs"
"$work/venv/bin/python" -m grpc_tools.protoc -I tests/kubelet \
  --python_out="$work/stubs" --grpc_python_out="$work/stubs" podresources.proto

# The server ends when nobody holds the other end of its input.
mkfifo "$work/input"
"$work/venv/bin/python" tests/kubelet/server.py "$work/kubelet.sock" "$work/stubs" <"$work/input" >"$work/log" 2>&1 &
server=$!
exec 9>"$work/input"
for _ in $(seq 100); do [ -S "$work/kubelet.sock" ] && break; sleep 0.1; done
cat "$work/log"

# One test must have run: a filter that matches none is no failure to cargo.
WARPMETER_KUBELET_SOCKET="$work/kubelet.sock" \
  cargo test --quiet -p warpmeter --lib kubelet::tests::interop -- --ignored | tee "$work/result"
grep -q '1 passed' "$work/result"
