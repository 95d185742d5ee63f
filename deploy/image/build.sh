#!/usr/bin/env bash
# Builds the program for an architecture and assembles the image's root file system.
#
# usage: deploy/image/build.sh amd64|arm64 ROOT
# On Debian as root it installs the cross compiler that it lacks.
set -euo pipefail
cd "$(dirname "$0")/../.."

arch=$1 root=$2
case $arch in
  amd64) target=x86_64-unknown-linux-gnu ;;
  arm64) target=aarch64-unknown-linux-gnu ;;
  *) echo "build for $arch: unknown; it can be amd64 or arm64" >&2 && exit 64 ;;
esac
tuple=${target%%-*}-linux-gnu
if [ "$(rustc --print host-tuple)" != "$target" ]; then
  if ! command -v "$tuple-gcc" >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "gcc-${tuple//_/-}" "libc6-dev-$arch-cross" >/dev/null
  fi
  rustup target add "$target" >/dev/null 2>&1
  variable=$(tr 'a-z-' 'A-Z_' <<<"$target")
  export "CARGO_TARGET_${variable}_LINKER=$tuple-gcc" "CC_${target//-/_}=$tuple-gcc"
fi
cargo build --release --locked --quiet --package warpmeter --target "$target"
deploy/image/assemble.sh "${CARGO_TARGET_DIR:-target}/$target/release/warpmeter" "$root"
