//! What the source makes of what a kubelet lists.

use warpmeter_core::fact::DeviceRef;
use warpmeter_core::identity::GpuId;
use warpmeter_simkubelet::TopologyInfo;

use super::*;

fn gpu_id(number: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{number:012}")
}

fn held(pods: &[Pod]) -> Vec<(String, Vec<Grant>)> {
    pods.iter().map(|pod| (pod.name.to_string(), pod.grants.clone())).collect()
}

fn grant(container: &str, gpu: u32, part: GrantPart) -> Grant {
    Grant { container: container.into(), device: DeviceRef::Gpu(GpuId::new(gpu_id(gpu))), part }
}

/// A node of many kinds of pods.
fn busy() -> Kubelet {
    let kubelet = Kubelet::new().unwrap();
    let ids: Vec<String> =
        (0..8).flat_map(|gpu| (0..4).map(move |n| format!("{}::{n}", gpu_id(gpu)))).collect();
    let mut pods = Vec::new();
    for (number, pair) in ids.chunks(2).enumerate() {
        let name = format!("trainer-{number}");
        kubelet.log("research", &name, &format!("{number:08}-uid"), &[("main", ID)]).unwrap();
        pods.push(pod(
            "research",
            &name,
            vec![
                container("sidecar", vec![]),
                container(
                    "main",
                    vec![devices("nvidia.com/gpu.shared", pair), devices("intel.com/nic", &["x"])],
                ),
            ],
        ));
    }
    kubelet.list(pods);
    kubelet.offer(vec![devices("nvidia.com/gpu.shared", &ids)]);
    kubelet
}

#[test]
fn t1_the_order_of_an_answer_changes_nothing() {
    let mut kubelet = busy();
    let (first, ..) = ask(&mut kubelet);
    assert_eq!(first.pods.len(), 16);
    assert!(first.pods.is_sorted() && first.replicas.is_sorted());
    assert!(first.replicas.iter().all(|replicas| replicas.count == 4) && first.replicas.len() == 8);
    let mut answer = kubelet.listed();
    for round in 1..6 {
        answer.rotate_left(round * 3);
        answer.reverse();
        for pod in &mut answer {
            pod.containers.reverse();
            for container in &mut pod.containers {
                container.devices.reverse();
                container.devices.iter_mut().for_each(|devices| devices.device_ids.reverse());
            }
        }
        kubelet.list(answer.clone());
        assert_eq!(ask(&mut kubelet).0, first);
    }
}

#[test]
fn containers_of_a_pod_share_a_device_and_one_holds_several() {
    let mut kubelet = Kubelet::new().unwrap();
    let (one, two) = (gpu_id(1), gpu_id(2));
    kubelet.list(vec![pod(
        "research",
        "p",
        vec![
            container("a", vec![devices("nvidia.com/gpu", &[&one, &two])]),
            container("b", vec![devices("nvidia.com/gpu", &[&one])]),
            container("idle", vec![devices::<&str>("nvidia.com/gpu", &[])]),
        ],
    )]);
    kubelet.log("research", "p", UID, &[("a", ID), ("init", ID)]).unwrap();
    let (pods, ..) = ask(&mut kubelet);
    let whole = GrantPart::Whole;
    assert_eq!(pods.pods[0].grants, [grant("a", 1, whole), grant("a", 2, whole), grant("b", 1, whole)]);
    let containers: Vec<(&str, bool)> =
        pods.pods[0].containers.iter().map(|container| (&*container.name, container.id.is_some())).collect();
    assert_eq!(containers, [("a", true), ("b", false), ("idle", false), ("init", true)]);
    assert_eq!(pods.pods[0].uid.as_str(), UID);
}

#[test]
fn repetitions_count_once_and_topology_not_at_all() {
    let mut kubelet = Kubelet::new().unwrap();
    let one = gpu_id(1);
    let mut near = devices("nvidia.com/gpu", &[&one, &one]);
    near.topology = Some(TopologyInfo::default());
    let main = container("main", vec![near.clone(), devices("nvidia.com/gpu", &[&one]), near]);
    kubelet
        .list(vec![pod("research", "p", vec![main.clone(), main.clone()]), pod("research", "p", vec![main])]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    let (pods, facts, _) = ask(&mut kubelet);
    assert_eq!(held(&pods.pods), [("p".to_owned(), vec![grant("main", 1, GrantPart::Whole)])]);
    assert_eq!(unparsed(&facts), 0);
}

#[test]
fn a_pod_without_devices_is_named_if_its_uid_is_known() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list(vec![holder("seen", &[]), holder("unseen", &[])]);
    kubelet.log("research", "seen", UID, &[("main", ID)]).unwrap();
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!(held(&pods.pods), [("seen".to_owned(), vec![])]);
    assert_eq!(state(&source), HealthState::Up);
}

#[test]
fn a_pod_whose_uid_is_not_known_keeps_its_grant_under_a_name_of_its_own() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list(vec![holder("p", &[&gpu_id(1)])]);
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!(pods.pods[0].uid.as_str(), "unknown:research/p");
    assert_eq!(held(&pods.pods), [("p".to_owned(), vec![grant("main", 1, GrantPart::Whole)])]);
    assert_eq!(state(&source), HealthState::Up, "it may just have started");

    std::fs::remove_dir(kubelet.pod_logs()).unwrap();
    let (again, _, source) = ask(&mut kubelet);
    assert_eq!(again, pods);
    assert_eq!(state(&source), HealthState::Degraded);
    let reason = source.health().reason;
    assert!(reason.contains("read-only") && reason.contains("no UID"), "{reason}");
}

#[test]
fn a_pod_replaced_by_one_of_its_name_gives_its_grants_to_that() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(vec![holder("p", &[&gpu_id(1)])]);
    kubelet.log("research", "p", "z-old", &[]).unwrap();
    let uid = |facts: &[Fact]| last_pods(facts).map(|pods| pods.pods[0].uid.to_string());
    assert_eq!(uid(&look(&mut source)).as_deref(), Some("z-old"));
    kubelet.remove_logs("research", "p", "z-old").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(uid(&look(&mut source)), None, "while it is listed it keeps its UID");
    kubelet.log("research", "p", "a-new", &[]).unwrap();
    let facts = look_until(&mut source, |_, facts| uid(facts).is_some());
    let pods = last_pods(&facts).unwrap().pods;
    assert_eq!((pods.len(), pods[0].uid.as_str()), (1, "a-new"));
}

#[test]
fn a_container_that_starts_between_questions_is_named_without_one() {
    let (kubelet, mut source) = start(Duration::from_secs(60));
    kubelet.list(vec![holder("p", &[&gpu_id(1)])]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    assert!(last_pods(&look(&mut source)).unwrap().pods[0].containers[0].id.is_none());
    let before = kubelet.calls();
    let target = format!("/var/log/pods/research_p_{UID}/main/0.log");
    std::os::unix::fs::symlink(target, kubelet.container_logs().join(format!("p_research_main-{ID}.log")))
        .unwrap();
    let facts = look_until(&mut source, |_, facts| last_pods(facts).is_some());
    assert_eq!(last_pods(&facts).unwrap().pods[0].containers[0].id.as_ref().unwrap().as_str(), ID);
    assert_eq!(kubelet.calls(), before);
}

#[test]
fn replicas_are_counted_from_what_is_offered_and_remembered_while_they_are_held() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    let replicas =
        |gpu: u32, count: u32| (0..count).map(|n| format!("{}::{n}", gpu_id(gpu))).collect::<Vec<_>>();
    let counts = |facts: &[Fact]| {
        let replicas = last_pods(facts)?.replicas;
        Some(replicas.iter().map(|replicas| replicas.count).collect::<Vec<_>>())
    };
    kubelet
        .offer(vec![devices("nvidia.com/gpu", &replicas(1, 4)), devices("nvidia.com/gpu", &replicas(2, 3))]);
    kubelet.list(vec![holder("p", &[&format!("{}::1", gpu_id(1))])]);
    assert_eq!(counts(&look(&mut source)), Some(vec![4, 3]));
    // The plugin finds both unhealthy.
    kubelet.offer(vec![]);
    let facts = look_until(&mut source, |_, facts| counts(facts).is_some());
    assert_eq!(counts(&facts), Some(vec![4]), "the held one has as many as before");
    // It offers fewer.
    kubelet.offer(vec![devices("nvidia.com/gpu", &replicas(1, 2))]);
    let facts = look_until(&mut source, |_, facts| counts(facts).is_some());
    assert_eq!(counts(&facts), Some(vec![2]));
}

#[test]
fn ids_of_no_known_form_are_counted_once() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(vec![holder("p", &["odd", "odd", "strange"])]);
    kubelet.offer(vec![devices("nvidia.com/gpu", &["odd", "unheld"])]);
    assert_eq!(unparsed(&look(&mut source)), 3);
    let facts = look_until(&mut source, |_, facts| polls(facts) >= 2);
    assert_eq!(unparsed(&facts), 0);
    kubelet.list(vec![holder("p", &["odd", "new"])]);
    let facts = look_until(&mut source, |_, facts| polls(facts) >= 1);
    assert_eq!(unparsed(&facts), 1);
}

#[test]
fn an_id_that_is_not_understood_degrades_as_long_as_it_is_listed_and_says_whose_it_is() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    let odd = |resource: &str, ids: &[&str]| {
        vec![
            holder("fine", &[&gpu_id(1)]),
            pod("ml", "p", vec![container("c", vec![devices(resource, ids)])]),
        ]
    };
    for name in [("research", "fine"), ("ml", "p")] {
        kubelet.log(name.0, name.1, &format!("uid-{}", name.1), &[]).unwrap();
    }
    for (ids, shown) in [
        (&["", "new form"][..], "\"new form\" of \"nvidia.com/gpu\", which container \"c\" of pod \"ml/p\""),
        (&["", "GPU-b", "GPU-a\n"], "3 device ids"),
        (&[""], "\"\" of \"nvidia.com/gpu\""),
        (&["x"], "`[kubelet] resources`"),
    ] {
        kubelet.list(odd("nvidia.com/gpu", ids));
        look_until(&mut source, |source, facts| polls(facts) > 0 && source.health().reason.contains(shown));
        assert_eq!(state(&source), HealthState::Degraded);
        assert!(!source.health().reason.contains('\n'));
    }
    look_until(&mut source, |_, facts| polls(facts) > 0);
    assert_eq!(state(&source), HealthState::Degraded, "it stays");
    // Offered and not held it is named too, and another resource's is none of ours.
    kubelet.list(odd("amd.com/gpu", &["x"]));
    kubelet.offer(vec![devices("nvidia.com/gpu", &["unheld"])]);
    look_until(&mut source, |source, _| {
        source.health().reason.contains("\"unheld\" of \"nvidia.com/gpu\", which nobody")
    });
    kubelet.offer(vec![]);
    look_until(&mut source, |source, _| state(source) == HealthState::Up);
}

#[test]
fn a_name_that_none_can_have_degrades() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list(vec![holder("", &[&gpu_id(1)]), holder(&"x".repeat(254), &[])]);
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!((pods.pods.len(), state(&source)), (0, HealthState::Degraded));
    assert!(source.health().reason.contains("2 pods are left out"), "{:?}", source.health());
}

#[test]
fn two_containers_that_cannot_be_told_apart_degrade() {
    let mut kubelet = Kubelet::new().unwrap();
    let main = |name| container(name, vec![devices("nvidia.com/gpu", &[gpu_id(1)])]);
    kubelet.list(vec![pod("research", "p", vec![main("a"), main("b")])]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    std::fs::remove_dir(kubelet.container_logs()).unwrap();
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!(pods.pods[0].grants.len(), 2);
    assert!(source.health().reason.contains("which of a pod's containers"), "{:?}", source.health());
}
