#!/usr/bin/env bash
# Runs the tests of the kernel programs on other kernels, under emulation.
# Usage: kernels.sh DIRECTORY..., each with an unpacked kernel package (boot/vmlinuz-*, lib/modules), e.g. from
#   apt-get download linux-image-6.12.117+deb12-amd64 && dpkg-deb -x linux-image-*.deb DIRECTORY
# Needs qemu-system-x86_64, busybox (static), cpio, xz, mkfs.ext4. A filter for test names: TESTS=classes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

programs=$(cargo test -p warpmeter-ebpf-tests --test programs --no-run --message-format json |
  sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | sort -u)
test_program=$(grep '/deps/programs-' <<<"$programs")
helper=$(grep '/probed$' <<<"$programs")
object=$PWD/ebpf/objects/warpmeter.o

root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,modules,root,scratch}
cp "$(command -v busybox)" "$root/bin/busybox"
# Everything lies in the guest where the test looks for it.
for file in "$test_program" "$helper" "$object" "$(dirname "$test_program")"/libsimgpu_{cuda,nvml}.so /bin/sleep; do
  mkdir -p "$root$(dirname "$file")"
  cp "$file" "$root$file"
  [[ $file == *.o ]] || strip "$root$file"
  ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true
done | sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
# The test's paths are made of its package's directory.
mkdir -p "$root$PWD/ebpf/tests/programs"

cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root RUST_BACKTRACE=0 TMPDIR=/scratch SLOWNESS=20
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
mount -t tracefs t /sys/kernel/tracing
ip link set lo up
for round in 1 2 3; do for module in /modules/*.ko; do insmod \$module 2>/dev/null; done; done
sleep 1
mount -t ext4 /dev/vda /scratch || echo "no disk"
echo "kernel \$(uname -r)"
$test_program --test-threads=1 ${TESTS:-} ${NOCAPTURE:+--nocapture}
echo "kernel \$(uname -r) ended with \$?"
poweroff -f
INIT
chmod +x "$root/init"

for kernel in "$@"; do
  rm -f "$root"/modules/*
  for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk crc16 crc32c_generic \
    libcrc32c mbcache jbd2 ext4; do
    file=$(find "$kernel/lib/modules" -name "$module.ko*" | head -1)
    case "$file" in
      *.xz) xz -dc "$file" >"$root/modules/$module.ko" ;;
      ?*) cp "$file" "$root/modules/" ;;
    esac
  done
  (cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
  truncate -s 1G "$work/disk"
  mkfs.ext4 -q -F "$work/disk"
  timeout 900 qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 3072 -nographic -no-reboot -kernel "$kernel"/boot/vmlinuz-* \
    -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" -drive "file=$work/disk,format=raw,if=virtio,cache=none" |
    tee "$work/log"
  grep -q 'ended with 0' "$work/log" || { echo "kernels.sh: $kernel failed" >&2; failed=1; }
done
exit "${failed:-0}"
