"""A second source of metrics beside the demo: the exporter's golden exposition, moving.

Counters gain their golden value in each 100 seconds, from three hours ago on; gauges stand still, but for
timestamps. It has what a healthy demo lacks: XID faults, owners that are not pods, a GPU that cannot be read, a pending
row remapping, pods that have idled for hours or starve, probes' own figures, MIG slices that fit nobody; and kube-state-metrics and cAdvisor beside it.
"""

import pathlib
import re

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "exporter/exposition.golden"
# The instant of the golden's timestamps, and the seconds in which a counter gains its golden value.
STAMPED, PACE = 1_700_000_000, 100
TARGET = {"cluster": "golden", "node": "node-1", "instance": "node-1:9408", "job": "warpmeter"}
POD = 'namespace="team-a",pod="trainer-0"'
WAITS = 'namespace="team-a",pod="waits"'

KUBE = f"""
kube_node_status_capacity{{node="node-2",resource="nvidia_com_gpu",unit="integer"}} 8
kube_node_labels{{node="node-5",label_nvidia_com_gpu_present="true"}} 1
kube_pod_created{{{WAITS},uid="uid-9"}} 1699998000
kube_pod_resourceclaim_info{{namespace="team-a",pod="claims",uid="uid-8",claim_name="gpu",resourceclaim_name="claims-gpu-x",resourceclaim_template_name="single-gpu"}} 1
kube_pod_status_scheduled{{namespace="team-a",pod="claims",uid="uid-8",condition="false"}} 1
kube_pod_labels{{namespace="team-a",pod="server-8",uid="uid-4",label_team="speech",label_app_kubernetes_io_name="asr",label_model="whisper",label_environment="staging"}} 1
kube_pod_owner{{namespace="team-a",pod="server \\"7\\"",uid="uid-3",owner_kind="ReplicaSet",owner_name="server-6d4",owner_is_controller="true"}} 1
kube_replicaset_owner{{namespace="team-a",replicaset="server-6d4",owner_kind="Deployment",owner_name="server",owner_is_controller="true"}} 1
kube_pod_owner{{{POD},uid="uid-1",owner_kind="Job",owner_name="trainer",owner_is_controller="true"}} 1
kube_job_owner{{namespace="team-a",job_name="trainer",owner_kind="CronJob",owner_name="nightly",owner_is_controller="true"}} 1
kube_pod_container_resource_requests{{{POD},uid="uid-1",container="main",node="node-1",resource="nvidia_com_gpu",unit="integer"}} 1
kube_pod_status_scheduled_time{{{POD},uid="uid-1"}} 1699990000
kube_job_created{{namespace="team-a",job_name="trainer"}} 1699989000
kube_job_status_start_time{{namespace="team-a",job_name="trainer"}} 1699990000
kube_job_status_active{{namespace="team-a",job_name="trainer"}} 1
kube_pod_container_resource_requests{{{WAITS},uid="uid-9",container="main",node="",resource="nvidia_com_gpu",unit="integer"}} 2
kube_pod_container_resource_requests{{{WAITS},uid="uid-9",container="side",node="",resource="nvidia_com_mig_1g_10gb",unit="integer"}} 1
kube_pod_status_scheduled{{{WAITS},uid="uid-9",condition="false"}} 1
kube_resourcequota{{namespace="team-a",resourcequota="q",resource="requests.nvidia.com/gpu",type="hard"}} 4
kube_resourcequota{{namespace="team-a",resourcequota="q",resource="requests.nvidia.com/gpu",type="used"}} 2
kube_horizontalpodautoscaler_info{{namespace="team-a",horizontalpodautoscaler="h",scaletargetref_kind="Job",scaletargetref_name="trainer"}} 1
kube_horizontalpodautoscaler_spec_target_metric{{namespace="team-a",horizontalpodautoscaler="h",metric_name="cpu",metric_target_type="utilization"}} 80
container_cpu_usage_seconds_total{{{POD},container="main"}} 3000
container_cpu_cfs_throttled_periods_total{{{POD},container="main"}} 1000
container_cpu_cfs_periods_total{{{POD},container="main"}} 10000
container_fs_reads_bytes_total{{{POD},container="main",device="/dev/sda"}} 1000000
container_fs_writes_bytes_total{{{POD},container="main",device="/dev/sda"}} 1000000
container_network_receive_bytes_total{{{POD},interface="eth0"}} 1000000
container_network_transmit_bytes_total{{{POD},interface="eth0"}} 1000000
"""
# Two more nodes, each with one whole GPU that is free: there is room for two GPUs, and on no node. And a MIG instance.
FREE = [
    line
    for node in ("node-3", "node-4")
    for line in (
        f'warpmeter_gpu_info{{node="{node}",instance="{node}:9408",gpu_uuid="GPU-{node}",mig="",index="0",minor="0",model="NVIDIA L4",pci_bus_id="",mig_profile="",sharing="none"}} 1',
        f'warpmeter_gpu_seconds_total{{node="{node}",instance="{node}:9408",gpu_uuid="GPU-{node}",mig="",state="unallocated"}} {PACE}',
    )
] + [
    'warpmeter_gpu_info{gpu_uuid="GPU-m",mig="MIG-3",index="4",minor="4",model="NVIDIA H100 80GB HBM3",pci_bus_id="",mig_profile="2g.20gb",sharing="mig"} 1',
    f'warpmeter_gpu_seconds_total{{gpu_uuid="GPU-m",mig="MIG-3",state="unallocated"}} {PACE * 2 / 7}',
]

# In the golden exposition they are off.
PROBES = [f'warpmeter_source_{name}{{source="probes"}} {value}' for name, value in (("up", 1), ("degraded", 0), ("cpu_seconds_total", 0.2), ("resident_bytes", 8_000_000))]
# A pod that waits for data for long enough to be told of.
STARVES = [
    f'warpmeter_pod_gpu_seconds_total{{namespace="team-a",pod="starves",pod_uid="uid-7",container="main",gpu_uuid="GPU-s",mig="",state="{state}",cause="{cause}"}} {seconds}'
    for state, cause, seconds in (("active", "none", 60), ("stalled", "disk_read", 40))
]


class Golden:
    """`start`: the second at which its counters are 0."""

    def __init__(self, start):
        self.start = start
        self.kinds, self.series = {}, []
        kube = KUBE.strip().splitlines()
        for line in GOLDEN.read_text().splitlines() + kube + FREE + PROBES + STARVES:
            if found := re.match(r"# TYPE (\S+) (\S+)", line):
                self.kinds[found[1]] = found[2]
            elif line and not line.startswith("#"):
                key, value = line.rsplit(" ", 1)
                self.series.append((key, float(value)))
        self.series.sort(key=lambda item: item[0].split("{")[0])

    def value(self, key, golden, at):
        name = key.split("{")[0]
        if name.endswith(("_timestamp_seconds", "_time", "_created")):
            return golden - STAMPED + at
        if name.endswith("_total"):
            return golden * (at - self.start) / PACE
        return golden

    def exposition(self, at):
        """As an exporter says it."""
        lines = [f"# TYPE {name} {kind}" for name, kind in self.kinds.items()]
        return "\n".join(lines + [f"{key} {self.value(key, golden, at):.17g}" for key, golden in self.series]) + "\n"

    def history(self, end, step=30):
        """As OpenMetrics with timestamps, for `promtool tsdb create-blocks-from openmetrics`, with its target's labels."""
        # Finer at its end: where scrapes are denser than what is before them, a rate over both is too low by up to a step.
        times = [*range(self.start, end - 900, step), *range(end - 900, end, step // 3)]
        for key, golden in [*self.series, ("up", 1.0), *((f'up{{node="{node}",instance="{node}:9408"}}', 1.0) for node in ("node-3", "node-4"))]:
            name, _, inner = key.partition("{")
            present = set(re.findall(r'(\w+)="', inner))
            own = ",".join(f'{label}="{value}"' for label, value in TARGET.items() if label not in present)
            labels = f"{{{inner[:-1]},{own}}}" if inner else f"{{{own}}}"
            for at in times:
                yield f"{name}{labels} {self.value(key, golden, at):.17g} {at}\n"
        yield "# EOF\n"
