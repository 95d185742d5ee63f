//! Kubelets that start anew and do not know their pods, or what those hold, yet.

use warpmeter_simkubelet::PodResources;

use super::*;

const SHARED: &str = "nvidia.com/gpu.shared";

fn gpu(number: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{number:012}")
}

/// Pods of all shapes: one container with two devices, two containers with one each, one with a part.
fn all() -> Vec<PodResources> {
    let own = |gpu: String| vec![devices("nvidia.com/gpu", &[gpu])];
    vec![
        holder("two", &[&gpu(1), &gpu(2)]),
        pod("research", "pair", vec![container("a", own(gpu(3))), container("b", own(gpu(4)))]),
        pod("research", "part", vec![container("main", vec![devices(SHARED, &[format!("{}::1", gpu(5))])])]),
        holder("none", &[]),
    ]
}

/// A source that knows all pods of a kubelet that then restarts, and says this first.
fn restarted(list: Vec<PodResources>, before: impl Fn(&Kubelet)) -> (Kubelet, KubeletSource, Pods) {
    let (mut kubelet, mut source) = start(Duration::from_millis(1));
    for name in ["two", "pair", "part", "none"] {
        kubelet.log("research", name, &format!("uid-{name}"), &[("main", ID)]).unwrap();
    }
    kubelet.list(all());
    let known = last_pods(&look(&mut source)).unwrap();
    assert_eq!(state(&source), HealthState::Up);
    kubelet.stop().unwrap();
    look(&mut source);
    before(&kubelet);
    kubelet.list(list);
    kubelet.start().unwrap();
    look_until(&mut source, |_, facts| polls(facts) > 0);
    (kubelet, source, known)
}

fn now(source: &KubeletSource) -> Pods {
    source.sent.as_ref().unwrap().0.clone()
}

fn of<'p>(pods: &'p Pods, uid: &str) -> Option<&'p Pod> {
    pods.pods.iter().find(|pod| pod.uid.as_str() == uid)
}

#[test]
fn a_kubelet_that_restarts_takes_no_grant_whatever_it_does_not_list_yet() {
    let without = |change: &dyn Fn(&mut PodResources)| {
        let mut list = all();
        list.iter_mut().for_each(change);
        list
    };
    let lists: [Vec<PodResources>; 7] = [
        vec![],
        all().into_iter().filter(|pod| pod.name != "two").collect(),
        without(&|pod| pod.containers.clear()),
        without(&|pod| pod.containers.iter_mut().for_each(|container| container.devices.clear())),
        without(&|pod| {
            pod.containers.iter_mut().for_each(|container| container.devices[0].device_ids.clear());
        }),
        without(&|pod| {
            pod.containers.truncate(1);
            pod.containers[0].devices[0].device_ids.truncate(1);
        }),
        without(&|pod| pod.containers.reverse()).into_iter().take(1).collect(),
    ];
    std::thread::scope(|scope| {
        for list in lists {
            scope.spawn(move || {
                let shown = format!("{list:?}");
                let (kubelet, mut source, known) = restarted(list, |_| {});
                assert_eq!(now(&source), known, "{shown}");
                assert_eq!(state(&source), HealthState::Degraded);
                let reason = source.health().reason;
                assert!(reason.contains("held over") && reason.contains("research/"), "{reason}");
                // What it lists again is no longer held over.
                kubelet.list(all());
                look_until(&mut source, |source, _| state(source) == HealthState::Up);
                assert_eq!(now(&source), known, "{shown}");
            });
        }
    });
}

#[test]
fn a_pod_whose_logs_are_gone_is_not_held_over() {
    let gone = |kubelet: &Kubelet| {
        kubelet.remove_logs("research", "two", "uid-two").unwrap();
        kubelet.remove_logs("research", "pair", "uid-pair").unwrap();
    };
    let (kubelet, mut source, _) = restarted(vec![], gone);
    let pods = now(&source);
    assert!(of(&pods, "uid-two").is_none() && of(&pods, "uid-pair").is_none(), "{pods:?}");
    assert_eq!(of(&pods, "uid-part").unwrap().grants.len(), 1);
    // Nor one that ends while others are held over.
    kubelet.remove_logs("research", "part", "uid-part").unwrap();
    look_until(&mut source, |source, _| of(&now(source), "uid-part").is_none());
}

#[test]
fn another_pod_of_its_name_gets_nothing_that_is_held_over() {
    let main = || vec![holder("two", &[])];
    let replaced = |kubelet: &Kubelet| {
        kubelet.remove_logs("research", "two", "uid-two").unwrap();
        kubelet.log("research", "two", "uid-new", &[]).unwrap();
    };
    let (_kubelet, source, _) = restarted(main(), replaced);
    let pods = now(&source);
    assert_eq!(of(&pods, "uid-new").unwrap().grants, []);
    assert!(of(&pods, "uid-two").is_none());

    let (_kubelet, source, known) =
        restarted(main(), |kubelet| kubelet.log("research", "two", "uid-new", &[]).unwrap());
    let pods = now(&source);
    assert_eq!(of(&pods, "uid-new").unwrap().grants, []);
    let old = of(&pods, "uid-two").unwrap();
    assert_eq!(old.grants, of(&known, "uid-two").unwrap().grants, "it ends, but is there");
}

#[test]
fn what_another_pod_holds_by_now_has_been_given_back() {
    let (_kubelet, source, _) = restarted(vec![holder("new", &[&gpu(1)])], |kubelet| {
        kubelet.log("research", "new", "uid-new", &[]).unwrap();
    });
    let pods = now(&source);
    let devices = |uid| of(&pods, uid).unwrap().grants.len();
    assert_eq!((devices("uid-new"), devices("uid-two"), devices("uid-pair")), (1, 1, 2));
}

#[test]
fn a_kubelet_that_does_not_restart_is_believed_at_once() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(all());
    kubelet.log("research", "two", "uid-two", &[]).unwrap();
    look(&mut source);
    kubelet.list(vec![holder("two", &[&gpu(1)])]);
    look_until(&mut source, |_, facts| last_pods(facts).is_some());
    let pods = now(&source);
    assert_eq!((pods.pods.len(), pods.pods[0].grants.len()), (1, 1));
    assert_eq!(state(&source), HealthState::Up);
}
