"""A kubelet of another make for tests: PodResources v1 by grpcio, from the same definition.

    server.py SOCKET STUBS

serves a fixed answer on SOCKET, with the stubs that grpcio-tools wrote into the directory STUBS, until its standard
input ends.
"""

import os
import sys
from concurrent import futures

import grpc

socket, stubs = sys.argv[1:]
sys.path.insert(0, stubs)
import podresources_pb2 as v1  # noqa: E402
import podresources_pb2_grpc as service  # noqa: E402

UUID = "5a5a7118-e550-79a1-597e-7631e126c57a"


def devices(resource, *ids):
    topology = v1.TopologyInfo(nodes=[v1.NUMANode(ID=1)])
    return v1.ContainerDevices(resource_name=resource, device_ids=ids, topology=topology)


def claim(driver, device):
    cdi = v1.CDIDevice(name=f"k8s.{driver}/claim={UUID}-{device}")
    resource = v1.ClaimResource(cdi_devices=[cdi], driver_name=driver, pool_name="node", device_name=device, share_id="s")
    return v1.DynamicResource(claim_name="claim", claim_namespace="research", claim_resources=[resource])


class Kubelet(service.PodResourcesListerServicer):
    def List(self, request, context):
        memory = v1.ContainerMemory(memory_type="memory", size=1 << 33)
        plugin = v1.ContainerResources(
            name="main",
            devices=[devices("nvidia.com/gpu.shared", f"GPU-{UUID}::1"), devices("intel.com/nic", "nic0")],
            cpu_ids=[0, 1, 63],
            memory=[memory],
        )
        dra = v1.ContainerResources(
            name="main",
            dynamic_resources=[claim("gpu.nvidia.com", "gpu-3"), claim("compute-domain.nvidia.com", "channel-0")],
        )
        return v1.ListPodResourcesResponse(
            pod_resources=[
                v1.PodResources(name="plugin", namespace="research", containers=[plugin]),
                v1.PodResources(name="dra", namespace="research", containers=[dra]),
            ]
        )

    def GetAllocatableResources(self, request, context):
        replicas = [devices("nvidia.com/gpu.shared", f"GPU-{UUID}::{number}") for number in range(4)]
        return v1.AllocatableResourcesResponse(devices=replicas, cpu_ids=range(64))


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
service.add_PodResourcesListerServicer_to_server(Kubelet(), server)
server.add_insecure_port(f"unix:{socket}")
server.start()
print(f"grpcio {grpc.__version__} as pid {os.getpid()} serves {socket}", flush=True)
sys.stdin.read()
server.stop(0)
