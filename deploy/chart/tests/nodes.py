"""Which nodes the pods go to, by the rules of the scheduler."""

from chart import only

PLAIN = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
OPERATOR = {**PLAIN, "nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true"}
PAUSED = "paused-for-driver-upgrade"
MIG = "paused-for-mig-change"

# What the node is, its labels, and whether it gets a pod.
NODES = (
    ("of the GPU operator", OPERATOR, True),
    ("of a newer GPU operator", {**OPERATOR, "nvidia.com/gpu.deploy.client": "true"}, True),
    ("whose driver the operator swaps", {**OPERATOR, "nvidia.com/gpu.deploy.dcgm-exporter": PAUSED}, False),
    ("whose driver a newer operator swaps", {**OPERATOR, "nvidia.com/gpu.deploy.client": PAUSED}, False),
    ("whose MIG layout the operator changes", {**OPERATOR, "nvidia.com/gpu.deploy.dcgm-exporter": MIG}, False),
    ("of GKE with GPUs", {**PLAIN, "cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, True),
    ("of EKS, a node group", {**PLAIN, "k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}, True),
    ("of EKS by Karpenter", {**PLAIN, "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, True),
    ("of EKS by Karpenter, of another maker", {**PLAIN, "karpenter.k8s.aws/instance-gpu-manufacturer": "habana"}, False),
    ("of EKS Auto Mode", {**PLAIN, "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia"}, True),
    ("of AKS", {**PLAIN, "kubernetes.azure.com/accelerator": "nvidia"}, True),
    ("without GPU", PLAIN, False),
    ("of arm64", {**OPERATOR, "kubernetes.io/arch": "arm64"}, True),
    ("of GKE, of arm64", {**PLAIN, "cloud.google.com/gke-accelerator": "nvidia-gb200", "kubernetes.io/arch": "arm64"}, True),
    ("of another processor", {**OPERATOR, "kubernetes.io/arch": "ppc64le"}, False),
    ("of another system", {**OPERATOR, "kubernetes.io/os": "windows"}, False),
    ("without GPU, though the operator looked", {**PLAIN, "nvidia.com/gpu.present": "false"}, False),
)


def meets(labels, expression):
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


def matches(labels, pod):
    if not pod.get("nodeSelector", {}).items() <= labels.items():
        return False
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return any(all(meets(labels, expression) for expression in term["matchExpressions"]) for term in terms)


def run(report, helm):
    objects, _ = helm.template()
    pod = only(objects, "DaemonSet")["spec"]["template"]["spec"]
    for what, labels, wanted in NODES:
        report.equal(f"a pod for a node {what}: {wanted}", matches(labels, pod), wanted)
    report.equal("taints keep no pod away", pod["tolerations"], [{"operator": "Exists"}])
    objects, _ = helm.template("--set", "gpuNodes.any=null")
    terms = only(objects, "DaemonSet")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    report.equal("without `any`, all nodes that meet `all`", {e["operator"] for e in term["matchExpressions"]}, {"NotIn", "In"})
