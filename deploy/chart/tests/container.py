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
    added = [f"CAP_{name}" for name in context.get("capabilities", {}).get("add", [])]
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
        "linux": {"namespaces": [{"type": name} for name in ("mount", "uts", "ipc")]},
    }
    (directory / "config.json").write_text(json.dumps(config))


@contextlib.contextmanager
def workload():
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
            process = subprocess.Popen(["sleep", "600"])
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
    """What `warpmeter check` says of the kernel's BPF programs and types, each with its mark."""
    text = subprocess.run(words, capture_output=True, text=True).stdout
    lines = text[text.find("kernel, for stall causes") :].splitlines()[1:]
    marks = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in lines if re.match("  (ok|missing) ", line)}
    return {name: mark for name, mark in marks.items() if "pressure" not in name}


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
        status = pathlib.Path(f"/proc/{state['pid']}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        mask = sum(1 << BITS[capability] for capability in capabilities)
        report.equal(f"container, {name}: capabilities", int(fields["CapEff"], 16), mask)
        report.equal(f"container, {name}: it can gain none", (fields["NoNewPrivs"], int(fields["CapBnd"], 16)), ("1", mask))
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
        inside = kernel([*runc, "exec", identity, "warpmeter", "check"])
        outside = kernel([warpmeter, "check"])
        programs = {mark for feature, mark in inside.items() if "programs" in feature}
        if "BPF" in capabilities:
            report.equal(f"container, {name}: probes would find all that the kernel has", inside, outside)
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


def run(report, helm, warpmeter, scratch):
    if not shutil.which("runc") or os.geteuid() != 0:
        return report.skip("the daemon in a container", "it takes runc and root")
    with workload() as peers:
        if not peers:
            report.skip("what is seen of other containers", "no cgroup can be made")
        for name, options, capabilities in (
            ("counters", [], ["SYS_PTRACE"]),
            ("least", ["--set", "openFiles=false", "--set", "control.hostPath="], []),
            ("full", ["--set", "profile=full"], ["SYS_PTRACE", "PERFMON", "BPF"]),
        ):
            run_one(report, helm, warpmeter, scratch, name, options, capabilities, peers)
    run_late_driver(report, helm, warpmeter, scratch)
