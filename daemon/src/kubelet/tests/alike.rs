//! Several pods of one name in one answer: one ends while its successor starts.

use warpmeter_core::identity::PodUid;

use super::*;

fn gpu(number: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{number:012}")
}

fn held(pods: &Pods) -> Vec<(&str, usize)> {
    pods.pods.iter().map(|pod| (pod.uid.as_str(), pod.grants.len())).collect()
}

fn now(source: &KubeletSource) -> Pods {
    source.sent.as_ref().unwrap().0.clone()
}

/// A source that knows the pod `a-old` with the first GPU, and has not heard of `b-new`, which has logs too.
fn replaced() -> (Kubelet, KubeletSource) {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(vec![holder("p", &[&gpu(1)])]);
    kubelet.log("research", "p", "a-old", &[("main", ID)]).unwrap();
    assert_eq!(held(&last_pods(&look(&mut source)).unwrap()), [("a-old", 1)]);
    kubelet.log("research", "p", "b-new", &[]).unwrap();
    (kubelet, source)
}

#[test]
fn of_two_pods_of_one_name_the_older_keeps_what_it_held_and_the_newest_has_the_rest() {
    let (one, two) = (gpu(1), gpu(2));
    let lists: [(&[&str], usize); 3] = [(&[&two], 1), (&[], 0), (&[&two, "GPU-x"], 1)];
    for (new, count) in lists {
        for turned in [false, true] {
            let (kubelet, mut source) = replaced();
            let mut list = vec![holder("p", &[&one]), holder("p", new)];
            if turned {
                list.reverse();
            }
            kubelet.list(list);
            look_until(&mut source, |_, facts| polls(facts) > 0);
            let pods = now(&source);
            assert_eq!(held(&pods), [("a-old", 1), ("b-new", count)], "{new:?}");
            let device = warpmeter_core::device_id::parse(&one).unwrap().0;
            assert_eq!(pods.pods[0].grants[0].device, device);
            assert!(!source.health().reason.contains("one name"), "{:?}", source.health());
            // Once the old one is gone there is one of the name.
            kubelet.list(vec![holder("p", new)]);
            kubelet.remove_logs("research", "p", "a-old").unwrap();
            look_until(&mut source, |source, _| held(&now(source)) == [("b-new", count)]);
        }
    }
}

#[test]
fn pods_of_one_name_that_nothing_tells_apart_are_the_newests_and_degrade() {
    // Asked for the first time, with logs of one or of both.
    for uids in [&["a-old", "b-new"][..], &["b-new"]] {
        let mut kubelet = Kubelet::new().unwrap();
        kubelet.list(vec![holder("p", &[&gpu(1)]), holder("p", &[&gpu(2)]), holder("q", &[])]);
        for uid in uids {
            kubelet.log("research", "p", uid, &[]).unwrap();
            std::thread::sleep(Duration::from_millis(15));
        }
        let (pods, _, source) = ask(&mut kubelet);
        assert_eq!(held(&pods), [("b-new", 2)]);
        assert_eq!(state(&source), HealthState::Degraded);
        let reason = source.health().reason;
        assert!(reason.contains("two pods of one name") && reason.contains("research/p"), "{reason}");
    }
}

#[test]
fn entries_of_one_name_of_which_one_holds_something_are_told_apart_by_that() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list(vec![holder("p", &[&gpu(1)]), holder("p", &[]), holder("p", &[&gpu(1)])]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!((held(&pods), state(&source)), (vec![(UID, 1)], HealthState::Up));
}

#[test]
fn a_pod_that_appears_gets_nothing_of_its_predecessor_before_the_kubelet_says_so() {
    let (kubelet, mut source) = replaced();
    kubelet.behave(Manner::Refuses(tonic::Code::Internal, "x".into()));
    for _ in 0..40 {
        look(&mut source);
        assert_eq!(held(&now(&source)), [("a-old", 1)]);
        std::thread::sleep(Duration::from_millis(40));
    }
    kubelet.behave(Manner::Answers);
    source.hasten();
    look_until(&mut source, |source, _| now(source).pods[0].uid == PodUid::new("b-new"));
}
