"""The daemon in a container of runc, with just the rights and mounts that the rendered pod gives it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from chart import only, toml_of
from scrape import free_port

# Bits of the kernel's capability sets.
BITS = {"SYS_PTRACE": 19, "PERFMON": 38, "BPF": 39}
# System calls that containerd's default profile gives to those only who have the capability, as far as the kernel here
# knows them. (The rest of that profile lets through what nearly every program needs.)
GATED = {
    "BPF": ["bpf"],
    "PERFMON": ["perf_event_open"],
    "SYS_PTRACE": ["ptrace", "kcmp", "process_vm_readv", "process_vm_writev", "pidfd_getfd"],
    "DAC_READ_SEARCH": ["open_by_handle_at"],
    "SYSLOG": ["syslog"],
    "SYS_MODULE": ["init_module", "finit_module", "delete_module"],
    "SYS_ADMIN": ["mount", "umount2", "setns", "unshare", "fanotify_init", "lookup_dcookie", "quotactl", "sethostname", "setdomainname"],
}
NO_SUCH_CALL = 38
# What the loader calls the driver library.
LIBRARY = "libcuda.so.1"


def root_filesystem(root: pathlib.Path, program):
    """The program and the libraries that it is linked with."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    files = {pathlib.Path(program): root / "usr/local/bin/warpmeter"}
    for line in listed.splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path:
            files[pathlib.Path(path)] = root / path.lstrip("/")
    for source, target in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def bundle(directory: pathlib.Path, objects, warpmeter):
    """An OCI bundle of the pod's container. Paths of the host are directories below `directory`."""
    pod = only(objects, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    root_filesystem(directory / "root", warpmeter)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    ]
    for mount in container["volumeMounts"]:
        source = directory / "host" / mount["name"]
        source.mkdir(parents=True, exist_ok=True)
        if mount["name"] == "config":
            (source / "warpmeter.toml").write_text(toml_of(objects))
        if mount["name"] == "dev":
            # The host's own, in the place of the runtime's.
            source = pathlib.Path(volumes["dev"]["hostPath"]["path"])
            mounts = [other for other in mounts if other["destination"] != mount["mountPath"]]
        options = ["rbind", "ro" if mount.get("readOnly") else "rw"]
        if mount.get("mountPropagation") == "HostToContainer":
            options.append("rslave")
        mounts.append({"destination": mount["mountPath"], "type": "bind", "source": str(source), "options": options})
    given = context.get("capabilities", {}).get("add", [])
    added = [f"CAP_{name}" for name in given]
    linux = {"namespaces": [{"type": name} for name in ("mount", "uts", "ipc")]}
    if context.get("seccompProfile") == {"type": "RuntimeDefault"}:
        refused = [call for capability, calls in GATED.items() if capability not in given for call in calls]
        linux["seccomp"] = {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [
                {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
                {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL},
            ],
        }
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
            "args": [*container["command"], *container["args"]],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_NAME=node-1"],
            "cwd": "/",
            "capabilities": {name: added for name in ("bounding", "effective", "permitted")},
            "noNewPrivileges": not context.get("allowPrivilegeEscalation", True),
        },
        "root": {"path": "root", "readonly": context["readOnlyRootFilesystem"]},
        "mounts": mounts,
        # The host's process ids, as hostPID says; its network, to be asked without more ado.
        "linux": linux,
    }
    (directory / "config.json").write_text(json.dumps(config))


def user_of_cuda(scratch, library):
    """A program that maps a driver library, at a path that no container of ours has."""
    copy = scratch / LIBRARY
    shutil.copy(library, copy)
    return ["python3", "-c", f"import ctypes, time; ctypes.CDLL({str(copy)!r}); time.sleep(600)"]


@contextlib.contextmanager
def workload(program):
    """A process in the cgroup of another pod's container, where the kernel lets us make one: yields whether it did."""
    roots = [pathlib.Path("/sys/fs/cgroup") / below for below in ("", "unified", "pids")]
    top = f"warpmeter-chart-{os.getpid()}"
    group = pathlib.Path("kubepods/burstable/pod3fbb5c1e-0a1d-4c1e-9c44-9f6d2f8f0001", "a" * 64)
    process = None
    made = []
    for root in (root for root in roots if (root / "cgroup.procs").exists()):
        try:
            for path in [pathlib.Path(top), *[top / part for part in reversed([group, *group.parents][:-1])]]:
                (root / path).mkdir()
                made.insert(0, root / path)
            process = subprocess.Popen(program)
            (root / top / group / "cgroup.procs").write_text(str(process.pid))
            break
        except OSError:
            continue
    try:
        yield process is not None
    finally:
        if process:
            process.kill()
            process.wait()
        for path in made:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.05)


def kernel(words):
    """What `warpmeter check` says of the kernel's BPF programs, types and probes, each with its mark; and all of it."""
    text = subprocess.run(words, capture_output=True, text=True).stdout
    lines = text[text.find("kernel, for stall causes") :].splitlines()[1:]
    marks = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in lines if re.match("  (ok|missing) ", line)}
    return {name: mark for name, mark in marks.items() if "pressure" not in name and "driver library" not in name}, text


def masks(pid):
    """The capabilities of a process by set, and whether it can gain more."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {name: int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")}, fields["NoNewPrivs"]


def children(pid):
    """The daemon's own processes, by what they are called."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{pid}\n" in (path / "status").read_text():
                found[(path / "cmdline").read_bytes().split(b"\0")[1].decode()] = int(path.name)
    return found


def links(pid):
    """What a process has attached to the kernel, by kind."""
    found = set()
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            found.update(re.findall(r"^link_type:\t(\S+)$", path.read_text(), re.M))
    return found


def probing(report, name, capabilities, main, port, peers):
    """What becomes of the probes: with the capabilities they are attached, and only their process has them."""
    gauge = lambda text, what: (re.findall(f'^warpmeter_source_{what}{{source="probes"}} (.+)$', text, re.M) or [None])[0]
    own = children(main)
    if "BPF" not in capabilities:
        _, text = get(port, "/status")
        off = "switched off by [bpf] enabled" in text and gauge(get(port, "/metrics")[1], "up") is None
        return report.check(f"container, {name}: probes are off, and no process is there for them", None if off and "bpf" not in own else f"{own}\n{text}")
    text = until(lambda: get(port, "/metrics")[1], lambda text: gauge(text, "up") == "1")
    said = get(port, "/status")[1]
    right = (gauge(text, "up"), gauge(text, "degraded")) == ("1", "0")
    report.check(f"container, {name}: probes are up", None if right else said)
    if peers:
        # At once, or (before Linux 6.6) point by point.
        on_calls = lambda kinds: any(re.fullmatch("u(ret)?probe_multi|perf", kind) for kind in kinds)
        kinds = until(lambda: links(own["bpf"]), on_calls)
        report.check(f"container, {name}: probes are attached to the library of another container", None if on_calls(kinds) else f"{kinds}\n{said}")
    mask = sum(1 << BITS[capability] for capability in capabilities)
    probing = (1 << BITS["BPF"]) | (1 << BITS["PERFMON"])
    report.equal(f"container, {name}: the process that probes has what it needs", masks(own["bpf"])[0]["CapEff"], mask)
    report.equal(f"container, {name}: the one with NVIDIA's library cannot probe", masks(own["nvidia"])[0]["CapPrm"] & probing, 0)




def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def until(ask, enough):
    """The first answer that is enough, or the last after ten seconds."""
    for _ in range(100):
        answer = ask()
        if enough(answer):
            break
        time.sleep(0.1)
    return answer


def run_one(report, helm, warpmeter, scratch, name, options, capabilities, peers):
    directory = scratch / name
    directory.mkdir()
    port = free_port()
    # Not every network has a place for all addresses.
    objects, _ = helm.template("--set", f"port={port}", "--set", "listenAddress=127.0.0.1", *options)
    bundle(directory, objects, warpmeter)
    runc = ["runc", "--root", str(directory / "runc")]
    log = (directory / "log").open("w")
    identity = f"warpmeter-chart-{os.getpid()}-{name}"
    process = subprocess.Popen([*runc, "run", "--bundle", str(directory), identity], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        answer = until(lambda: get(port, "/livez"), lambda answer: answer[0] == 200 or process.poll() is not None)
        if answer[0] != 200:
            return report.check(f"container, {name}: it lives", f"{answer}\n{(directory / 'log').read_text()}")
        report.check(f"container, {name}: it lives", None)
        state = json.loads(subprocess.run([*runc, "state", identity], capture_output=True, text=True).stdout)
        sets, sealed = masks(state["pid"])
        mask = sum(1 << BITS[capability] for capability in capabilities)
        # What only probes use, the main process lays down.
        used = mask & (1 << BITS["SYS_PTRACE"])
        report.equal(f"container, {name}: capabilities", (sets["CapEff"], sets["CapPrm"]), (used, mask))
        report.equal(f"container, {name}: it can gain none", (sealed, sets["CapBnd"]), ("1", mask))
        time.sleep(1.5)
        code, text = get(port, "/metrics")
        up = 'warpmeter_source_up{source="host"} 1' in text
        report.check(f"container, {name}: it sees the host's processes", None if code == 200 and up else f"{code}\n{text[:2000]}")
        if peers:
            code, text = get(port, "/status")
            blind = "CAP_SYS_PTRACE" in text
            right = code == 200 and blind == ("SYS_PTRACE" not in capabilities)
            report.check(f"container, {name}: open files of others are seen with CAP_SYS_PTRACE only", None if right else text)
        code, text = get(port, "/readyz")
        reason = "no GPU" in text and code == 503
        report.check(f"container, {name}: without a driver it is not ready, and says so", None if reason else f"{code} {text}")
        probing(report, name, capabilities, state["pid"], port, peers)
        inside, said = kernel([*runc, "exec", identity, "warpmeter", "check"])
        outside, _ = kernel([warpmeter, "check"])
        programs = {mark for feature, mark in inside.items() if "programs" in feature}
        if "BPF" in capabilities:
            report.equal(f"container, {name}: probes find all that the kernel has", inside, outside)
            if peers:
                library = str(scratch / LIBRARY)
                found = [line for line in said.splitlines() if line.startswith("  ok ") and "driver library" in line and library in line]
                report.check(f"container, {name}: the library of another container is found and can be probed", None if found else said)
        else:
            report.equal(f"container, {name}: it can load no BPF program", programs, {"missing"})
        words = [*runc, "exec", identity, "warpmeter", "release", "--config", "/etc/warpmeter/warpmeter.toml"]
        released = subprocess.run(words, capture_output=True, text=True)
        report.check(f"container, {name}: `release` reaches it", released.stderr if released.returncode else None)
        process.terminate()
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            code = "none"
        report.equal(f"container, {name}: it ends when it is told to", code, 0)
    finally:
        subprocess.run([*runc, "kill", identity, "KILL"], capture_output=True)
        subprocess.run([*runc, "delete", "--force", identity], capture_output=True)
        if process.poll() is None:
            process.kill()
        process.wait()
        log.close()


def run_late_driver(report, helm, warpmeter, scratch):
    """A privileged container with the host's /dev, and a driver that is mounted after it has started.

    All capabilities are not given here: what is in question are the mounts.
    """
    directory = scratch / "late"
    host = directory / "host"
    (host / "driver").mkdir(parents=True)
    if subprocess.run(["mount", "--bind", host, host], capture_output=True).returncode:
        return report.skip("a driver that comes later", "nothing can be mounted")
    port = free_port()
    process = None
    identity = f"warpmeter-chart-{os.getpid()}-late"
    runc = ["runc", "--root", str(directory / "runc")]
    driver = directory / "installed"
    (driver / "usr/lib64").mkdir(parents=True)
    (driver / "usr/lib64/libnvidia-ml.so.1").write_text("not a library")
    try:
        # As /run is on a node.
        subprocess.run(["mount", "--make-shared", host], check=True)
        options = ["--set", "deviceAccess=privileged", "--set", f"port={port}", "--set", "listenAddress=127.0.0.1"]
        objects, _ = helm.template(*options)
        bundle(directory, objects, warpmeter)
        with (directory / "log").open("w") as log:
            words = [*runc, "run", "--bundle", str(directory), identity]
            process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        answer = until(lambda: get(port, "/readyz"), lambda answer: "no driver library in" in answer[1])
        early = "no driver library in /host/driver, " in answer[1]
        log = (directory / "log").read_text()
        report.check("container, privileged: it looks for the driver where it is mounted", None if early else f"{answer}\n{log}")
        subprocess.run(["mount", "--bind", driver, host / "driver"], check=True)
        # The file is no library, and is named as what it is: so it was found.
        check = [*runc, "exec", identity, "warpmeter", "check", "--config", "/etc/warpmeter/warpmeter.toml"]
        text = subprocess.run(check, capture_output=True, text=True).stdout
        found = "/host/driver/usr/lib64/libnvidia-ml.so.1" in text
        report.check("container, privileged: a driver that is mounted later is found", None if found else text)
    finally:
        subprocess.run([*runc, "kill", identity, "KILL"], capture_output=True)
        subprocess.run([*runc, "delete", "--force", identity], capture_output=True)
        if process:
            process.kill()
            process.wait()
        for path in (host / "driver", host):
            subprocess.run(["umount", "--lazy", path], capture_output=True)


def run(report, helm, warpmeter, library, scratch):
    if not shutil.which("runc") or os.geteuid() != 0:
        return report.skip("the daemon in a container", "it takes runc and root")
    with workload(user_of_cuda(scratch, library)) as peers:
        if not peers:
            report.skip("what is seen of other containers", "no cgroup can be made")
        for name, options, capabilities in (
            ("counters", ["--set", "profile=counters"], ["SYS_PTRACE"]),
            ("least", ["--set", "profile=counters", "--set", "openFiles=false", "--set", "control.hostPath="], []),
            ("full", [], ["SYS_PTRACE", "PERFMON", "BPF"]),
        ):
            run_one(report, helm, warpmeter, scratch, name, options, capabilities, peers)
    run_late_driver(report, helm, warpmeter, scratch)
