#!/usr/bin/env bash
# What the daemon costs while a pod is busy with what it probes: a program that launches often from many threads, so that
# none is let go of; the same from one thread, which is; and two processes that switch often. Then how long the probes of a
# library take to attach and to detach. Prints a table. Needs root.
#
# usage: tests/load.sh [SECONDS] [ROUNDS]      10 seconds and 5 rounds of each by default
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "load.sh: loading kernel programs needs root" >&2; exit 1; }
release=${CARGO_TARGET_DIR:-target}/release

cargo build --quiet --release -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
work=$(mktemp -d) cgroups=
cleanup() {
  for _ in {1..100}; do
    [ -n "$cgroups" ] && [ -e "$cgroups" ] || break
    find "$cgroups" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
  done
  rm -rf "$work"
}
trap cleanup EXIT

printf '[[gpu]]\nmodel = "H100"\n' >"$work/node.toml"
"$release/simgpu" create --scenario "$work/node.toml" --state "$work/node" --libraries "$work/lib" >/dev/null
for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/pids; do
  if [ -e "$root/cgroup.procs" ] && mkdir "$root/warpmeter-load-$$" 2>/dev/null; then
    cgroups=$root/warpmeter-load-$$
    break
  fi
done
[ -n "$cgroups" ] || { echo "load.sh: no cgroup can be made here" >&2; exit 1; }

python3 - "$work" "$release" "${1:-10}" "${2:-5}" "$cgroups" <<'PYTHON'
import os, platform, re, signal, socket, statistics, subprocess, sys, time, urllib.request

work, release, seconds, rounds, cgroups = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ["SIMGPU_STATE"] = f"{work}/node"
shown = subprocess.run([f"{release}/simgpu", "show", "--state", f"{work}/node"], capture_output=True, text=True).stdout
gpu = re.search("GPU-[0-9a-f-]+", shown).group()
uid, container = "0b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11", "c0ffee00" * 8
pod = f"{cgroups}/kubepods/burstable/pod{uid}/{container}"
os.makedirs(pod)
with open(f"{work}/pods.toml", "w") as file:
    file.write(f'[[pod]]\nuid = "{uid}"\nnamespace = "bench"\nname = "p"\ncontainers = [{{ name = "main", id = "{container}", devices = ["{gpu}"] }}]\n')
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % free.getsockname()[1]
with open(f"{work}/run.toml", "w") as file:
    file.write(
        f'[http]\nlisten = "{address}"\n[nvidia]\nlibraries = ["{work}/lib"]\n[host]\ndev = "{work}/node/dev"\n[control]\nsocket = ""\n'
        f'[pods]\nfile = "{work}/pods.toml"\n[bpf]\nenabled = true\n[metrics]\nlevel = "full"\n'
    )


def place():
    with open(f"{pod}/cgroup.procs", "w") as file:
        file.write("0")


def program(*words):
    words = [f"{release}/warpmeter-workload", *words, "--library", f"{work}/lib/libcuda.so.1"]
    return subprocess.Popen(words, env=dict(os.environ, CUDA_VISIBLE_DEVICES=gpu), preexec_fn=place)


# On one CPU, the round trip of a byte is a switch of each of two processes. So many a second, as far as there is time.
PING = """
import os, sys, time
reads, writes, rate = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, {os.cpu_count() - 1})
began, done = time.monotonic(), 0
while True:
    while done < (time.monotonic() - began) * rate:
        os.write(writes, b"x")
        os.read(reads, 1)
        done += 1
    time.sleep(0.001)
"""
PONG = """
import os, sys
reads, writes = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {os.cpu_count() - 1})
while True:
    os.read(reads, 1)
    os.write(writes, b"x")
"""


def players(rate):
    there, back = os.pipe(), os.pipe()
    fds = dict(pass_fds=[*there, *back], preexec_fn=place)
    ping = subprocess.Popen([sys.executable, "-c", PING, str(back[0]), str(there[1]), str(rate)], **fds)
    pong = subprocess.Popen([sys.executable, "-c", PONG, str(there[0]), str(back[1])], **fds)
    for fd in (*there, *back):
        os.close(fd)
    return [ping, pong]


def get(path):
    return urllib.request.urlopen(f"http://{address}/{path}", timeout=5).read().decode()


def total(name):
    try:
        lines = get("metrics").splitlines()
    except OSError:
        return 0.0
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def switches(processes):
    count = 0
    for process in processes:
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/status") as file:
                count += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return count


def kernels(report):
    """What the program says it launched in a second."""
    with open(report) as file:
        text = file.read()
    value = lambda key: float(re.search(f'"{key}": *([0-9.]+)', text).group(1))
    return value("kernels") / ((value("end_ns") - value("start_ns")) / 1e9)


def roles():
    """The daemon's processes by what they do, and their CPU seconds."""
    spent = {}
    children = [open(f"/proc/{daemon.pid}/task/{task}/children").read() for task in os.listdir(f"/proc/{daemon.pid}/task")]
    for one in [daemon.pid, *map(int, " ".join(children).split())]:
        words = open(f"/proc/{one}/cmdline").read().split("\0")
        role = next((role for role in ("nvidia", "bpf") if role in words), "main")
        nanos = sum(int(open(f"/proc/{one}/task/{task}/schedstat").read().split()[0]) for task in os.listdir(f"/proc/{one}/task"))
        spent[role] = spent.get(role, 0) + nanos / 1e9
    return spent


daemon = subprocess.Popen([f"{release}/warpmeter", "run", "--config", f"{work}/run.toml"], stderr=subprocess.DEVNULL)
holder = program("holder")
while total("warpmeter_source_up") < 4:
    time.sleep(0.1)

report = f"{work}/report.json"
often = ["waiter", "--wait", "sleep", "--kernel-us", "1", "--sm", "1", "--report", report]
# name, what starts it, whether it launches
loads = [
    ("nothing", lambda: [], False),
    ("launches, 10 threads", lambda: [program(*often, "--threads", "10", "--kernels", "125", "--wait-us", "11500")], True),
    ("launches, 1 thread (shed)", lambda: [program(*often, "--kernels", "1000", "--wait-us", "5000")], True),
    ("switches in the pod", lambda: players(25_000), False),
]
found = {name: [] for name, _, _ in loads}
for _ in range(rounds):
    for name, start, launches in loads:
        processes = start()
        # Past the first snapshots, and the patience of the governor.
        time.sleep(8)
        spent, at = roles(), time.monotonic()
        count = 0 if launches else switches(processes)
        time.sleep(seconds)
        elapsed = time.monotonic() - at
        used = {role: 100 * (now - spent[role]) / elapsed for role, now in roles().items()}
        shed = total("warpmeter_source_degraded") > 0.5
        if shed != ("shed" in name):
            print(f"{name}: probes were {'' if shed else 'not '}shed")
        rate = 0 if launches else (switches(processes) - count) / elapsed
        for process in processes:
            process.terminate() if launches else process.kill()
            process.wait()
        if launches:
            rate = kernels(report)
        found[name].append((rate, used))
        time.sleep(1)
holder.kill()
daemon.terminate()
daemon.wait()

model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
print(f"{os.cpu_count()} CPUs, {model}, Linux {platform.release()}, {rounds} rounds of {seconds:.0f} s")
print("share of one core in percent, median (least to most); events a second\n")
spread = lambda values: f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"
print(f"{'load':28} {'events/s':>10}  {'all':24} {'bpf':24} {'main':24} {'nvidia':24}")
for name, rows in found.items():
    columns = [spread([sum(used.values()) for _, used in rows])]
    columns += [spread([used.get(role, 0) for _, used in rows]) for role in ("bpf", "main", "nvidia")]
    print(f"{name:28} {statistics.median(rate for rate, _ in rows):10.0f}  " + " ".join(f"{column:24}" for column in columns))
PYTHON

echo
LIBRARY=$work/lib/libcuda.so.1 cargo test --quiet --release -p warpmeter-ebpf --lib how_long -- --ignored --nocapture | grep ' ms'
