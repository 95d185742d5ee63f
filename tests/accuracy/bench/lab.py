"""The bench: what scenarios are made with, and how a case is run."""

import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import ExitStack

from bench import judge
from bench.machine import Cgroups, Disk, SlowDisk, Swap, Wire
from bench.node import HERE, ORACLE, Daemon, Node, built
from bench.processes import spawn, stop

sys.path.insert(0, str(ORACLE))
sys.path.insert(0, str(HERE / "workload"))

import oracle  # noqa: E402
import stages  # noqa: E402

# A pod's loops are given up after so long.
PATIENCE_S = 60
SERVER_PORT, GRPC_PORT = 7461, 7462


def rounds_per_ms(work):
    """How many rounds of work a millisecond holds when nothing disturbs."""
    work(50)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        work(100)
        best = min(best, time.perf_counter() - began)
    return 100 / (best * 1000)


class Lab:
    """Devices of the machine, shared by all cases of a study; dropped with `close`."""

    def __init__(self, scratch, seed, seconds, keep=None):
        self.scratch, self.seed, self.seconds, self.keep = scratch, seed, seconds, keep
        self.stack = ExitStack()
        try:
            self.cgroups = Cgroups()
            self.stack.callback(self.cgroups.close)
            self.disk = Disk(scratch)
            self.stack.callback(self.disk.close)
            self.slow = SlowDisk(scratch)
            self.stack.callback(self.slow.close)
            self.wire = Wire()
            self.stack.callback(self.wire.close)
            server = spawn(["ip", "netns", "exec", self.wire.space, sys.executable, HERE / "workload" / "serve.py",
                            self.wire.there, SERVER_PORT])
            self.stack.callback(stop, server)
        except BaseException:
            self.close()
            raise
        self.server = [self.wire.there, SERVER_PORT]
        self.hash_ms, self.python_ms = rounds_per_ms(stages.hash_rounds), rounds_per_ms(stages.python_rounds)
        self.draw, self.torch_env = random.Random(), {}
        self.files, self.features = {}, []

    def begin(self, name, repeat):
        """Parameters of a case are drawn from the seed, its name and the repeat, and from nothing else."""
        self.draw = random.Random(f"{self.seed}/{name}/{repeat}")

    def hash(self, ms):
        """A stage that computes for so long outside of the interpreter's lock."""
        return {"do": "hash", "rounds": max(1, round(ms * self.hash_ms))}

    def interpret(self, ms):
        """A stage that computes for so long in the interpreter."""
        return {"do": "python", "rounds": max(1, round(ms * self.python_ms))}

    def fetch(self, kib, requests=1, delay_ms=0.0, mark_kib=0):
        """A stage that asks the server behind the wire."""
        return {"do": "fetch", "address": self.server, "kib": kib, "requests": requests, "delay_us": int(delay_ms * 1000),
                "mark_kib": mark_kib}

    def pushed(self, kib):
        """A stage that receives what the server behind the wire sends all the time over a connection that it makes."""
        return {"do": "pushed", "address": self.server, "kib": kib}

    def pieces(self, kib, requests, delay_ms, work_ms, keep=False):
        """A stage that asks the server behind the wire for pieces and works on each for so long; or on what it kept of them."""
        rounds = self.interpret(work_ms)["rounds"] if work_ms else 0
        return {"do": "pieces", "address": self.server, "kib": kib, "requests": requests, "delay_us": int(delay_ms * 1000),
                "rounds": rounds, "keep": keep}

    def grpc(self, kib, requests, delay_ms=0.0):
        """A stage that asks a gRPC server behind the wire, which is started for the first of them. Needs what `torch.sh` installs."""
        if not self.features:
            words = ["ip", "netns", "exec", self.wire.space, self.torch_env["PYTHON"], HERE / "workload" / "serve_grpc.py"]
            self.features = [self.wire.there, GRPC_PORT]
            self.stack.callback(stop, spawn([*words, *self.features]))
        return {"do": "grpc", "address": self.features, "kib": kib, "requests": requests, "delay_us": int(delay_ms * 1000)}

    def data(self, disk=None, mib=96):
        """A file on a disk, the throttled one by default."""
        disk = disk or self.disk
        if disk not in self.files:
            self.files[disk] = str(disk.data("data", mib << 10))
        return self.files[disk]

    def small_files(self, count=1500, kib=16):
        """A directory of small files on the slow disk."""
        if "small" not in self.files:
            directory = self.slow.mount / "files"
            directory.mkdir()
            for number in range(count):
                self.slow.data(f"files/{number:05}", kib)
            self.files["small"] = str(directory)
        return self.files["small"]

    def run(self, name, case):
        """Runs every variant of a case; what was measured of each, by variant and pod."""
        widths = {key: 1 + max(max(pod.devices) for pod in variant.pods) for key, variant in case.variants.items()}
        directory = self.scratch / "case"
        directory.mkdir()
        with ExitStack() as stack:
            stack.callback(self._drop, directory, name)
            node = Node(directory, sum(widths.values()) + 1, oracle)
            stack.callback(self.cgroups.clear)
            runs, place = [], 0
            for key, variant in case.variants.items():
                gpus = node.gpus[place:place + widths[key]]
                runs.append(Run(self, node, key, variant, gpus, runs))
                place += widths[key]
            pods = "".join(run.pods_file() for run in runs)
            # The driver library is known to the daemon before the pods load it, as on a node that runs other pods.
            holder = spawn([built() / "warpmeter-workload", "holder", "--library", node.libraries / "libcuda.so.1"],
                           env={**node.env(), "CUDA_VISIBLE_DEVICES": node.gpus[-1]})
            stack.callback(stop, holder, signal.SIGKILL)
            daemon = Daemon(node, pods, case.settings)
            stack.callback(daemon.close)
            for run in runs:
                run.go(daemon)
            ran = self._measure(daemon, runs)
            return ran, daemon.warnings()

    def _drop(self, directory, name):
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            shutil.copytree(directory, self.keep / f"{name}-{int(time.time())}", ignore=shutil.ignore_patterns("node", "lib"))
        shutil.rmtree(directory)

    def _measure(self, daemon, runs):
        beginnings = daemon.beginnings()
        end = time.monotonic() + 8
        last = {gpu: run.end_ns for run in runs for gpu in run.gpus}
        while time.monotonic() < end and any(daemon.reached(gpu, beginnings[gpu]) < at for gpu, at in last.items()):
            time.sleep(0.2)
        return {run.key: run.measured(daemon, beginnings) for run in runs}

    def judge(self, case, ran):
        return judge.judge(case, ran)

    def close(self):
        self.stack.close()


class Run:
    """One variant on its devices."""

    def __init__(self, lab, node, key, variant, gpus, before):
        self.lab, self.node, self.key, self.variant, self.gpus = lab, node, key, variant, gpus
        self.number, self.first = len(before), before[0] if before else None
        self.accounts, self.pids, self.end_ns = {}, {}, 0

    def identity(self, pod):
        place = self.number * 16 + self.variant.pods.index(pod) + 1
        return f"{os.getpid():08x}-0000-4000-8000-{place:012x}", f"{os.getpid():032x}{place:032x}"

    def name(self, pod):
        return f"{self.key}-{pod.name}".replace("_", "-")

    def pods_file(self):
        """The variant's devices and pods, as the daemon's file of pods has them."""
        text = ""
        many = self.variant.replicas
        if many > 1:
            text += "".join(f'[[device]]\nid = "{gpu}"\nreplicas = {many}\n' for gpu in self.gpus)
        for place, pod in enumerate(self.variant.pods):
            uid, container = self.identity(pod)
            grants = [self.gpus[number] + (f"::{place}" if many > 1 else "") for number in pod.devices]
            text += (f'[[pod]]\nuid = "{uid}"\nnamespace = "research"\nname = "{self.name(pod)}"\n'
                     + ("" if pod.probes else "probes = false\n")
                     + f'containers = [{{ name = "main", id = "{container}", devices = {json.dumps(grants)} }}]\n')
        return text

    def go(self, daemon):
        """Runs it: until every loop has done its steps, or for its seconds."""
        variant = self.variant
        with ExitStack() as stack:
            self.lab.wire.rate(variant.wire_mbit)
            stack.callback(self.lab.slow.speed)
            self.lab.slow.speed(*variant.slow_disk)
            if variant.swap:
                swap = Swap(self.lab.slow)
                stack.callback(swap.close)
            for number, other in enumerate(variant.others):
                stack.callback(stop, self._other(number, *other))
            waited = []
            for pod in variant.pods:
                uid, container = self.identity(pod)
                files = self.lab.cgroups.container(uid, container, pod.limits)
                self.accounts[pod.name], self.pids[pod.name] = [], set()
                for number, process in enumerate(pod.processes):
                    child, report = self._start(pod, number, process, files)
                    # Its cgroup may be slowed: what it started ends with its session.
                    stack.callback(stop, child)
                    self.pids[pod.name].add(child.pid)
                    if report:
                        waited.append((pod.name, child, report))
            self._wait(waited)

    def _other(self, number, words, processors, device):
        env = dict(self.node.env())
        if device is not None:
            env["CUDA_VISIBLE_DEVICES"] = self.gpus[device]
        return spawn(self._words(words), env=env, cgroups=self.lab.cgroups.neighbour(number), processors=processors)

    def _words(self, words):
        """A program of this suite (a script of `workload/`), or one of the built ones."""
        program, *rest = words
        if program.endswith(".py"):
            return [sys.executable, HERE / "workload" / program, *rest]
        return [built() / program, *rest, "--library", self.node.libraries / "libcuda.so.1"] if rest else [built() / program]

    def _start(self, pod, number, process, files):
        numbers = process.devices if process.devices is not None else pod.devices
        env = {**self.node.env(), "CUDA_VISIBLE_DEVICES": ",".join(self.gpus[number] for number in numbers)}
        log = open(self.node.directory / f"{self.name(pod)}.log", "ab")
        with log:
            if process.words:
                return spawn(self._words(process.words), env=env, cgroups=files, processors=process.processors,
                             stderr=log), None
            config = {**process.config, "devices": list(range(len(numbers)))}
            if self.first and self.first.accounts.get(pod.name):
                # The same work as in the first variant.
                config["steps"] = self.first.accounts[pod.name][number]["steps"]
            report = self.node.directory / f"{self.name(pod)}-{number}.json"
            python = sys.executable
            if config["source"]["kind"] == "torch":
                torch = self.lab.torch_env
                env["LD_LIBRARY_PATH"] += ":" + torch["LD_LIBRARY_PATH"]
                python = torch["PYTHON"]
            words = [python, HERE / "workload" / "steps.py", json.dumps(config), report]
            return spawn(words, env=env, cgroups=files, processors=process.processors, stderr=log), report

    def _wait(self, waited):
        if not waited or self.variant.seconds:
            time.sleep(2.5)
            if self.variant.fault:
                gpu = self.node.gpus.index(self.gpus[0])
                self.node.fault(*self.variant.fault, f"gpu={gpu}")
                time.sleep(2)
            self.start_ns = time.monotonic_ns()
            time.sleep(self.variant.seconds or self.lab.seconds)
            self.end_ns = time.monotonic_ns()
            return
        end = time.monotonic() + PATIENCE_S
        for pod, child, report in waited:
            while not report.exists():
                if child.poll() is not None or time.monotonic() > end:
                    log = self.node.directory / f"{self.key}-{pod}.log".replace("_", "-")
                    raise RuntimeError(f"{self.key}: {pod}'s loop gave no account; its log ends with: {log.read_text()[-800:]}")
                time.sleep(0.05)
            self.accounts[pod].append(json.loads(report.read_text()))
        accounts = [account for of in self.accounts.values() for account in of]
        self.end_ns = max(account["end_ns"] for account in accounts)

    def measured(self, daemon, beginnings):
        """By pod: its loops' accounts, what the daemon gave it in the time that they have in common, and what the simulator did."""
        found = {}
        for pod in self.variant.pods:
            runs = self.accounts[pod.name]
            low = max((run["start_ns"] for run in runs), default=getattr(self, "start_ns", 0))
            high = min((run["end_ns"] for run in runs), default=self.end_ns)
            total, window, busy, devices = {}, 0.0, 0.0, {}
            for number in pod.devices:
                gpu = self.gpus[number]
                between = daemon.between(gpu, self.name(pod), beginnings[gpu], low, high)
                if between is None:
                    # A counterfactual may be over within a window: its time is what counts.
                    continue
                got, start, end = between
                devices[number] = {cause: round(seconds, 4) for cause, seconds in got.items() if seconds}
                for cause, seconds in got.items():
                    total[cause] = total.get(cause, 0.0) + seconds
                window += (end - start) / 1e9
                busy += self.node.busy(gpu, start, end, self.pids[pod.name])
            found[pod.name] = {"runs": runs, "measured": total, "window_s": window, "busy_s": busy,
                               "share": 1 / self.variant.replicas, "devices": devices}
        return found
