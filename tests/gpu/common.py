"""A node, real or simulated, with the daemon on it: what the scripts beside this file share."""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Something that the machine lacks: said, and no failure of what is measured."""


def arguments(what, **more):
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=what)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--built", type=Path, default=target / "release", help="where cargo has built (%(default)s)")
    parser.add_argument("--daemon", default="", help="the command of the daemon (BUILT/warpmeter)")
    parser.add_argument("--simulated", action="store_true", help="on the simulated driver: tries the script itself")
    parser.add_argument("--seconds", type=float, default=8, help="how long each stretch is (%(default)s)")
    for name, (kind, default, words) in more.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=words)
    return parser.parse_args()


def run(main):
    """Runs a script: 0 if all is as it should be, 1 if not, 2 if the machine lacks something."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    except Missing as missing:
        print(f"{sys.argv[0]}: {missing}", file=sys.stderr)
        sys.exit(2)


class Node:
    """A directory for all files of a run; with `simulated`, a node with one device of that model too."""

    def __init__(self, options, model):
        self.built = options.built.resolve()
        self.simulated = options.simulated
        self.has_torch = False
        self.work = Path(tempfile.mkdtemp(prefix="warpmeter-gpu-"))
        self.environment = dict(os.environ)
        self.command = options.daemon.split() or [str(self.need("warpmeter", "warpmeter"))]
        self.processes = []
        if self.simulated:
            state, scenario = self.work / "node", self.work / "node.toml"
            scenario.write_text(f'[[gpu]]\nmodel = "{model}"\n')
            simgpu = self.need("simgpu", "warpmeter-simgpu")
            made = [simgpu, "create", "--scenario", scenario, "--state", state, "--libraries", self.work / "lib"]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
            self.environment["SIMGPU_STATE"] = str(state)

    def need(self, name, package):
        """A file that cargo has built."""
        path = self.built / name
        if not path.is_file():
            raise Missing(f"there is no {path}: cargo build --release -p {package}")
        return path

    def start(self, words, environment=None, procs=None):
        """Starts a program, in the cgroup whose file this is, if any."""
        if procs:
            words = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(procs), *map(str, words)]
        log = self.work / f"program-{len(self.processes)}.log"
        environment = {**self.environment, **(environment or {})}
        with open(log, "w") as output:
            process = subprocess.Popen(list(map(str, words)), env=environment, stdout=output, stderr=output)
        process.said = lambda: log.read_text()[-600:].strip() or "without a word"
        self.processes.append(process)
        return process

    def end(self, process):
        """Ends a program that `start` gave."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self):
        """Ends all of them, and removes what was written."""
        for process in reversed(self.processes):
            self.end(process)
        shutil.rmtree(self.work, ignore_errors=True)

    def torch(self):
        """The Python that has PyTorch with a GPU."""
        if not self.has_torch:
            check = [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"]
            found = subprocess.run(check, capture_output=True, text=True)
            if found.returncode:
                why = (found.stderr.strip().splitlines() or ["it fails"])[-1]
                raise Missing(f"{sys.executable} has no PyTorch that can use a GPU: {why}")
            self.has_torch = True
        return sys.executable


class Daemon:
    """A daemon that runs, asked over HTTP."""

    def __init__(self, node, more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        number = len(node.processes)
        config = node.work / f"warpmeter-{number}.toml"
        text = f'[http]\nlisten = "{self.address}"\n[control]\nsocket = "{node.work}/control-{number}.sock"\n'
        text += "[bpf]\nenabled = false\n"
        if node.simulated:
            text += f'[nvidia]\nlibraries = ["{node.work}/lib"]\n[host]\ndev = "{node.work}/node/dev"\n'
        config.write_text(text + more)
        self.node = node
        self.process = node.start([*node.command, "run", "--config", config])

    def get(self, path):
        """What it answers; nothing while it does not."""
        if self.process.poll() is not None:
            raise Missing(f"the daemon has ended: {self.process.said()}")
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError):
            return None

    def health(self, source):
        """How a source is, and why."""
        status = json.loads(self.get("/status") or "{}")
        found = [it for it in status.get("sources", []) if it["source"] == source]
        return (found[0]["health"], found[0]["reason"]) if found else (None, "")

    def metrics(self):
        """All series: (name, labels) with their values."""
        series = []
        for line in (self.get("/metrics") or "").splitlines():
            found = re.match(r"([a-z_0-9:]+)(?:\{(.*)\})? (\S+)$", line)
            if found and not line.startswith("#"):
                labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
                series.append((found[1], labels, float(found[3])))
        return series

    def until(self, what, look, seconds=40):
        """Waits until `look` sees something in the metrics, and gives that."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = look(self.metrics())
            if found is not None:
                return found
            time.sleep(0.2)
        health, reason = self.health("nvidia")
        raise Missing(f"{what}: not within {seconds} s; the driver's source is {health}: {reason or 'it says nothing'}")

    def gpu(self):
        """The UUID of the first GPU."""
        up = lambda series: next((l["gpu_uuid"] for n, l, v in series if n == "warpmeter_gpu_up" and v == 1), None)
        return self.until("a GPU", up)


def total(series, name, **labels):
    """The sum of a family's series with these labels; nothing if there is none."""
    fits = lambda found: all(found.get(key) == value for key, value in labels.items())
    values = [value for family, found, value in series if family == name and fits(found)]
    return sum(values) if values else None


def gained(before, after, name, **labels):
    """How much a counter gained; nothing if it is not there."""
    ends = total(after, name, **labels)
    return None if ends is None else ends - (total(before, name, **labels) or 0)


def table(head, rows):
    """A table in Markdown."""
    print("| " + " | ".join(head) + " |")
    print("|---" + "|---:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
