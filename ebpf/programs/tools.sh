#!/usr/bin/env bash
# Gets what build.sh takes beside the workspace's compiler: rust-src, llvm-objcopy, bpf-linker. Prints the linker's path.
# What is there already is not fetched again. Where something cannot be had it says so and exits with 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
toolchain=${BPF_TOOLCHAIN:-1.95.0}
version=0.10.4
target=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")
log=$target/bpf-tools.log
mkdir -p "$target"

lacking() { # WHAT
  echo "tools.sh: cannot get $1; the end of what was said of it ($log):" >&2
  tail -n 5 "$log" >&2
  exit 3
}

sysroot=$(rustc "+$toolchain" --print sysroot 2>"$log") || lacking "the compiler $toolchain (it takes rustup)"
[ -e "$sysroot/lib/rustlib/src/rust/library/core/Cargo.toml" ] ||
  rustup component add rust-src --toolchain "$toolchain" >"$log" 2>&1 || lacking "rust-src of $toolchain"

command -v "${OBJCOPY:-llvm-objcopy}" >/dev/null ||
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends llvm; } >"$log" 2>&1 ||
  lacking "llvm-objcopy (Debian: llvm)"

# The linker's own libraries are the compiler's: without that it does not even tell its version.
is_it() { [ "$(LD_LIBRARY_PATH="$sysroot/lib" "$1" --version 2>/dev/null)" = "bpf-linker $version" ]; }
linker=${BPF_LINKER:-$(command -v bpf-linker || true)}
if [ -z "$linker" ] || ! is_it "$linker"; then
  # A directory for each version, so that another one is built anew. Half a minute on two cores.
  root=$target/bpf-linker-$version
  linker=$root/bin/bpf-linker
  is_it "$linker" || CARGO_TARGET_DIR=$root/build timeout 600 \
    cargo "+$toolchain" install --quiet --locked --force --version "$version" --root "$root" bpf-linker >"$log" 2>&1 ||
    lacking "bpf-linker $version"
  rm -rf "$root/build"
  is_it "$linker" || lacking "a bpf-linker that runs: $linker does not say that it is $version"
fi

RUSTC_BOOTSTRAP=1 cargo "+$toolchain" fetch --locked --target bpfel-unknown-none -Z build-std=core >"$log" 2>&1 ||
  lacking "the crates that the programs are made of"
echo "$linker"
