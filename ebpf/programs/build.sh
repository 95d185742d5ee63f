#!/usr/bin/env bash
# Builds the kernel programs: ebpf/objects/*.o, stripped, the same bytes wherever and by whom they are built.
# Usage: build.sh [output directory]. Needs bpf-linker 0.10.4 (in PATH or $BPF_LINKER), rust-src, llvm-objcopy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=$(realpath -m "${1:-../objects}")
toolchain=${BPF_TOOLCHAIN:-1.95.0}
linker=${BPF_LINKER:-$(command -v bpf-linker)} || { echo "build.sh: no bpf-linker: cargo install bpf-linker --version 0.10.4 --locked" >&2; exit 1; }
objcopy=${OBJCOPY:-llvm-objcopy}
expected="bpf-linker 0.10.4"
target=${CARGO_TARGET_DIR:-target}/bpf

sysroot=$(rustc "+$toolchain" --print sysroot)
common=$(realpath ../common)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
flags=('--cfg=bpf_target_arch="x86_64"' -Ctarget-cpu=v3 -Cdebuginfo=2 -Clink-arg=--btf "-Clinker=$linker"
  "--remap-path-prefix=$PWD=/programs" "--remap-path-prefix=$common=/common" "--remap-path-prefix=$cargo_home/registry/src=/registry"
  "--remap-path-prefix=$sysroot=/rust" "--remap-path-prefix=$(readlink -f "$sysroot")=/rust")
export RUSTC_BOOTSTRAP=1
export CARGO_ENCODED_RUSTFLAGS
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
# The linker finds the compiler's LLVM where cargo says.
version=$(LD_LIBRARY_PATH="$sysroot/lib" "$linker" --version 2>/dev/null || true)
[ "$version" = "$expected" ] || { echo "build.sh: $linker is '$version', not '$expected': other versions make other bytes" >&2; exit 1; }

cargo "+$toolchain" build --locked --release --target bpfel-unknown-none -Z build-std=core --target-dir "$target"
mkdir -p "$out"
for object in warpmeter; do
  "$objcopy" -g "$target/bpfel-unknown-none/release/$object" "$out/$object.o"
  sha256sum "$out/$object.o"
done
