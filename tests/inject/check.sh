#!/usr/bin/env bash
# Records of CUPTI as the injected library reads them, beside NVIDIA's own headers and libraries of several versions: those
# of the packages on PyPI, which are fetched, compiled against and never kept. Fails if a field is elsewhere, a function
# is missing, or a library does not step over records as its header has them.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
scratch=$target/inject-check
mkdir -p "$scratch"

cargo build --quiet --release -p warpmeter-inject --example layouts
"$target/release/examples/layouts" >"$scratch/ours"

# What the headers take from the compiler's package, as far as structures depend on it: alignment.
mkdir -p "$scratch/crt"
cat >"$scratch/crt/host_defines.h" <<'END'
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define CUDARTAPI
#define CUDAAPI
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
END

# The newest structure of a header whose name begins so: the one without a number is the oldest.
newest() { grep -oE "^} $1[0-9]+;" "$2" | tr -dc '0-9\n' | sort -n | tail -1; }

for version in cu11==11.8 cu12==12.0 cu12==12.4 cu12==12.8 cu12==12.9 13.0 13; do
  place=$scratch/$version
  case $version in
    cu1*) suffix=-${version%%==*} wanted="==${version##*==}.*" ;;
    *) suffix="" wanted="==$version.*" ;;
  esac
  [ -d "$place" ] || python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$place" \
    "nvidia-cuda-cupti$suffix$wanted" "nvidia-cuda-runtime$suffix$wanted"
  activity=$(find "$place" -name cupti_activity.h | head -1)
  driver=$(find "$place" -name cuda.h | head -1)
  library=$(find "$place" -name 'libcupti.so.*' | head -1)
  structures=()
  for name in Kernel Memcpy Memset; do
    structures+=("-D${name^^}=CUpti_Activity$name$(newest "CUpti_Activity$name" "$activity")")
  done
  gcc -w -o "$scratch/reference" -I "$(dirname "$activity")" -I "$(dirname "$driver")" -I "$scratch" "${structures[@]}" \
    tests/inject/reference.c -ldl
  printf '%-12s ' "$version"
  "$scratch/reference" "$library" >"$scratch/theirs"
  diff "$scratch/ours" "$scratch/theirs"
done
