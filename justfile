# Every recipe is what people and CI run alike.
set shell := ["bash", "-euo", "pipefail", "-c"]

# List the recipes.
default:
    @just --list

# A simulated node, watched by the real daemon.
demo *options:
    cargo run --release -p warpmeter-demo -- {{ options }}

# All tests.
test:
    cargo test --workspace

# Everything that CI checks, in its order. `deploy-check` is beside it: it takes root, a Prometheus and ten minutes.
ci: test readers fmt lint doc layers generated rules chart deny import-check accuracy-ci

# The simulated driver under independent readers: nvidia-ml-py, gpustat, nvitop.
readers:
    tests/simgpu/readers.sh

# Theoretical occupancy beside NVIDIA's own calculator, which is fetched from PyPI (needs g++).
occupancy-check:
    tests/occupancy/check.sh

# CUPTI's records as the injected library reads them beside NVIDIA's headers and libraries, which are fetched from PyPI (needs gcc).
inject-check:
    tests/inject/check.sh

# The scripts for a real GPU (tests/gpu), tried on the simulated driver; the second needs root.
gpu-scripts:
    cargo build --release -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p simgpu-cupti -p warpmeter-workload -p warpmeter-inject
    tests/gpu/counters.py --simulated
    tests/gpu/processes.py --simulated

# Recordings of other tools, imported and replayed: each must come to its truth.
import-check:
    tests/import/test.sh

# Formatting.
fmt:
    cargo fmt --all --check

# Lints; a warning is an error.
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Documentation of every public item builds without a warning.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

# Dependencies point one way.
layers:
    tests/layers.sh

# Files that are generated are current.
generated:
    cargo test --quiet -p warpmeter-exporter --lib documents | tee /dev/stderr | grep -q '[1-9][0-9]* passed'
    cargo test --quiet -p warpmeter-simkubelet

# The sharing matrix: every owner's part of a shared device against the simulator's log. Rewrites its tables in docs/accuracy.md.
sharing:
    WARPMETER_BLESS=1 cargo test --quiet -p warpmeter-sharing -- --nocapture

# Rewrites generated files and goldens after a wanted change.
bless:
    WARPMETER_BLESS=1 cargo test --quiet -p warpmeter-exporter
    WARPMETER_BLESS=1 cargo test --quiet -p warpmeter-tests golden
    WARPMETER_BLESS=1 cargo test --quiet -p warpmeter-sharing

# Alert rules, their runbooks and the Alertmanager example, by promtool (and amtool, if it is there).
rules:
    JOBS=4 deploy/rules/test.sh

# The autoscaling samples: schemas, the adapter's templates expanded, and every query evaluated by promtool.
autoscaling:
    deploy/autoscaling/test.sh

# Rewrites the PrometheusRule manifest from the rules.
rules-manifest:
    deploy/rules/generate.py

# Everything in deploy/, by the tools that read it: rules, chart, dashboards, image.
deploy-check: rules chart dashboards autoscaling image

# The image for amd64 and arm64, built and run (needs root; on Debian it installs what it lacks).
image:
    deploy/image/test.sh

# The Helm chart and the plain manifests, by helm, schemas, a Prometheus, the daemon and runc.
chart:
    deploy/chart/test.sh

# Rewrites the plain manifests from the chart (needs helm).
manifests:
    deploy/manifests/generate.sh

# Dashboards, rules and docs/joins.md by a real Prometheus that scrapes the demo (needs prometheus, PyPI and root).
dashboards:
    deploy/dashboards/test.sh

# Rewrites the dashboards from their source (needs deploy/dashboards/requirements.txt).
dashboards-json:
    deploy/dashboards/generate.py

# Rebuilds the kernel programs (needs rust-src, llvm-objcopy and bpf-linker 0.10.4: ebpf/programs/tools.sh gets them).
bpf:
    ebpf/programs/build.sh

# The committed kernel programs are what their sources give.
bpf-check:
    built=$(mktemp -d) && ebpf/programs/build.sh "$built" && cmp "$built/warpmeter.o" ebpf/objects/warpmeter.o && rm -r "$built"

# The tests of the kernel programs on other kernels, under emulation; the directories hold their unpacked packages.
bpf-kernels *directories:
    NOCAPTURE=1 ebpf/tests/programs/kernels.sh {{ directories }}

# What a probe costs: launches, synchronisation, context switches, other system calls.
bpf-costs:
    tests/probes.sh

# What the library costs that is injected into programs (docs/inject.md).
inject-costs *options:
    tests/inject/costs.sh {{ options }}

# What the daemon costs while a pod launches and switches often, and how long probes take to attach and detach (needs root).
load *options:
    tests/load.sh {{ options }}

# Licences, bans and sources of dependencies.
deny:
    cargo deny --offline check bans licenses sources

# More than a million random windows: conservation, order, monotone totals.
properties:
    WARPMETER_PROPERTY_CASES=6000 cargo test --release -p warpmeter-core --test fold properties

# Fuzzes every parser of foreign bytes for so many seconds each (needs cargo-fuzz and a nightly compiler).
fuzz seconds="60":
    cd fuzz && for target in $(cargo +nightly fuzz list); do mkdir -p "corpus/$target" && cargo +nightly fuzz run "$target" "corpus/$target" "seeds/$target" -- -max_total_time={{ seconds }} -max_len=8192 -rss_limit_mb=2048; done

# The accuracy study: causes against counterfactual truth (root; PyPI; an hour and a half on a quiet machine). Rewrites the tables of docs/accuracy.md.
accuracy seed="1" repeats="5" seconds="4":
    tests/accuracy/run.sh study {{ seed }} {{ repeats }} {{ seconds }}

# A part of it, in two minutes.
accuracy-quick seed="1":
    tests/accuracy/run.sh quick {{ seed }}

# The same with what the tests have built; only a wrong leading cause is a fault.
accuracy-ci:
    tests/accuracy/run.sh ci

# Pods churning, kubelet and driver failing, a scrape every second that must be right (600 seconds by default).
chaos *options:
    tests/chaos.sh {{ options }}

# The figures of docs/overhead.md.
bench:
    cargo bench -p warpmeter-core
    cargo bench -p warpmeter-exporter
    cargo run --release -p warpmeter-exporter --example scrape
    tests/overhead.sh

# Programs under an MPS server, in real time: all of those tests.
mps:
    cargo test -p warpmeter-tests --test integration mps:: -- --include-ignored
