//! Pods that come and go, some of them with processes.

use std::time::{Duration, Instant};

use warpmeter_simkubelet::{
    ClaimResource, ContainerResources, DynamicResource, Kubelet, PodResources, container, devices, pod,
};
use warpmeter_tests::cgroup::{Cgroups, Container};
use warpmeter_tests::program::Program;
use warpmeter_tests::random::Random;
use warpmeter_tests::sim::Sim;

/// A process is started with every so many pods: five a second.
const PER_PROCESS: usize = 4;
/// No more processes at a time than this.
const PROCESSES: usize = 24;

/// What runs all the time.
const STEADY: &str = "hog --duty 0.3 --kernel-us 1000";

struct Pod {
    name: String,
    device: String,
    uid: String,
    id: String,
    listed: PodResources,
    until: Instant,
    process: Option<(Program, Container)>,
}

/// All pods.
pub(super) struct Cluster {
    pods: Vec<Pod>,
    /// Programs that run all the time, in pods that stay.
    steady: Vec<Pod>,
    made: usize,
    processes: usize,
    again: usize,
    leaving: Vec<Container>,
    /// The last to go.
    cgroups: Cgroups,
}

impl Cluster {
    pub(super) fn new(sim: &Sim, kubelet: &Kubelet, cgroups: Cgroups) -> Self {
        let mut cluster = Self {
            pods: Vec::new(),
            steady: Vec::new(),
            made: 0,
            processes: 0,
            again: 0,
            leaving: Vec::new(),
            cgroups,
        };
        for (number, device) in
            [&sim.gpus[0].uuid, &sim.gpus[1].uuid, &sim.gpus[3].instances[0]].into_iter().enumerate()
        {
            let id = if number == 0 { format!("{device}::0") } else { device.clone() };
            let main = container("main", vec![devices("nvidia.com/gpu", &[id])]);
            let mut one = cluster.named(&format!("steady-{number}"), main, Duration::from_secs(100_000));
            let place = cluster.cgroups.container_of(&one.uid);
            one.id.clone_from(&place.id);
            kubelet.log("chaos", &one.name, &one.uid, &[("main", &one.id)]).unwrap();
            one.device.clone_from(device);
            one.process = Some((Program::start(sim, device, Some(&place.procs), STEADY), place));
            cluster.steady.push(one);
        }
        let replicas: Vec<String> = (0..8).map(|n| format!("{}::{n}", sim.gpus[0].uuid)).collect();
        kubelet.offer(vec![devices("nvidia.com/gpu", &replicas)]);
        cluster.list(kubelet);
        cluster
    }

    fn named(&mut self, name: &str, main: ContainerResources, life: Duration) -> Pod {
        self.made += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.made);
        Pod {
            name: name.to_owned(),
            device: String::new(),
            uid,
            id: format!("{:064x}", self.made),
            listed: pod("chaos", name, vec![main]),
            until: Instant::now() + life,
            process: None,
        }
    }

    /// One pod more, and those whose time has come fewer.
    pub(super) fn beat(&mut self, sim: &Sim, kubelet: &Kubelet, random: &mut Random) {
        let main = holdings(sim, random);
        // Names come again, as those of a StatefulSet do.
        let again = format!("pod-{}", random.below(5));
        let taken = random.chance(80) || self.pods.iter().any(|pod| pod.name == again);
        let name = if taken { format!("pod-{}", 5 + self.made) } else { again };
        let life = Duration::from_millis(u64::try_from(100 + random.below(4000)).unwrap());
        let mut one = self.named(&name, main, life);
        let running = self.pods.iter().filter(|pod| pod.process.is_some()).count();
        if self.made.is_multiple_of(PER_PROCESS) && running < PROCESSES {
            let place = self.cgroups.container_of(&one.uid);
            one.id.clone_from(&place.id);
            let gpu = random.pick(&sim.gpus[..3]);
            let seconds = life.as_secs_f64().min(2.0);
            let words = format!("hog --duty 0.2 --kernel-us 500 --seconds {seconds:.2}");
            one.process = Some((Program::start(sim, &gpu.uuid, Some(&place.procs), &words), place));
            self.processes += 1;
        }
        // Some never have logs.
        if random.chance(90) {
            kubelet.log("chaos", &one.name, &one.uid, &[("main", &one.id)]).unwrap();
        }
        self.pods.push(one);
        let now = Instant::now();
        let (gone, stay) = self.pods.drain(..).partition(|pod| pod.until <= now);
        self.pods = stay;
        for pod in gone {
            self.remove(kubelet, pod);
        }
        // Work on a GPU that is lost fails, and is started again in its container.
        for pod in &mut self.steady {
            if let Some((program, place)) = &mut pod.process
                && program.ended()
            {
                *program = Program::start(sim, &pod.device, Some(&place.procs), STEADY);
                self.again += 1;
            }
        }
        let cgroups = &mut self.cgroups;
        self.leaving.retain(|place| !cgroups.remove(place));
        self.list(kubelet);
        let mut listed = kubelet.listed();
        random.shuffle(&mut listed);
        kubelet.list(listed);
    }

    fn list(&self, kubelet: &Kubelet) {
        kubelet.list(self.steady.iter().chain(&self.pods).map(|pod| pod.listed.clone()).collect());
    }

    fn remove(&mut self, kubelet: &Kubelet, mut pod: Pod) {
        // Not all have logs, and what is not there need not be removed.
        drop(kubelet.remove_logs("chaos", &pod.name, &pod.uid));
        let link = format!("{}_chaos_main-{}.log", pod.name, pod.id);
        drop(std::fs::remove_file(kubelet.container_logs().join(link)));
        if let Some((program, place)) = pod.process.take() {
            drop(program);
            self.leaving.push(place);
        }
    }

    /// All pods end but those that stay.
    pub(super) fn end(&mut self, kubelet: &Kubelet) {
        for pod in std::mem::take(&mut self.pods) {
            self.remove(kubelet, pod);
        }
        self.list(kubelet);
    }

    pub(super) fn report(&self) -> String {
        format!("pods: {}, processes: {}, started again: {}\n", self.made, self.processes, self.again)
    }
}

/// What a new pod's container holds: every form of id, and sometimes nonsense, another's device, or nothing.
fn holdings(sim: &Sim, random: &mut Random) -> ContainerResources {
    let gpu = &sim.gpus[random.below(3)].uuid;
    let n = random.below(8);
    let id: Vec<u8> = match random.below(12) {
        0 => gpu.clone().into(),
        1..=3 => format!("{gpu}::{n}").into(),
        4 => format!("nvidia{}/vgpu{n}", random.below(3)).into(),
        5 => format!("{gpu}-{n}").into(),
        6 => sim.gpus[3].instances[1].clone().into(),
        7 => format!("{}::{n}", sim.gpus[3].instances[1]).into(),
        8 => vec![u8::try_from(random.below(256)).unwrap(); random.below(200)],
        9 => {
            let claim = ClaimResource {
                driver_name: "gpu.nvidia.com".into(),
                device_name: format!("gpu-{}", random.below(4)),
                ..ClaimResource::default()
            };
            let resource = DynamicResource { claim_resources: vec![claim], ..DynamicResource::default() };
            return ContainerResources { dynamic_resources: vec![resource], ..container("main", vec![]) };
        }
        _ => return container("main", vec![]),
    };
    container("main", vec![devices("nvidia.com/gpu", &[id])])
}
