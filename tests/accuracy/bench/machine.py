"""What stands in a workload's way, made of the kernel's own mechanisms: a throttled disk, a slow wire, little memory.

Everything made here is named after this process and removed by `close`; what a killed run left is swept by the next.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.processes import spawn, stop
from bench.slow import CONTROL

PREFIX = "wmacc"

# The hierarchies of version 1 that limits are set in, and the unified one, by which probes know a pod.
HIERARCHIES = ("unified", "pids", "cpu", "memory", "blkio")
CGROUPS = Path("/sys/fs/cgroup")


def run(*words, check=True):
    """Runs a tool; its output. A failure says what was attempted and what the tool said."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def lacks():
    """What the study needs and this machine does not have."""
    found = []
    if os.geteuid() != 0:
        return ["root"]
    if not Path("/sys/kernel/btf/vmlinux").exists():
        found.append("a kernel that shows its types")
    found += [f"cgroup version 1's {name}" for name in ("cpu", "memory", "blkio") if not (CGROUPS / name / "cgroup.procs").exists()]
    found += [file for file in ("/dev/fuse", "/dev/loop-control") if not Path(file).exists()]
    found += [tool for tool in ("ip", "tc", "losetup", "mkfs.ext4", "mkswap") if not shutil.which(tool)]
    if os.cpu_count() < 2:
        found.append("two processors")
    return found


class Disk:
    """A file system on a loop device, whose input and output can be limited by cgroup."""

    def __init__(self, directory, mib=384):
        self.image = directory / "disk.img"
        with open(self.image, "wb") as file:
            file.truncate(mib << 20)
        self.mount = directory / "disk"
        self._mount()

    def _mount(self):
        # Direct: the host's page cache must not serve what the file system's was told to forget.
        self.device = run("losetup", "--direct-io=on", "-f", "--show", self.image).strip()
        self.mount.mkdir()
        try:
            run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.device)
            run("mount", self.device, self.mount)
        except RuntimeError:
            self.close()
            raise
        number = os.stat(self.device).st_rdev
        self.number = f"{os.major(number)}:{os.minor(number)}"

    def data(self, name, kib):
        """A file of so many KiB, on the disk and not in memory."""
        path = self.mount / name
        block = os.urandom(1 << 20)
        with open(path, "wb") as file:
            left = kib << 10
            while left > 0:
                file.write(block[: min(left, len(block))])
                left -= len(block)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def close(self):
        run("umount", self.mount, check=False)
        run("losetup", "-d", self.device, check=False)


class SlowDisk(Disk):
    """A file system on a loop device over a file that is slow by itself (`slow.py`): each request takes its time."""

    def __init__(self, directory, mib=384):
        self.lower, control = directory / "lower", directory / "speed"
        self.lower.mkdir()
        self.image, self.mount = self.lower / "disk", directory / "slow"
        control.write_bytes(CONTROL.pack(0, 0, 0))
        self.control = open(control, "r+b", buffering=0)
        self.server = spawn([sys.executable, Path(__file__).with_name("slow.py"), self.lower, mib, control])
        try:
            for _ in range(100):
                if self.image.exists():
                    break
                time.sleep(0.05)
            self._mount()
        except BaseException:
            self._stop()
            raise

    def speed(self, read_mbs=0.0, write_mbs=0.0, latency_ms=0.0):
        """MB/s, 0 for no limit, and the latency of a request."""
        self.control.seek(0)
        self.control.write(CONTROL.pack(read_mbs, write_mbs, latency_ms))

    def close(self):
        self.speed()
        super().close()
        self._stop()

    def _stop(self):
        run("umount", "-l", self.lower, check=False)
        stop(self.server)
        self.control.close()


class Wire:
    """A network namespace behind a virtual cable; what it sends can be slowed to so many Mbit/s."""

    def __init__(self):
        pid = os.getpid()
        self.space = f"{PREFIX}-{pid}"
        self.end = f"wma{pid % 10**7}"
        third = pid % 250
        self.here, self.there = f"10.213.{third}.1", f"10.213.{third}.2"
        run("ip", "netns", "add", self.space)
        try:
            run("ip", "link", "add", self.end, "type", "veth", "peer", "name", "far", "netns", self.space)
            run("ip", "addr", "add", f"{self.here}/24", "dev", self.end)
            run("ip", "link", "set", self.end, "up")
            self.inside("ip", "addr", "add", f"{self.there}/24", "dev", "far")
            self.inside("ip", "link", "set", "far", "up")
            self.inside("ip", "link", "set", "lo", "up")
        except RuntimeError:
            self.close()
            raise

    def inside(self, *words):
        return run("ip", "netns", "exec", self.space, *words)

    def rate(self, mbit):
        """Slows what comes from there; 0 lifts it."""
        run("tc", "-n", self.space, "qdisc", "del", "dev", "far", "root", check=False)
        if mbit:
            run("tc", "-n", self.space, "qdisc", "add", "dev", "far", "root", "tbf", "rate", f"{mbit}mbit",
                "burst", "32k", "latency", "500ms")

    def close(self):
        run("ip", "netns", "del", self.space, check=False)
        run("ip", "link", "del", self.end, check=False)


class Swap:
    """A swap file on a disk, the first to be used while it is there."""

    def __init__(self, disk, mib=160):
        self.path = disk.mount / "swap"
        run("fallocate", "-l", f"{mib}M", self.path)
        self.path.chmod(0o600)
        run("mkswap", self.path)
        run("swapon", "-p", "32767", self.path)

    def close(self):
        run("swapoff", self.path, check=False)



# The most that a cgroup can weigh: beside it, other programs of the machine get next to nothing of the processors.
HEAVIEST = 262144


class Cgroups:
    """Cgroups as a container runtime makes them, the same path in every hierarchy, below one that outweighs the machine.

    In it, each weighs the same: the pods together, each neighbour, and `service`, where this process and the daemon are.
    """

    def __init__(self):
        self.top = f"{PREFIX}-{os.getpid()}"
        self.roots = [CGROUPS / name for name in HIERARCHIES if (CGROUPS / name / "cgroup.procs").exists()]
        self.processors = CGROUPS / "cpu" / self.top
        service = self.processors / "service"
        service.mkdir(parents=True)
        (self.processors / "cpu.shares").write_text(str(HEAVIEST))
        (service / "cgroup.procs").write_text("0")

    def container(self, uid, container, limits=None):
        """Makes a pod's container; the files that take its processes. `limits` is by hierarchy, file and value."""
        files = []
        for root in self.roots:
            path = root / self.top / "kubepods" / "burstable" / f"pod{uid}" / container
            path.mkdir(parents=True)
            files.append(path / "cgroup.procs")
            for name, value in (limits or {}).get(root.name, {}).items():
                (path / name).write_text(value)
        return files

    def neighbour(self, number):
        """A place of its own on the processors, no pod's; the file that takes its processes."""
        path = self.processors / f"neighbour-{number}"
        path.mkdir(exist_ok=True)
        return [path / "cgroup.procs"]

    def clear(self):
        """Ends what is left in pods and neighbours, and removes them."""
        tops = [root / self.top for root in self.roots if (root / self.top).is_dir()]
        places = [place for top in tops for place in top.iterdir() if place.name[0] in "kn" and place.is_dir()]
        for _ in range(100):
            pids = {int(pid) for place in places for procs in place.rglob("cgroup.procs") for pid in procs.read_text().split()}
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for place in places:
                remove(place)
            if not any(place.exists() for place in places):
                return
            time.sleep(0.05)

    def close(self):
        self.clear()
        (CGROUPS / "cpu" / "cgroup.procs").write_text("0")
        for _ in range(100):
            for root in self.roots:
                remove(root / self.top)
            if not any((root / self.top).exists() for root in self.roots):
                return
            time.sleep(0.05)


def remove(directory):
    """Removes a cgroup and those in it, as far as they are empty."""
    for path, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass


def limits(disk=None, read_mbs=0, write_mbs=0, read_iops=0, cpu=0.0, memory_mib=0):
    """Limits of a container: MB/s and reads a second of the disk, processors, MiB of memory; 0 is none."""
    found = {}
    throttle = {"read_bps": int(read_mbs * 1e6), "write_bps": int(write_mbs * 1e6), "read_iops": int(read_iops)}
    for name, value in throttle.items():
        if value:
            found.setdefault("blkio", {})[f"blkio.throttle.{name}_device"] = f"{disk.number} {value}"
    if cpu:
        found["cpu"] = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(cpu * 100_000))}
    if memory_mib:
        found["memory"] = {"memory.limit_in_bytes": str(memory_mib << 20)}
    return found


def sweep(scratch):
    """Removes what killed runs of this suite left: mounts, loop devices, namespaces, cgroups, files."""
    gone = lambda name: (m := re.fullmatch(rf"{PREFIX}-(\d+)", name)) and not Path(f"/proc/{m[1]}").exists()
    for space in run("ip", "netns", "list", check=False).split():
        if gone(space):
            run("ip", "netns", "del", space, check=False)
    for name in HIERARCHIES:
        for path in (CGROUPS / name).glob(f"{PREFIX}-*"):
            if gone(path.name):
                remove(path)
    for path in scratch.glob(f"{PREFIX}-*"):
        if gone(path.name):
            run("swapoff", path / "slow" / "swap", check=False)
            for mount, image in (("disk", "disk.img"), ("slow", "lower/disk")):
                run("umount", path / mount, check=False)
                for line in run("losetup", "-j", path / image, check=False).splitlines():
                    run("losetup", "-d", line.split(":")[0], check=False)
            run("umount", "-l", path / "lower", check=False)
            shutil.rmtree(path, ignore_errors=True)
