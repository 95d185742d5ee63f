#!/usr/bin/env bash
# Puts a program and the libraries that it and a driver's libraries need into an empty root file system.
#
# usage: deploy/image/assemble.sh PROGRAM ROOT
set -euo pipefail

program=$1 root=$2
machine=$(od -An -tx1 -j18 -N1 "$program" | tr -d ' ')
case $machine in
  3e) tuple=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 ;;
  b7) tuple=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1 ;;
  *) echo "assemble $program: it is of machine 0x$machine, neither x86-64 nor aarch64" >&2 && exit 65 ;;
esac
# Libraries that NVIDIA's are linked with, beside the program's own: the driver's come from the host, these do not.
libraries="libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1"

find_library() {
  for directory in "/lib/$tuple" "/usr/lib/$tuple" "/usr/$tuple/lib"; do
    [ -e "$directory/$1" ] && echo "$directory/$1" && return
  done
  echo "assemble: no $1 for $tuple here; install libc6 and libgcc-s1 of that architecture" >&2
  return 1
}

if [ -e "$root" ] && [ -n "$(ls -A "$root")" ]; then
  echo "assemble: $root is not empty" >&2 && exit 73
fi
mkdir -p "$root"/{dev,etc,proc,run/warpmeter,sys,"lib/$tuple"} "$root/$(dirname "$loader")"
for library in $libraries; do
  cp --dereference "$(find_library "$library")" "$root/lib/$tuple/$library"
done
cp --dereference "$(find_library "$(basename "$loader")")" "$root/$loader"
printf 'root:x:0:0:root:/:/nonexistent\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
install -D -m 0755 "$program" "$root/usr/bin/warpmeter"
