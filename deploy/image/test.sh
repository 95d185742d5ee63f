#!/usr/bin/env bash
# Builds the image's root file systems and runs them: amd64 in a container of runc, as the chart runs it, on a simulated
# node; arm64 under emulation, where a recording must give the same metrics to the byte.
#
# usage: deploy/image/test.sh        as root; on Debian it installs what it lacks
set -euo pipefail
cd "$(dirname "$0")/../.."

checks=0
check() { checks=$((checks + 1)) && echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2 && exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

missing=""
have runc || missing="$missing runc"
have qemu-aarch64-static || missing="$missing qemu-user-static"
have jq || missing="$missing jq"
have buildah || missing="$missing buildah"
if [ -n "$missing" ]; then
  apt-get update -qq
  # shellcheck disable=SC2086 # a list
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
fi

work=$(mktemp -d)
container=warpmeter-image-$$
cleanup() {
  runc delete --force "$container" >/dev/null 2>&1 || true
  [ -z "${workload:-}" ] || kill "$workload" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# What is built natively is shared with the other recipes.
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --quiet -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
deploy/image/assemble.sh "$target/release/warpmeter" "$work/bundle/rootfs"
deploy/image/build.sh arm64 "$work/arm64"
check "both architectures build"

for root in "$work/bundle/rootfs" "$work/arm64"; do
  size=$(du -sk "$root" | cut -f1)
  [ "$size" -lt 20480 ] || fail "the root file system is larger than 20 MiB: $size KiB"
  [ -z "$(find "$root" -perm /6000)" ] || fail "a set-user-id file"
  [ ! -e "$root/bin/sh" ] || fail "a shell"
  check "$(basename "$root"): $((size / 1024)) MiB, no shell, nothing set-user-id"
done

# The image itself: the Dockerfile's last stage over the root that its first one would have made.
cp --archive "$work/bundle/rootfs" "$work/root-file-system"
sed -n '/^FROM scratch/,$p' deploy/image/Dockerfile | sed 's/--from=build //' >"$work/Dockerfile"
storage=(--storage-driver vfs --root "$work/images" --runroot "$work/images-run")
buildah "${storage[@]}" build-using-dockerfile --quiet --isolation chroot --tag warpmeter --file "$work/Dockerfile" "$work" >/dev/null
command=$(buildah "${storage[@]}" inspect --type image warpmeter | jq -c '.OCIv1.config | .Entrypoint + .Cmd')
[ "$command" = '["warpmeter","run"]' ] || fail "the image runs $command"
buildah "${storage[@]}" push --quiet warpmeter "oci-archive:$work/image.tar" >/dev/null
check "the image: $(($(stat -c %s "$work/image.tar") / 1024 / 1024)) MiB compressed, runs $command"

# The emulator is static, so that inside the root it finds nothing but the image's own loader and libraries.
cp "$(command -v qemu-aarch64-static)" "$work/arm64/qemu"
arm64() { chroot "$work/arm64" /qemu /usr/bin/warpmeter "$@"; }
[ "$(arm64 --version)" = "$("$target/release/warpmeter" --version)" ] || fail "arm64 says another version"
check "arm64: $(arm64 --version)"
for recording in tests/fixtures/recordings/*; do
  cp "$recording" "$work/arm64/recording"
  arm64 replay /recording >"$work/arm64.prom"
  "$target/release/warpmeter" replay "$recording" >"$work/amd64.prom"
  [ -s "$work/amd64.prom" ] && cmp -s "$work/arm64.prom" "$work/amd64.prom" || fail "$recording replays differently"
  check "arm64 replays $(basename "$recording") to the same $(wc -l <"$work/amd64.prom") lines"
done

# A node with one simulated GPU, its driver where a driver container has it.
driver=$work/driver/usr/lib/x86_64-linux-gnu
mkdir -p "$work/pod-resources" "$driver"
printf '[[gpu]]\nmodel = "H100"\n' >"$work/node.toml"
"$target/release/simgpu" create --scenario "$work/node.toml" --state "$work/node" --libraries "$driver"
SIMGPU_STATE=$work/node "$target/release/warpmeter-workload" trainer --library "$driver/libcuda.so.1" &
workload=$!

# What the chart asks for: root, no capability but those named, no new privileges, a root that cannot be written.
runc spec --bundle "$work/bundle"
bind() { printf '{"destination":"%s","type":"bind","source":"%s","options":["rbind","%s","nosuid"]}' "$2" "$1" "$3"; }
jq --arg state "$work/node" --argjson command "$command" \
  --argjson capabilities '["CAP_SYS_PTRACE"]' \
  --argjson mounts "[$(bind "$work/driver" /run/nvidia/driver ro),$(bind "$work/node" "$work/node" rw)]" '
  .process.args = $command | .process.terminal = false | .process.noNewPrivileges = true
  | .process.env += ["SIMGPU_STATE=" + $state, "NODE_NAME=node-a"]
  | .process.capabilities = ({bounding: $capabilities, effective: $capabilities, permitted: $capabilities})
  | .root.readonly = true
  | .linux.namespaces |= map(select(.type != "pid" and .type != "network"))
  | .mounts += $mounts
  | .mounts += [{"destination": "/run/warpmeter", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}]
' "$work/bundle/config.json" >"$work/config.json"
mv "$work/config.json" "$work/bundle/config.json"
runc run --detach --bundle "$work/bundle" "$container" >"$work/log" 2>&1 </dev/null || fail "runc: $(cat "$work/log")"

metrics=$work/metrics
for _ in $(seq 100); do
  if curl -sf http://127.0.0.1:9408/metrics >"$metrics" && grep -q '^warpmeter_gpu_up{.*} 1' "$metrics"; then
    break
  fi
  sleep 0.3
done
grep -q '^warpmeter_gpu_up{.*} 1' "$metrics" || fail "no GPU in the container: $(cat "$work/log")"
check "amd64 in a container: the driver is found, a GPU is read"
for _ in $(seq 50); do
  curl -sf http://127.0.0.1:9408/metrics >"$metrics"
  active=$(sed -n 's/^warpmeter_gpu_engine_active_seconds_total{.*} //p' "$metrics")
  if awk "BEGIN { exit !(${active:-0} > 0.5) }"; then break; fi
  sleep 0.3
done
awk "BEGIN { exit !(${active:-0} > 0.5) }" || fail "the trainer's work is not seen: $active"
grep -q '^warpmeter_conservation_error_seconds 0$' "$metrics" || fail "$(grep conservation "$metrics")"
check "its work is seen, and every second is accounted for"
runc exec "$container" warpmeter release >/dev/null
runc exec "$container" warpmeter resume >/dev/null
check "release and resume from inside the container"
runc kill "$container" TERM
for _ in $(seq 50); do
  [ "$(runc state "$container" 2>/dev/null | jq -r .status)" = running ] || break
  sleep 0.1
done
[ "$(runc state "$container" | jq -r .status)" = stopped ] || fail "it does not end at SIGTERM"
check "ends at SIGTERM"
echo "$checks checks passed"
