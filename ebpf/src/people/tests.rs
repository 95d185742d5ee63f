use super::*;

#[derive(Debug, Default)]
struct Few {
    minors: Vec<u32>,
    pod: &'static str,
}

impl Host for Few {
    fn process(&mut self, pid: u32) -> Option<(ProcessId, Scope)> {
        let scope = Scope::Pod { uid: PodUid::new(self.pod), container: None };
        Some((ProcessId { pid: HostPid(pid), start: MonoNs(1) }, scope))
    }

    fn opened(&mut self, _pid: u32) -> Option<Opened> {
        Some(Opened { control: true, minors: self.minors.clone(), uvm: true })
    }

    fn is_workload(&self, _scope: &Scope) -> bool {
        true
    }
}

const BYTES: [u8; 16] = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
const UUID: &str = "12345678-9abc-def0-0102-030405060708";

#[test]
fn a_device_is_what_the_process_was_told_when_it_asked() {
    let mut people = People::new(Few { minors: vec![3], pod: "p" });
    people.learn(7, 1, BYTES);
    let gpu = DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")));
    assert_eq!(people.device(7, Some(1)), Some(gpu));
    people.set_instances(&[MigId::new(format!("MIG-{UUID}"))]);
    let instance = DeviceRef::Mig(MigId::new(format!("MIG-{UUID}")));
    assert_eq!(people.device(7, Some(1)), Some(instance));
}

#[test]
fn without_that_it_is_the_only_one_that_it_can_be_and_never_the_first() {
    let device = |minors: &[u32], holders: &[(&str, u32)]| {
        let mut people = People::new(Few { minors: minors.to_vec(), pod: "p" });
        for (gpu, pid) in holders {
            people.hold(GpuId::new(*gpu), vec![*pid]);
        }
        people.device(7, Some(0))
    };
    let gpu = |id| Some(DeviceRef::Gpu(GpuId::new(id)));
    assert_eq!(device(&[0, 1], &[("GPU-a", 7), ("GPU-b", 8)]), gpu("GPU-a"), "the driver says so");
    assert_eq!(device(&[2], &[("GPU-a", 7), ("GPU-b", 7)]), Some(DeviceRef::Minor(2)), "one file is open");
    assert_eq!(device(&[0, 1], &[("GPU-a", 7), ("GPU-b", 7)]), None);
    assert_eq!(device(&[], &[]), None);
}

#[test]
fn a_pod_that_refuses_is_refused_and_no_other() {
    let mut people = People::new(Few { minors: vec![], pod: "p" });
    assert!(!people.refuses(7));
    assert!(people.refuse(vec![PodUid::new("p")]));
    assert!(people.refuses(7));
    assert!(!people.refuse(vec![PodUid::new("p")]), "that is nothing new");
    assert!(people.refuse(vec![PodUid::new("q")]));
    assert!(!people.refuses(7));
}

#[test]
fn a_process_that_was_gone_at_once_is_its_cgroups_unless_that_is_several_owners() {
    let record = |cgroup, ended| Process { cgroup, seen: 25_000_000, ended, ..crate::sys::zero() };
    let mut people = People::new(Few { minors: vec![], pod: "p" });
    let pod = |uid| Scope::Pod { uid: PodUid::new(uid), container: None };
    assert_eq!(people.process(8, &record(42, 30_000_000)), None, "nothing says whose it was");
    people.process(7, &record(42, 0));
    let (id, scope) = people.process(8, &record(42, 30_000_000)).unwrap();
    assert_eq!((id.start, scope), (MonoNs(20_000_000), pod("p")));
    people.host.pod = "q";
    people.process(9, &record(42, 0));
    assert_eq!(people.process(8, &record(42, 30_000_000)), None);
}

#[test]
fn who_refuses_is_a_user_of_its_driver_and_nothing_else_is_said_of_it() {
    let mut people = People::new(Few { minors: vec![], pod: "p" });
    people.users = [7, 8].into();
    // One of them is watched, and a third used a driver once.
    people.unseen = [7, 9].into();
    assert_eq!(people.unwatched(), [7, 9]);
    people.refuse(vec![PodUid::new("p")]);
    assert!(people.unwatched().is_empty());
    assert_eq!(people.users(), [7, 8, 9]);
    assert_eq!([7, 8, 9].map(|pid| people.is_watched(pid)), [false, true, false]);
    people.forget(8);
    assert_eq!(people.users(), [7, 9]);
}
