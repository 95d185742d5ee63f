"""The simulated node, the daemon on it, and what the daemon said at each of its windows."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from bench.processes import spawn, stop

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
# This suite reads the simulator's log by its own independent script.
ORACLE = ROOT / "tests" / "simgpu"

SECONDS = "warpmeter_pod_gpu_seconds_total"
DEVICE = "warpmeter_gpu_seconds_total"
SERIES = re.compile(r'^(\w+)\{(.*)\} (\S+)$')
LABEL = re.compile(r'(\w+)="([^"]*)"')


def built():
    """Where cargo puts programs, those of a release unless $ACCURACY_PROFILE says otherwise."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / os.environ.get("ACCURACY_PROFILE", "release")


class Node:
    """A node of `count` GPUs in `directory`, with the driver's libraries beside it."""

    def __init__(self, directory, count, oracle):
        self.directory, self.oracle = directory, oracle
        self.state, self.libraries = directory / "node", directory / "lib"
        scenario = directory / "node.toml"
        scenario.write_text(f'[[gpu]]\nmodel = "H100"\ncount = {count}\n')
        self.simgpu("create", "--scenario", scenario, "--state", self.state, "--libraries", self.libraries)
        shown = self.simgpu("show", "--state", self.state)
        self.gpus = list(dict.fromkeys(re.findall(r"GPU-[0-9a-f-]{36}", shown)))

    def simgpu(self, *words):
        return subprocess.run([built() / "simgpu", *words], check=True, capture_output=True, text=True).stdout

    def fault(self, *words):
        """Makes something go wrong, such as `kind=stuck_zero gpu=0`."""
        self.simgpu("fault", "--state", self.state, *words)

    def busy(self, gpu, low, high, pids=None):
        """Seconds within [low, high] ns for which a GPU ran, for these processes or for any, by the simulator's log."""
        self.simgpu("flush", "--state", self.state)
        records = self.oracle.read(self.state / "oracle.jsonl", low, high)
        intervals = [part for (of, _, pid), parts in records.items() for part in parts
                     if of == gpu and (pids is None or pid in pids)]
        return self.oracle.union(intervals) / 1e9

    def env(self):
        """The environment of a program that uses its driver."""
        return {"SIMGPU_STATE": str(self.state), "LD_LIBRARY_PATH": str(self.libraries)}


class Daemon:
    """The daemon on a node, and a thread that keeps what it exposes at each window."""

    def __init__(self, node, pods, more=""):
        self.node = node
        directory = node.directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        (directory / "pods.toml").write_text(pods)
        (directory / "warpmeter.toml").write_text(
            f'[http]\nlisten = "{self.address}"\n[nvidia]\nlibraries = ["{node.libraries}"]\n'
            f'[host]\nnode = "node-1"\ndev = "{node.state}/dev"\n[bpf]\nenabled = true\n'
            f'[control]\nsocket = "{directory}/control.sock"\n[pods]\nfile = "{directory}/pods.toml"\n{more}')
        self.recording = directory / "run.jsonl"
        self.log = directory / "daemon.log"
        with open(self.log, "wb") as log:
            self.child = spawn(
                [built() / "warpmeter", "run", "--config", directory / "warpmeter.toml", "--record", self.recording],
                env=node.env(), stderr=log)
        self.samples = {gpu: [] for gpu in node.gpus}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._poll, daemon=True)
        try:
            self._until("probes that are up", lambda: 'source="probes" state="up"' in self.log.read_text())
            self._until("first windows", lambda: self._look() and all(self.samples.values()))
        except Exception:
            self.close()
            raise
        self.thread.start()

    def _until(self, what, so, seconds=90):
        end = time.monotonic() + seconds
        while not so():
            if self.child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"waited for {what}; the daemon's log ends with:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _look(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        elapsed, pods = {}, {}
        for line in text.splitlines():
            if not line.startswith((SECONDS, DEVICE)):
                continue
            name, labels, value = SERIES.match(line).groups()
            labels = dict(LABEL.findall(labels))
            gpu = labels["gpu_uuid"]
            if name == DEVICE:
                elapsed[gpu] = elapsed.get(gpu, 0.0) + float(value)
            elif name == SECONDS:
                cause = labels["cause"] if labels["state"] == "stalled" else f"{labels['state']}/{labels['cause']}"
                pods.setdefault((gpu, labels["pod"]), {})[cause] = float(value)
        for gpu, reached in elapsed.items():
            seen = self.samples[gpu]
            if not seen or reached > seen[-1][0] + 1e-6:
                seen.append((reached, {pod: states for (of, pod), states in pods.items() if of == gpu}))
        return True

    def _poll(self):
        while not self.ended.wait(0.3):
            self._look()

    def beginnings(self):
        """When each GPU's accounts begin, in ns of CLOCK_MONOTONIC: with its first reading in the recording."""
        found = {}
        with open(self.recording) as file:
            for line in file:
                if '"reading"' not in line:
                    continue
                reading = json.loads(line)["fact"].get("reading")
                if reading:
                    found.setdefault(reading["gpu"], reading["during"][0])
                if len(found) == len(self.node.gpus):
                    break
        return found

    def reached(self, gpu, beginning):
        """Up to when a GPU's accounts reach, in ns of CLOCK_MONOTONIC."""
        return beginning + self.samples[gpu][-1][0] * 1e9

    def between(self, gpu, pod, beginning, low, high):
        """What a pod got of a GPU in the whole windows within [low, high] ns: seconds by cause, and where those
        windows begin and end; `None` if there is none."""
        inside = [(beginning + at * 1e9, states[pod]) for at, states in self.samples[gpu]
                  if low <= beginning + at * 1e9 <= high and pod in states]
        if len(inside) < 2:
            return None
        (start, first), (end, last) = inside[0], inside[-1]
        return {cause: last[cause] - first.get(cause, 0.0) for cause in last}, int(start), int(end)

    def warnings(self):
        """What it complained of."""
        lines = self.log.read_text().splitlines()
        return [line.split(maxsplit=1)[1] for line in lines if " WARN " in line or " ERROR " in line]

    def close(self):
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        stop(self.child, signal.SIGTERM)
