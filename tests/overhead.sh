#!/usr/bin/env bash
# What the daemon costs: CPU and memory over all its processes on a simulated node of 8 GPUs and 64 pods,
# the time from its start to its first window, and the size of its binary. Prints a table.
#
# usage: tests/overhead.sh [SECONDS] [PROGRAMS]      60 seconds and 64 programs by default
# SCRAPE=SECONDS scrapes that often meanwhile (15; 0 never). PROBES is `[bpf] enabled`: true, false, "auto" or "proc".
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60} programs=${2:-64} scrape=${SCRAPE:-15}
target=${CARGO_TARGET_DIR:-target}
release=$target/release

cargo build --quiet --release -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
work=$(mktemp -d) pids=() daemon=
cgroups=
cleanup() {
  [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  # A cgroup can be removed once the last of its processes is gone.
  for _ in {1..100}; do
    [ -n "$cgroups" ] && [ -e "$cgroups" ] || break
    find "$cgroups" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
  done
  rm -rf "$work"
}
trap cleanup EXIT

# The node, and pods as a container runtime would place them, where cgroups can be made.
printf '[[gpu]]\nmodel = "H100"\ncount = 8\n' >"$work/node.toml"
"$release/simgpu" create --scenario "$work/node.toml" --state "$work/node" --libraries "$work/lib" >/dev/null
"$release/simgpu" create --scenario "$work/node.toml" --state "$work/idle" --libraries "$work/lib" >/dev/null
mapfile -t gpus < <("$release/simgpu" show --state "$work/node" | grep -o 'GPU-[0-9a-f-]*' | awk '!seen[$0]++')
for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/pids; do
  if [ -e "$root/cgroup.procs" ] && mkdir "$root/warpmeter-overhead-$$" 2>/dev/null; then
    cgroups=$root/warpmeter-overhead-$$
    break
  fi
done
export SIMGPU_STATE=$work/node
for gpu in "${gpus[@]}"; do
  printf '[[device]]\nid = "%s"\nreplicas = %d\n' "$gpu" $(((programs + 7) / 8)) >>"$work/pods.toml"
done
for ((n = 0; n < programs; n++)); do
  uid=$(printf '%08x-0000-4000-8000-%012x' $$ "$n") id=$(printf '%064x' $((n + 1)))
  gpu=${gpus[n % 8]}
  printf '[[pod]]\nuid = "%s"\nnamespace = "bench"\nname = "pod-%d"\ncontainers = [{ name = "main", id = "%s", devices = ["%s::%d"] }]\n' \
    "$uid" "$n" "$id" "$gpu" $((n / 8)) >>"$work/pods.toml"
  # One program on each GPU works, a burst every half second; the others hold a context.
  words=(holder)
  [ "$n" -ge 8 ] || words=(server --period-ms 500 --kernels 50 --kernel-us 2000)
  (
    if [ -n "$cgroups" ]; then
      mkdir -p "$cgroups/kubepods/burstable/pod$uid/$id"
      echo 0 >"$cgroups/kubepods/burstable/pod$uid/$id/cgroup.procs"
    fi
    CUDA_VISIBLE_DEVICES=$gpu exec "$release/warpmeter-workload" "${words[@]}" --blocking-sync --library "$work/lib/libcuda.so.1"
  ) &
  pids+=($!)
  disown
done

python3 - "$work" "$release/warpmeter" "$seconds" "$scrape" "$programs" <<'PYTHON'
import os, platform, socket, subprocess, sys, time, urllib.request

work, program, seconds, scrape, programs = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
probes = os.environ.get("PROBES", '"auto"')


def start(name, node="node"):
    """A daemon on a node, where it listens, and when it was started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    config = f"{work}/{name}.toml"
    with open(config, "w") as file:
        file.write(
            f'[http]\nlisten = "{address}"\n[nvidia]\nlibraries = ["{work}/lib"]\n'
            f'[host]\ndev = "{work}/{node}/dev"\n[control]\nsocket = ""\n[pods]\nfile = "{work}/pods.toml"\n[price]\nH100 = 2.95\n'
            f"[bpf]\nenabled = {probes}\n"
        )
    began = time.monotonic()
    env = dict(os.environ, SIMGPU_STATE=f"{work}/{node}")
    daemon = subprocess.Popen([program, "run", "--config", config], stderr=subprocess.DEVNULL, env=env)
    return daemon, f"http://{address}/", began


def get(address):
    try:
        return urllib.request.urlopen(address, timeout=5).read().decode()
    except OSError:
        return ""


def first_window(address, began):
    while "\nwarpmeter_windows_total 0" in (text := get(address + "metrics")) or not text:
        time.sleep(0.01)
        if time.monotonic() - began > 60:
            sys.exit("no window within a minute")
    return time.monotonic() - began


def tree(pid):
    def parent(other):
        try:
            with open(f"/proc/{other}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[1]
        except OSError:
            return None
    return [pid] + [int(other) for other in os.listdir("/proc") if other.isdigit() and parent(other) == str(pid)]


def use(pid):
    """CPU seconds and resident MiB of each process, and its private share of them."""
    rows = []
    for one in tree(pid):
        nanos, sums = 0, {}
        # Exact where the kernel has it; the ticks of `stat` miss what runs briefly between them.
        for task in os.listdir(f"/proc/{one}/task"):
            with open(f"/proc/{one}/task/{task}/schedstat") as file:
                nanos += int(file.read().split()[0])
        with open(f"/proc/{one}/smaps_rollup") as file:
            for line in file:
                name, _, value = line.partition(":")
                if value.strip().endswith("kB"):
                    sums[name] = int(value.split()[0]) / 1024
        rows.append((nanos / 1e9, sums["Rss"], sums["Pss"]))
    return rows


def starts(node):
    """Times from start to first window, in order."""
    times = []
    for n in range(5):
        daemon, address, began = start(f"{node}{n}", node)
        times.append(first_window(address, began))
        daemon.terminate()
        daemon.wait()
    return sorted(times)


whole, shared = starts("idle"), starts("node")

daemon, address, began = start("run")
first_window(address, began)
time.sleep(10)
before, at = use(daemon.pid), time.monotonic()
most, next_scrape = 0.0, at
while time.monotonic() - at < seconds:
    time.sleep(1)
    most = max(most, sum(row[1] for row in use(daemon.pid)))
    if scrape and time.monotonic() >= next_scrape:
        next_scrape += scrape
        get(address + "metrics")
after, took = use(daemon.pid), time.monotonic() - at
text = get(address + "metrics")
names = []
for one in tree(daemon.pid):
    with open(f"/proc/{one}/cmdline") as file:
        words = file.read().split("\0")
    names.append(next((role for role in ("nvidia", "bpf") if role in words), "main"))
daemon.terminate()
daemon.wait()

cpu = [100 * (b[0] - a[0]) / took for a, b in zip(before, after)]
pods = text.count("\nwarpmeter_pod_info{")
with open("/proc/cpuinfo") as file:
    model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
print(f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()}; {took:.0f} s, 8 GPUs, {pods} pods, {programs} processes")
print()
print("| what | figure |")
print("|---|---|")
print(f"| CPU of one core, all processes, probes {probes} | {sum(cpu):.2f} % |")
for name, share in zip(names, cpu):
    print(f"| … {name} | {share:.2f} % |")
print(f"| resident, summed, highest | {most:.1f} MiB |")
for name, row in zip(names, after):
    print(f"| … {name}, at the end | {row[1]:.1f} MiB (proportional {row[2]:.1f}) |")
for what, times in (("whole GPUs", whole), ("shared GPUs", shared)):
    print(f"| start to first window, {what}, median and longest of 5 | {times[2]:.2f} s, {times[-1]:.2f} s |")
print(f"| binary | {os.path.getsize(program) / 2**20:.1f} MiB |")
print(f"| exposition | {len(text) / 1024:.0f} KiB |")
PYTHON
