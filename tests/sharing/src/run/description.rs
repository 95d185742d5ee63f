//! What is known from the beginning: the devices, who holds them, and the processes.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpmeter_core::device_id;
use warpmeter_core::fact::{
    self, Allotment, Container, DeviceRef, Fact, Health, HealthState, Mps, Opened, Pod, PodInfo, PodNames,
    Pods, Replicas, Share, Source,
};
use warpmeter_core::identity::{GpuId, HostPid, MigId, ProcessId, Scope};
use warpmeter_core::inventory::{Authority, Counter, Gpu, Instance, Inventory, Mig};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::MonoNs;
use warpmeter_simgpu::Guard;

use super::names::{SERVER, container_id, container_name, uid};
use super::{BEGIN, Recorder};
use crate::case::{Sharing, Whose};

impl Recorder<'_> {
    /// What is known from the beginning.
    pub(super) fn begin(&mut self, guard: &Guard<'_>) {
        let health = Health { state: HealthState::Up, reason: String::new() };
        self.tell(0, Source::Host, Fact::Health(health));
        let gpus = (0..usize::try_from(self.case.gpus).unwrap()).map(|gpu| self.gpu(guard, gpu)).collect();
        self.tell(0, Source::Nvidia, Fact::Inventory(Inventory { driver: None, gpus }));
        let pods = self.pods();
        self.tell(0, Source::Pods, Fact::Pods(pods.clone()));
        let names: Vec<PodNames> = pods.pods.iter().filter_map(|pod| self.noted(pod)).collect();
        if !names.is_empty() {
            self.tell(0, Source::Names, Fact::Names(names));
        }
        if self.case.sharing == Sharing::Mps {
            let id = ProcessId { pid: HostPid(SERVER), start: MonoNs(BEGIN - 1) };
            let opened = Some(Opened { control: true, minors: vec![0], uvm: true });
            let scope = Scope::Unit("nvidia-mps.service".into());
            let server = fact::Process { id, scope, opened, mps: Some(Mps::Server), name: None };
            self.tell(0, Source::Host, Fact::Process(server));
        }
        for (number, process) in self.case.processes.iter().enumerate() {
            let mut minors: Vec<u32> = process
                .programs
                .iter()
                .map(|(device, _)| u32::try_from(self.gpus[*device]).unwrap())
                .collect();
            minors.sort_unstable();
            minors.dedup();
            let fact = fact::Process {
                id: self.id(number),
                scope: match process.whose {
                    Whose::Pod(pod, container) => {
                        Scope::Pod { uid: uid(pod), container: Some(container_id(pod, container)) }
                    }
                    Whose::Host => Scope::Host,
                },
                opened: Some(Opened { control: true, minors, uvm: true }),
                mps: match process.threads.and_then(Ppb::percent) {
                    _ if process.disguised => Some(Mps::Server),
                    threads => threads.map(Mps::Client),
                },
                name: None,
            };
            self.tell(process.begins(), Source::Host, Fact::Process(fact));
        }
    }

    fn gpu(&self, guard: &Guard<'_>, gpu: usize) -> Gpu {
        let instances: Vec<Instance> = self
            .devices
            .iter()
            .enumerate()
            .filter(|(number, (device, _))| self.gpus[*number] == gpu && device.mig.is_some())
            .map(|(number, (device, (slices, _)))| Instance {
                id: device.mig.clone().unwrap(),
                gpu_instance: guard.engine[number].gi,
                compute_instance: Some(0),
                profile: guard.engine[number].profile.as_str().into(),
                slices: u32::try_from(*slices).unwrap(),
                memory_bytes: None,
                placement: None,
            })
            .collect();
        let mig = (!instances.is_empty()).then_some(Mig { slices: 7, instances, creatable_slices: 0 });
        Gpu {
            id: GpuId::new(guard.device[gpu].uuid.as_str()),
            index: u32::try_from(gpu).ok(),
            minor: Some(guard.device[gpu].minor),
            pci_bus_id: guard.device[gpu].pci_bus.as_str().into(),
            model: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: None,
            memory_bus: None,
            link: None,
            down: None,
            mig,
            authority: Authority {
                engine: Some(Counter::GpmCycles),
                sm: None,
                processes: Some(Counter::ProcessUtilization),
            },
        }
    }

    /// What the scheduler has noted of a pod's grants, if it has.
    fn noted(&self, pod: &Pod) -> Option<PodNames> {
        let noted = self.case.grants.iter().filter(|grant| uid(grant.to.0) == pod.uid).filter_map(|grant| {
            Some(Allotment {
                container: container_name(grant.to.1).into(),
                device: DeviceRef::Gpu(self.devices[grant.device].0.gpu.clone()),
                share: Share::Compute(Ppb::percent(grant.share?)?),
            })
        });
        let allotments: Vec<Allotment> = noted.collect();
        (!allotments.is_empty()).then(|| PodNames {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            containers: pod.containers.clone(),
            ended: false,
            info: PodInfo::default(),
            allotments,
        })
    }

    fn pods(&self) -> Pods {
        let mut pods: Vec<Pod> = Vec::new();
        let mut named: BTreeSet<(u32, u32)> = self.case.grants.iter().map(|grant| grant.to).collect();
        named.extend(self.case.processes.iter().filter_map(|process| match process.whose {
            Whose::Pod(pod, container) => Some((pod, container)),
            Whose::Host => None,
        }));
        for (pod, container) in named {
            let held = self.case.grants.iter().enumerate().filter(|(_, grant)| grant.to == (pod, container));
            let grants = held.map(|(number, grant)| {
                let device = &self.devices[grant.device].0;
                let mig = device.mig.as_ref().map_or("", MigId::as_str);
                let id = grant.id.replace("{gpu}", device.gpu.as_str()).replace("{mig}", mig);
                let (device, part) = device_id::parse(&id.replace("{n}", &number.to_string())).unwrap();
                fact::Grant { container: container_name(container).into(), device, part }
            });
            let grants: Vec<fact::Grant> = grants.collect();
            let mut held = self.case.grants.iter().filter(|grant| grant.to == (pod, container));
            let deferred: Option<Arc<str>> =
                held.any(|grant| grant.share.is_some()).then(|| container_name(container).into());
            let described =
                Container { name: container_name(container).into(), id: Some(container_id(pod, container)) };
            match pods.iter_mut().find(|other| other.uid == uid(pod)) {
                Some(other) => {
                    other.containers.push(described);
                    other.deferred.extend(deferred);
                    other.grants.extend(grants);
                }
                None => pods.push(Pod {
                    uid: uid(pod),
                    namespace: "ns".into(),
                    name: format!("pod-{pod}").into(),
                    containers: vec![described],
                    grants,
                    deferred: deferred.into_iter().collect(),
                    info: PodInfo::default(),
                }),
            }
        }
        let offered = self.devices.iter().filter(|_| self.case.replicas > 0);
        let replicas = offered.map(|(device, _)| Replicas {
            device: device.mig.clone().map_or_else(|| DeviceRef::Gpu(device.gpu.clone()), DeviceRef::Mig),
            count: self.case.replicas,
        });
        Pods { pods, replicas: replicas.collect() }
    }
}
