use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use warpmeter_core::fact::Fact;
use warpmeter_core::identity::{ContainerId, PodUid};
use warpmeter_core::pressure::{Pressure, Throttled};
use warpmeter_core::time::{MonoNs, SECOND};

use super::{DIRECTORIES, Pressures, throttled_of, waited_of};

const UID: &str = "0b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11";
const ID: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
/// As Linux 6.12 writes them.
const PSI: &str =
    "some avg10=0.22 avg60=0.17 avg300=0.11 total=58761459\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
const STAT_2: &str = "usage_usec 6025\nuser_usec 3012\nsystem_usec 3012\ncore_sched.force_idle_usec 0\nnr_periods 12\n\
                      nr_throttled 7\nthrottled_usec 512003\nnr_bursts 0\nburst_usec 0\n";
const STAT_2_BARE: &str = "usage_usec 6025\nuser_usec 3012\nsystem_usec 3012\n";
const STAT_1: &str = "nr_periods 12\nnr_throttled 7\nthrottled_time 512003111\nnr_bursts 0\nburst_time 0\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn pods(uids: &[&str]) -> BTreeSet<PodUid> {
    uids.iter().map(|uid| PodUid::new(*uid)).collect()
}

fn at(second: u64) -> MonoNs {
    MonoNs(second * SECOND)
}

fn poll(source: &mut Pressures, uids: &[&str], second: u64) -> Vec<Pressure> {
    let mut facts = Vec::new();
    source.poll(&pods(uids), at(second), &mut facts);
    let pressure = |fact| match fact {
        Fact::Pressure(pressure) => pressure,
        other => panic!("{other:?}"),
    };
    facts.into_iter().map(pressure).collect()
}

fn throttled(container: Option<&str>, nanos: u64) -> Throttled {
    Throttled { container: container.map(ContainerId::new), nanos }
}

#[test]
fn the_kernels_texts_give_nanoseconds_and_others_nothing() {
    assert_eq!(waited_of(PSI), Some(58_761_459_000));
    assert_eq!(throttled_of(STAT_2), Some(512_003_000));
    assert_eq!(throttled_of(STAT_1), Some(512_003_111));
    assert_eq!(throttled_of(STAT_2_BARE), None, "the controller is off: not 0");
    for text in
        ["", "some", "some total=", "some total=-1", "full total=3", "some total=18446744073709551615"]
    {
        assert_eq!(waited_of(text), None, "{text}");
    }
    for text in
        ["", "throttled_usec", "throttled_usec x", "throttled_usec 18446744073709551615", "throttled_times 3"]
    {
        assert_eq!(throttled_of(text), None, "{text}");
    }
}

#[test]
fn a_pod_of_the_unified_hierarchy_is_found_in_both_notations_and_below_a_node_that_is_a_container() {
    let slice = UID.replace('-', "_");
    let places = [
        (format!("kubepods/burstable/pod{UID}"), ID.to_owned()),
        (format!("kubepods.slice/kubepods-pod{slice}.slice"), format!("cri-containerd-{ID}.scope")),
        (
            format!(
                "docker/{}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{slice}.slice",
                "a".repeat(64)
            ),
            format!("crio-{ID}.scope"),
        ),
    ];
    for (pod, container) in places {
        let root = TempDir::new().unwrap();
        let pod = root.path().join(pod);
        write(&root.path().join("cgroup.controllers"), "cpu io memory\n");
        write(&root.path().join("system.slice/ssh.service/cpu.pressure"), PSI);
        for resource in ["cpu", "io"] {
            write(&pod.join(format!("{resource}.pressure")), PSI);
        }
        write(&pod.join("cpu.stat"), STAT_2);
        write(&pod.join(container).join("cpu.stat"), STAT_2);
        write(&pod.join(format!("crio-conmon-{ID}.scope/cpu.stat")), STAT_2);
        let mut source = Pressures::new(root.path().into());
        let found = Pressure {
            pod: PodUid::new(UID),
            waited: [Some(58_761_459_000), Some(58_761_459_000), None],
            throttled: vec![throttled(None, 512_003_000), throttled(Some(ID), 512_003_000)],
        };
        assert_eq!(
            poll(&mut source, &[UID], 10).as_slice(),
            std::slice::from_ref(&found),
            "{}",
            pod.display()
        );
        assert_eq!(poll(&mut source, &[UID], 14), [], "not every second");
        assert_eq!(poll(&mut source, &[UID], 15), [found]);
        assert_eq!(poll(&mut source, &[], 30), []);
        fs::remove_dir_all(&pod).unwrap();
        assert_eq!(poll(&mut source, &[UID], 40), [], "gone, and unknown is not 0");
    }
}

#[test]
fn under_version_1_there_is_throttling_and_beside_a_unified_hierarchy_pressure_too() {
    let root = TempDir::new().unwrap();
    let limited = root.path().join(format!("cpu/kubepods/pod{UID}"));
    write(&root.path().join("cpu/cgroup.clone_children"), "0\n");
    write(&limited.join("cpu.stat"), STAT_1);
    write(&limited.join(ID).join("cpu.stat"), STAT_1);
    let mut source = Pressures::new(root.path().into());
    let counts = vec![throttled(None, 512_003_111), throttled(Some(ID), 512_003_111)];
    let found = Pressure { pod: PodUid::new(UID), waited: [None; 3], throttled: counts.clone() };
    assert_eq!(poll(&mut source, &[UID], 10), [found]);

    let unified = root.path().join(format!("unified/kubepods/pod{UID}"));
    write(&root.path().join("unified/cgroup.controllers"), "\n");
    write(&unified.join("cpu.stat"), STAT_2_BARE);
    write(&unified.join("memory.pressure"), PSI);
    let mut source = Pressures::new(root.path().into());
    let waited = [None, None, Some(58_761_459_000)];
    let found = Pressure { pod: PodUid::new(UID), waited, throttled: counts };
    assert_eq!(poll(&mut source, &[UID], 10), [found]);
}

#[test]
fn a_pod_that_is_nowhere_costs_ever_fewer_walks_and_a_new_one_is_looked_for_at_once() {
    let root = TempDir::new().unwrap();
    let mut source = Pressures::new(root.path().into());
    let (mut walks, mut last) = (0, source.walk_at);
    for second in 1..=3600 {
        assert_eq!(poll(&mut source, &[UID], second), []);
        walks += u32::from(source.walk_at != last);
        last = source.walk_at;
    }
    assert!((10..20).contains(&walks), "{walks} walks in an hour");
    let other = "1b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11";
    write(&root.path().join("cgroup.controllers"), "\n");
    write(&root.path().join(format!("kubepods/pod{other}/cpu.stat")), STAT_2);
    assert_eq!(poll(&mut source, &[UID, other], 3601).len(), 1);
}

#[test]
fn a_forest_of_cgroups_ends_a_walk() {
    let root = TempDir::new().unwrap();
    write(&root.path().join("cgroup.controllers"), "\n");
    for number in 0..=DIRECTORIES {
        fs::create_dir(root.path().join(format!("slice-{number}"))).unwrap();
    }
    let deep = root.path().join("z/".repeat(40)).join(format!("kubepods/pod{UID}"));
    fs::create_dir_all(deep).unwrap();
    assert_eq!(poll(&mut Pressures::new(root.path().into()), &[UID], 10), []);
}

/// A cgroup of the running kernel. Dropped, it is removed.
struct Made(Vec<std::path::PathBuf>);

impl Made {
    /// `kubepods/pod…/…` below a new directory of `hierarchy`, if it can be made.
    fn below(hierarchy: &str, name: &str) -> Option<Self> {
        // The root of version 1 holds its controllers' hierarchies and is none itself.
        fs::metadata(Path::new(hierarchy).join("cgroup.procs")).ok()?;
        let mut made = Self(Vec::new());
        let mut path = Path::new(hierarchy).join(format!("{name}-{}", std::process::id()));
        for part in ["", "kubepods", &format!("pod{UID}"), ID] {
            if !part.is_empty() {
                path.push(part);
            }
            fs::create_dir(&path).ok()?;
            made.0.push(path.clone());
        }
        Some(made)
    }

    fn container(&self) -> &Path {
        self.0.last().unwrap()
    }

    fn takes(&self, child: &Child) -> std::io::Result<()> {
        fs::write(self.container().join("cgroup.procs"), child.id().to_string())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            for _ in 0..100 {
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A process that wants a CPU all the time. Dropped, it is killed.
struct Spinner(Child);

impl Spinner {
    fn new() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Polls until `grown` says so of the first and the latest; at most 20 s.
fn grows(grown: impl Fn(&Pressure, &Pressure) -> bool) -> bool {
    let mut source = Pressures::new("/sys/fs/cgroup".into());
    let mut second = 10;
    let first = poll(&mut source, &[UID], second).pop().expect("it is found");
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(250));
        second += 5;
        if poll(&mut source, &[UID], second).pop().is_some_and(|latest| grown(&first, &latest)) {
            return true;
        }
    }
    false
}

#[test]
fn the_running_kernel_counts_what_a_limit_and_other_work_take_from_a_pod() {
    let limit = |made: &Made| {
        let at = |name: &str| made.container().join(name);
        fs::write(at("cpu.max"), "10000 100000")
            .or_else(|_| fs::write(at("cpu.cfs_quota_us"), "10000"))
            .is_ok()
    };
    let limited = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].into_iter().find_map(|hierarchy| {
        let made = Made::below(hierarchy, "warpmeter-throttled")?;
        limit(&made).then_some(made)
    });
    let Some(limited) = limited else {
        println!("skipped: no cgroup with a CPU limit can be made here");
        return;
    };
    let pressed = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|root| Path::new(root).join("cgroup.controllers").exists())
        .and_then(|root| {
            if limited.container().starts_with(root) && root == "/sys/fs/cgroup" {
                return None;
            }
            Made::below(root, "warpmeter-pressed")
        });
    let spinner = Spinner::new();
    limited.takes(&spinner.0).unwrap();
    if let Some(pressed) = &pressed {
        pressed.takes(&spinner.0).unwrap();
    }
    let sum = |pressure: &Pressure| pressure.throttled.iter().map(|one| one.nanos).sum::<u64>();
    assert!(
        grows(|first, latest| sum(latest) > sum(first) + SECOND / 2),
        "throttled nine tenths of its time"
    );
    if grows_pressure_here() {
        let cpu = |pressure: &Pressure| pressure.waited[0];
        assert!(grows(|first, latest| cpu(latest) > cpu(first)), "and so waiting for a CPU");
    } else {
        println!("skipped: this kernel counts no pressure of cgroups");
    }
}

/// Whether pressure of cgroups is counted at all.
fn grows_pressure_here() -> bool {
    ["/sys/fs/cgroup/cpu.pressure", "/sys/fs/cgroup/unified/cpu.pressure"]
        .iter()
        .any(|path| fs::read_to_string(path).is_ok())
}
