//! Devices that several hold.

use warpmeter_simkubelet::{PodResources, container, devices, pod};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::paper::{Device, Paper, uuid};
use warpmeter_tests::random::Random;

use super::{FIRST, SECOND, cgroup, gpu_id, held, holder, id, near, settled, uid, used};

#[test]
fn every_way_to_share_a_device_divides_it_by_parts_and_leaves_the_rest_unallocated() {
    type Ids = fn(usize) -> String;
    let ways: [(&str, Ids, usize, Device); 7] = [
        ("nvidia.com/gpu.shared", |n| format!("{}::{n}", gpu_id(0)), 4, FIRST),
        ("nvidia.com/gpu", |n| format!("{}::{n}", uuid(0)), 4, FIRST),
        ("nvidia.com/gpu", |n| format!("{}-{n}", gpu_id(0)), 10, FIRST),
        ("nvidia.com/gpu", |n| format!("nvidia1/vgpu{n}"), 4, FIRST),
        ("nvidia.com/gpu", |n| format!("nvidia2/gi3/vgpu{n}"), 4, (2, Some(0))),
        ("nvidia.com/mig-3g.40gb.shared", |n| format!("MIG-{}::{n}", uuid(200)), 4, (2, Some(0))),
        ("aliyun.com/gpu-mem", |n| format!("{}-_-{n}", gpu_id(0)), 80, FIRST),
    ];
    for (resource, name, count, device) in ways {
        let mut node = Paper::new();
        node.options.resources = vec!["aliyun.com/".into()];
        let all: Vec<String> = (0..count).map(name).collect();
        node.kubelet.offer(vec![devices(resource, &all)]);
        let with = |pod_name: &str, ids: &[String]| {
            pod("ns", pod_name, vec![container("main", vec![devices(resource, ids)])])
        };
        // Two of one pod, one of another.
        node.kubelet.list(vec![with("p", &all[..2]), with("q", &all[count - 1..])]);
        node.kubelet.log("ns", "p", &uid("p"), &[("main", &id(1))]).unwrap();
        node.kubelet.log("ns", "q", &uid("q"), &[("main", &id(2))]).unwrap();
        node.ask();
        node.process(1, &cgroup("p", &id(1)), &[device.0]);
        node.pass(2, &[(device, 60, &[(1, 60, 1)])]);
        let metrics = settled(&mut node);
        let [gpu, mig] = node.labels(device);
        let on = [("gpu_uuid", &*gpu.1), ("mig", &*mig.1)];
        let whole = metrics.sum("warpmeter_gpu_seconds_total", &on);
        let part = whole / u32::try_from(count).map(f64::from).unwrap();
        near(held(&metrics, &[("pod", "p")]), 2.0 * part);
        near(held(&metrics, &[("pod", "q")]), part);
        near(held(&metrics, &[("pod", "q"), ("state", "active")]), 0.0);
        near(used(&metrics, &[("pod", "p")]), 0.6 * whole);
        let sharing = metrics.all("warpmeter_gpu_info", &on).next().unwrap().label("sharing").to_owned();
        assert!(device.1.is_some() || sharing == "replicas", "{resource}: {sharing}");
    }
}

#[test]
fn t01_three_replicas_are_three_shares_whatever_the_order_of_any_list() {
    let mut random = Random(1);
    let mut first: Option<Exposition> = None;
    for _ in 0..12 {
        let mut node = Paper::new();
        let mut offered: Vec<String> =
            (0..4).flat_map(|n| [0, 1].map(|gpu| format!("{}::{n}", gpu_id(gpu)))).collect();
        random.shuffle(&mut offered);
        node.kubelet.offer(vec![devices("nvidia.com/gpu.shared", &offered)]);
        let mut pods: Vec<PodResources> = (0..3)
            .map(|n| {
                let mut ids = vec![format!("{}::{n}", gpu_id(0)), format!("{}::{n}", gpu_id(1))];
                random.shuffle(&mut ids);
                let mut parts =
                    vec![devices("nvidia.com/gpu.shared", &ids), devices("intel.com/nic", &["x"])];
                random.shuffle(&mut parts);
                let mut containers = vec![container("main", parts), container("sidecar", vec![])];
                random.shuffle(&mut containers);
                pod("ns", &format!("p{n}"), containers)
            })
            .collect();
        random.shuffle(&mut pods);
        node.kubelet.list(pods);
        for n in 0..3 {
            let name = format!("p{n}");
            node.kubelet.log("ns", &name, &uid(&name), &[("main", &id(n))]).unwrap();
        }
        node.ask();
        for n in 0..3_u32 {
            node.process(n + 1, &cgroup(&format!("p{n}"), &id(usize::try_from(n).unwrap())), &[0, 1]);
        }
        let busy = &[(1, 30, 1), (2, 20, 1), (3, 10, 1)];
        node.pass(2, &[(FIRST, 60, busy), (SECOND, 60, busy)]);
        let mut metrics = settled(&mut node);
        for n in 0..3 {
            near(held(&metrics, &[("pod", &format!("p{n}"))]), 2.0 * 2.0 / 4.0);
        }
        // What a source's rounds take is the one thing that differs.
        metrics.series.retain(|series| !series.name.starts_with("warpmeter_source_poll"));
        let first = first.get_or_insert_with(|| metrics.clone());
        assert_eq!(*first, metrics);
    }
}

#[test]
fn a_mapping_that_changes_its_order_between_calls_changes_nothing() {
    let mut node = Paper::new();
    let ids: Vec<String> = (0..4).map(|n| format!("{}::{n}", gpu_id(0))).collect();
    for n in 0..4 {
        let name = format!("p{n}");
        node.kubelet.log("ns", &name, &uid(&name), &[("main", &id(n))]).unwrap();
    }
    let mut pods: Vec<PodResources> = (0..4).map(|n| holder(&format!("p{n}"), &[&ids[n]])).collect();
    let mut random = Random(2);
    for _ in 0..6 {
        random.shuffle(&mut pods);
        node.kubelet.list(pods.clone());
        node.ask();
        node.pass(1, &[]);
    }
    let metrics = settled(&mut node);
    for n in 0..4 {
        near(held(&metrics, &[("pod", &format!("p{n}"))]), 6.0 / 4.0);
    }
}
