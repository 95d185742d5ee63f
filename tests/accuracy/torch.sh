#!/usr/bin/env bash
# Installs PyTorch for the study, for its DataLoader, and gRPC: torch.sh DIRECTORY (about 1.5 GiB; from PyPI).
#
# The wheel links NVIDIA's math libraries, several GiB that are never called here. Stand-ins with the right names and
# symbol versions take their place; the CUDA runtime and CUPTI, which run code when they are loaded, are the real ones.
set -euo pipefail
directory=$1
mkdir -p "$directory/stubs"
[ -e "$directory/venv" ] || python3 -m venv "$directory/venv"
python=$directory/venv/bin/python
"$python" -m pip install --quiet --no-deps --no-cache-dir torch==2.15.0 nvidia-cuda-runtime==13.5.37 nvidia-cuda-cupti==13.5.25
# All that they need is named: pip would ask for the libraries that the stand-ins replace.
"$python" -m pip install --quiet --no-deps --no-cache-dir grpcio==1.85.3 numpy==2.4.6 typing_extensions==4.16.0 filelock==4.3.1 \
  fsspec==2026.9.0 jinja2==3.1.6 markupsafe==3.0.4 networkx==3.6.1 sympy==1.14.0 mpmath==1.3.0
# Functions of the stand-ins are bound when they are first called, which is never; in every process of the venv.
echo 'import os, sys; sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)' >"$("$python" -c 'import site; print(site.getsitepackages()[0])')/lazy.pth"
"$python" - "$directory" <<'PYTHON'
import collections, glob, re, subprocess, sys

directory = sys.argv[1]
# By library and version: the symbols that PyTorch's own libraries take from it.
wanted, needed, ours = collections.defaultdict(lambda: collections.defaultdict(set)), set(), set()
for library in glob.glob(f"{directory}/venv/lib/python3*/site-packages/torch/lib/*.so*"):
    read = lambda *words: subprocess.run(["readelf", "-W", *words, library], capture_output=True, text=True, check=True).stdout
    ours.add(library.rsplit("/", 1)[1])
    needed.update(re.findall(r"NEEDED.*\[(.+)\]", read("-d")))
    file, of = None, {}
    for line in read("-V").splitlines():
        if found := re.search(r"Version: 1\s+File: (\S+)", line):
            file = found[1]
        elif file and (found := re.search(r"Name: (\S+)\s+Flags", line)):
            of[found[1]] = file
    for symbol, version in re.findall(r"UND\s+(\w+)@(\S+)", read("-s", "--dyn-syms")):
        if version in of:
            wanted[of[version]][version].add(symbol)
prefixes = ("libcu", "libnccl", "libnvrtc", "libnvshmem")
real = ("libcudart", "libcupti")
for name in sorted(needed - ours):
    if not name.startswith(prefixes) or name.startswith(real):
        continue
    versions = wanted[name]
    with open(f"{directory}/stub.c", "w") as source:
        source.writelines(f"char {symbol}[64];\n" for symbol in sorted(set().union(*versions.values())))
    with open(f"{directory}/stub.map", "w") as script:
        script.writelines(f"{version} {{ global: {'; '.join(sorted(of))}; }};\n" for version, of in versions.items())
    words = ["cc", "-shared", "-o", f"{directory}/stubs/{name}", f"-Wl,-soname,{name}", f"{directory}/stub.c"]
    subprocess.run(words + ([f"-Wl,--version-script={directory}/stub.map"] if versions else []), check=True)
PYTHON
cat >"$directory/env" <<ENV
PYTHON=$python
LD_LIBRARY_PATH=$directory/stubs:$(echo "$directory"/venv/lib/python3*/site-packages/nvidia/cu13/lib)
ENV
PYTHONPATH=$(dirname "$0")/workload LD_LIBRARY_PATH=$(sed -n 's/^LD_LIBRARY_PATH=//p' "$directory/env") "$python" -c \
  'import torch_data; print("PyTorch", torch_data.torch.__version__, len([*torch_data.loader([], 2, "fork", 2, False, 8, False)]), "batches")'
