"""What must be true of every rendered DaemonSet."""

import hashlib

from chart import ROOT, of_kind, only, toml_of

READ_ONLY = {"/var/lib/kubelet/pod-resources", "/var/log/pods", "/var/log/containers", "/etc/warpmeter", "/host/sys/fs/cgroup"}


def capabilities(access, profile, values):
    """Those that the container may have; None: all."""
    if access == "privileged":
        return None
    samples = {"SYS_ADMIN"} if values == "everything" else set()
    if profile == "full":
        return {"BPF", "PERFMON", "SYS_PTRACE"} | samples
    return set() if values == "nothing" else {"SYS_PTRACE"} | samples


def problems(objects, values, access, profile):
    found = []

    def hold(condition, text):
        if not condition:
            found.append(text)

    daemonset = only(objects, "DaemonSet")
    spec = daemonset["spec"]
    pod = spec["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    annotations = spec["template"]["metadata"]["annotations"]
    (container,) = pod["containers"]
    asks = values == "everything"

    hold(pod["hostPID"] is True and "hostNetwork" not in pod, "the host's process ids and nothing else of the host's")
    selector = spec["selector"]["matchLabels"]
    hold(selector.items() <= labels.items(), "selects its own pods")
    hold(selector.get("app.kubernetes.io/name") == "warpmeter", "the rules look for the job warpmeter")

    # Mounts: each has its volume and the other way round; all but the control socket and /dev are read-only.
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    hold(len(mounts) == len(container["volumeMounts"]) and len(volumes) == len(pod["volumes"]), "no duplicates")
    hold({mount["name"] for mount in mounts.values()} == volumes.keys(), "a volume for each mount and no other")
    writable = {path for path, mount in mounts.items() if not mount.get("readOnly")}
    hold(writable == {"/run/warpmeter"} | ({"/dev"} if access == "privileged" else set()), f"writable: {writable}")
    hold(READ_ONLY <= mounts.keys(), "reads what the daemon reads")
    kubelet = "/var/lib/k0s/kubelet" if values == "everything" else "/var/lib/kubelet"
    wanted = {f"{kubelet}/pod-resources", "/var/log/pods", "/var/log/containers", "/sys/fs/cgroup"}
    if values != "nothing":
        wanted.add("/run/warpmeter")
    if access == "privileged":
        wanted.add("/dev")
        if values != "nothing":
            wanted.add("/home/kubernetes/bin/nvidia")
    if access == "runtimeClass" and values == "everything":
        wanted.add("/dev/null")
    if values == "everything":
        wanted.add("/opt/cuda")
        hold(mounts.get("/host/cuda", {}).get("name") == "cuda-toolkit", "the toolkit for PM sampling")
    paths = {volume["hostPath"]["path"] for volume in volumes.values() if "hostPath" in volume}
    hold(paths == wanted, f"host paths {sorted(paths)}, wanted {sorted(wanted)}")

    context = container["securityContext"]
    hold(context["runAsUser"] == 0 and context["readOnlyRootFilesystem"] is True, "root on a read-only root")
    allowed = capabilities(access, profile, values)
    if allowed is None:
        hold(context["privileged"] is True, "privileged")
        hold("capabilities" not in context and "allowPrivilegeEscalation" not in context, "what privileged overrules is not claimed")
        hold(not container["terminationMessagePath"].startswith("/dev"), "nothing is written into the host's /dev")
    else:
        hold(context["privileged"] is False and context["allowPrivilegeEscalation"] is False, "no escalation")
        hold(context["capabilities"]["drop"] == ["ALL"], "drops all capabilities")
        hold(set(context["capabilities"].get("add", [])) == allowed, f"capabilities {context['capabilities']}")
        hold(context["seccompProfile"] == {"type": "RuntimeDefault"}, "seccomp")

    # Devices.
    environment = {entry["name"]: entry for entry in container["env"]}
    hold(environment["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName", "NODE_NAME")
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", {}).get("value")
    if access == "runtimeClass":
        asked = environment["NVIDIA_DRIVER_CAPABILITIES"]["value"]
        hold(asked == ("compute,utility" if values == "everything" else "utility"), f"of the driver: {asked}")
    annotation = annotations.get("nvidia.cdi.k8s.io/container." + container["name"])
    management = "management.nvidia.com/gpu=all"
    by_values = {  # access: (visible, annotation, runtime class), by values
        "cdi": {"everything": (management, None, "nvidia")},
        "runtimeClass": {
            "defaults": ("all", None, "nvidia"),
            "everything": ("/var/run/nvidia-container-devices", None, "nvidia"),
            "nothing": ("all", None, None),
        },
        "privileged": {},
    }
    default = (None, management if access == "cdi" else None, None)
    found_access = (visible, annotation, pod.get("runtimeClassName"))
    hold(found_access == by_values[access].get(values, default), f"devices by {found_access}")
    if access == "runtimeClass" and values == "everything":
        hold("/var/run/nvidia-container-devices/all" in mounts, "all devices as a mount")

    # Identity: none, unless the API server is asked.
    hold(pod["automountServiceAccountToken"] is asks, "a token only for the API server")
    accounts = of_kind(objects, "ServiceAccount")
    name = pod["serviceAccountName"]
    hold([account["metadata"]["name"] for account in accounts] == ([] if values == "nothing" else [name]), f"account {name}")
    roles = of_kind(objects, "ClusterRole")
    hold(bool(roles) == asks and len(of_kind(objects, "ClusterRoleBinding")) == len(roles), "a role only for the API server")
    for role in roles:
        hold(role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}], f"rules {role['rules']}")
        subjects = only(objects, "ClusterRoleBinding")["subjects"]
        hold(subjects == [{"kind": "ServiceAccount", "name": name, "namespace": "gpu"}], f"subjects {subjects}")

    # Probes, and whoever else goes to the port.
    (port,) = container["ports"]
    number = 9500 if values == "everything" else 9408
    hold(port["name"] == "metrics" and port["containerPort"] == number, f"port {port}")
    routes = (ROOT / "exporter/src/routes.rs").read_text()
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        if values == "nothing":
            hold(probe not in container, f"{probe} can be turned off")
            continue
        request = container[probe]["httpGet"]
        hold(request["path"] == path and f'"{path}" =>' in routes, f"{probe} asks {path}, which the daemon answers")
        hold(request["port"] == port["name"], f"{probe} asks the port")
    for monitor in of_kind(objects, "PodMonitor"):
        hold(monitor["spec"]["selector"]["matchLabels"].items() <= labels.items(), "the monitor selects the pods")
        hold(monitor["spec"]["podMetricsEndpoints"][0]["port"] == port["name"], "the monitor's port")
        hold(monitor["spec"]["namespaceSelector"] == {"matchNames": ["gpu"]}, "the monitor's namespace")
        hold(monitor["spec"]["jobLabel"] == "app.kubernetes.io/name", "the job")
    for policy in of_kind(objects, "NetworkPolicy"):
        hold(policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items(), "the policy selects the pods")
        hold(policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": number}], "the policy's port")

    config = only(objects, "ConfigMap")
    hold(volumes["config"]["configMap"]["name"] == config["metadata"]["name"], "mounts the configuration")
    hold(container["args"][:3] == ["run", "--config", "/etc/warpmeter/warpmeter.toml"], f"arguments {container['args']}")
    digest = hashlib.sha256(toml_of(objects).rstrip("\n").encode()).hexdigest()
    hold(annotations["checksum/config"] == digest, "the pods follow the configuration")
    if values == "defaults":
        host = container["image"].split("/")[0]
        hold(not any(mark in host for mark in ".:"), f"image {container['image']} names a registry's host")

    namespaces = {document["metadata"].get("namespace") for document in objects}
    hold(namespaces <= {None, "gpu", "monitoring"}, f"namespaces {namespaces}")
    return found
