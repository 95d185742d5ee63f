//! Cases that other exporters got wrong, each named after its row in `docs/identity.md`.

use std::collections::{BTreeMap, BTreeSet};

use warpmeter_core::fact::{Fact, Source};
use warpmeter_core::identity::{HostPid, ProcessId};
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_simkubelet::{ClaimResource, ContainerResources, DynamicResource, container, devices, pod};
use warpmeter_tests::exposition::{Exposition, Series};
use warpmeter_tests::ledger::assert_closed;
use warpmeter_tests::paper::{Paper, Work, gpu, uuid};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// What they do.
const WORK: &[Work<'_>] = &[((0, None), 72, &[(1, 36, 1), (2, 24, 1), (3, 12, 1)])];

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6, "{found} and not {expected}");
}

/// Three pods that hold replicas of the first GPU and use it.
fn shared() -> Paper {
    let mut node = Paper::new();
    let ids: Vec<String> = (0..3).map(|n| format!("GPU-{}::{n}", uuid(0))).collect();
    let resource = "nvidia.com/gpu.shared";
    node.kubelet.offer(vec![devices(resource, &ids)]);
    let pods = ids
        .iter()
        .enumerate()
        .map(|(n, id)| pod("ns", &format!("p{n}"), vec![container("main", vec![devices(resource, &[id])])]));
    node.kubelet.list(pods.collect());
    for n in 0..3_u32 {
        let uid = format!("uid-{n}");
        node.kubelet.log("ns", &format!("p{n}"), &uid, &[("main", ID)]).unwrap();
        node.process(n + 1, &format!("0::/kubepods/pod{uid}/{ID}"), &[0]);
    }
    node.ask();
    node.pass(3, WORK);
    node
}

fn closed(mut node: Paper) -> Exposition {
    let metrics = node.metrics();
    assert_closed(&metrics);
    metrics
}

#[test]
fn t02_the_pods_of_a_shared_gpu_share_its_activity_and_its_energy_and_repeat_neither() {
    let metrics = closed(shared());
    let on = [("gpu_uuid", &*format!("GPU-{}", uuid(0)))];
    for (family, factor) in [("sm_active_seconds", 0.5), ("sm_occupied_seconds", 0.25)] {
        let all = metrics.sum(&format!("warpmeter_gpu_{family}_total"), &on);
        near(all, 3.0 * 0.72 * factor);
        near(metrics.sum(&format!("warpmeter_pod_{family}_total"), &on), all);
        let own = |pod| metrics.sum(&format!("warpmeter_pod_{family}_total"), &[on[0], ("pod", pod)]);
        near(own("p0"), all / 2.0);
        near(own("p2"), all / 6.0);
    }
    let energy = metrics.sum("warpmeter_gpu_energy_joules_total", &on);
    assert!(energy > 0.1, "{energy}");
    near(metrics.sum("warpmeter_pod_energy_joules_total", &on), energy);
}

#[test]
fn t10_gpus_that_nobody_holds_stay_beside_those_that_are_shared_or_claimed() {
    let gpus = (0..8).map(|n| gpu(n, u32::try_from(n).unwrap())).collect();
    let mut node = Paper::with(gpus, Settings::default());
    let shared: Vec<String> = (0..4).map(|n| format!("GPU-{}::{n}", uuid(0))).collect();
    node.kubelet.offer(vec![devices("nvidia.com/gpu", &shared)]);
    let claim = ClaimResource {
        driver_name: "gpu.nvidia.com".into(),
        device_name: "gpu-5".into(),
        ..ClaimResource::default()
    };
    let claimed = ContainerResources {
        dynamic_resources: vec![DynamicResource {
            claim_resources: vec![claim],
            ..DynamicResource::default()
        }],
        ..container("main", vec![])
    };
    node.kubelet.list(vec![
        pod("ns", "a", vec![container("main", vec![devices("nvidia.com/gpu", &shared[..2])])]),
        pod("ns", "b", vec![container("main", vec![devices("nvidia.com/gpu", &[format!("nvidia{}", 3)])])]),
        pod("ns", "c", vec![claimed]),
    ]);
    node.ask();
    node.pass(2, &[]);
    let metrics = closed(node);
    for family in ["warpmeter_gpu_up", "warpmeter_gpu_info", "warpmeter_gpu_engine_active_seconds_total"] {
        assert_eq!(metrics.all(family, &[]).count(), 8, "{family}");
    }
    for n in 0..8 {
        let labels = [("gpu_uuid", &*format!("GPU-{}", uuid(n))), ("state", "unallocated")];
        let free = match n {
            0 => 1.0,
            3 | 5 => 0.0,
            _ => 2.0,
        };
        near(metrics.sum("warpmeter_gpu_seconds_total", &labels), free);
    }
}

#[test]
fn t13_no_family_has_a_device_beside_its_pods_and_no_device_series_a_pod() {
    let metrics = closed(shared());
    let mut kinds: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for Series { name, labels, .. } in &metrics.series {
        kinds.entry(name).or_default().insert(labels.contains_key("pod"));
        assert!(!name.starts_with("warpmeter_gpu_") || !labels.contains_key("pod"), "{name}");
    }
    let mixed: Vec<_> = kinds.iter().filter(|(_, with_pod)| with_pod.len() > 1).collect();
    assert!(mixed.is_empty(), "{mixed:?}");
}

#[test]
fn t14_work_of_processes_that_cannot_be_seen_is_no_pods_of_several_and_leaves_none_idle() {
    let mut node = Paper::new();
    let ids = [0, 1].map(|n| format!("GPU-{}::{n}", uuid(0)));
    let pods = ids
        .iter()
        .zip(["p", "q"])
        .map(|(id, name)| pod("ns", name, vec![container("main", vec![devices("nvidia.com/gpu", &[id])])]));
    node.kubelet.list(pods.collect());
    node.ask();
    // The driver names a process that is not in this PID namespace.
    node.pass(3, &[((0, None), 50, &[(4711, 50, 1)])]);
    let metrics = closed(node);
    near(metrics.sum("warpmeter_gpu_unattributed_seconds_total", &[]), 1.5);
    near(metrics.sum("warpmeter_pod_gpu_seconds_total", &[("state", "unknown")]), 3.0);
    near(metrics.sum("warpmeter_pod_gpu_seconds_total", &[]), 3.0);
}

#[test]
fn t30_names_of_any_characters_come_out_as_they_went_in() {
    let names =
        ["quo\"te", "back\\slash", "line\nfeed", "cr\r\ttab", "ünï ✓", "{a=\"b\"}", "a,b", "\u{1}", "#", " "];
    let mut node = Paper::new();
    node.gpus[0].model = "NVIDIA \"H100\"\\\n".into();
    node.changed();
    let pods = names.iter().enumerate().map(|(n, name)| {
        let ids = [format!("GPU-{}::{n}", uuid(0))];
        pod(name, name, vec![container(name, vec![devices("nvidia.com/gpu", &ids)])])
    });
    node.kubelet.list(pods.collect());
    node.ask();
    node.pass(1, &[]);
    let metrics = closed(node);
    for name in names {
        let labels = [("namespace", name), ("pod", name), ("container", name)];
        assert!(metrics.sum("warpmeter_pod_gpu_seconds_total", &labels) > 0.0, "{name:?}");
    }
    assert!(metrics.all("warpmeter_gpu_info", &[("model", "NVIDIA \"H100\"\\\n")]).next().is_some());
}

#[test]
fn t36_a_figure_tells_when_it_was_measured_however_late_it_is_read() {
    let mut node = shared();
    // The last reading ends 13 seconds after the clock's zero, and is read up to four seconds later.
    let metrics = node.metrics_at(|at| 1_700_000_000 * SECOND + at);
    near(metrics.get("warpmeter_gpu_last_reading_timestamp_seconds", &[]).unwrap(), 1_700_000_013.0);
}

#[test]
fn t50_a_driver_that_is_upgraded_changes_the_labels_of_its_own_series_and_of_no_other() {
    let series = |metrics: &Exposition| -> BTreeSet<(String, BTreeMap<String, String>)> {
        let stable = metrics.series.iter().filter(|series| series.name != "warpmeter_driver_info");
        stable.map(|series| (series.name.clone(), series.labels.clone())).collect()
    };
    let ran = |upgrade: bool| {
        let mut node = shared();
        if upgrade {
            "580.1.2".clone_into(&mut node.driver);
            node.changed();
        }
        node.pass(2, WORK);
        closed(node)
    };
    let after = ran(true);
    assert!(after.all("warpmeter_driver_info", &[("driver", "580.1.2")]).next().is_some());
    assert_eq!(series(&after), series(&ran(false)));
}

#[test]
fn a_wall_clock_that_is_set_moves_dates_and_no_account() {
    let accounts = |wall: &dyn Fn(u64) -> u64| {
        let mut node = shared();
        node.put(Source::Host, Fact::Gone(ProcessId { pid: HostPid(3), start: MonoNs(2) }));
        node.pass(6, &[((0, None), 60, &[(1, 36, 1), (2, 24, 1)])]);
        let mut metrics = node.metrics_at(wall);
        assert_closed(&metrics);
        metrics.series.retain(|series| {
            !series.name.contains("timestamp") && !series.name.starts_with("warpmeter_source_poll")
        });
        metrics
    };
    let steady = accounts(&|at| 1_800_000_000 * SECOND + at);
    // Years back, to 1970, and to and fro.
    let walls: [&dyn Fn(u64) -> u64; 3] = [&|at| SECOND + at, &|_| 0, &|at| {
        1_800_000_000 * SECOND + if (at / SECOND).is_multiple_of(2) { 0 } else { 3600 * SECOND }
    }];
    for wall in walls {
        assert_eq!(accounts(wall), steady);
    }
}
