//! Pods that end, come again, or are over before anybody hears of them.

use std::time::Duration;

use warpmeter::kubelet::KubeletSource;
use warpmeter_core::fact::{Fact, PodInfo, PodNames, Source};
use warpmeter_core::identity::{HostPid, PodUid, ProcessId};
use warpmeter_core::time::MonoNs;
use warpmeter_tests::paper::Paper;

use super::{FIRST, cgroup, gpu_id, held, holder, id, near, one_pod, settled, uid, used};

#[test]
fn a_pod_that_has_ended_and_is_still_listed_gives_way_to_the_one_that_lives() {
    // Ended ones come first or last, and there can be several.
    for (ended, living) in [("a", "z"), ("z", "a")] {
        let mut node = Paper::new();
        let names = [ended, "m", living];
        node.kubelet.list(names.map(|name| holder(name, &[&gpu_id(0)])).to_vec());
        for name in names {
            node.kubelet.log("ns", name, &uid(name), &[]).unwrap();
        }
        node.process(7, &cgroup(living, &id(1)), &[0]);
        node.ask();
        node.pass(3, &[(FIRST, 50, &[(7, 50, 1)])]);
        let metrics = settled(&mut node);
        near(used(&metrics, &[("pod", living)]), 1.5);
        near(held(&metrics, &[("pod", living)]), 3.0);
        near(held(&metrics, &[]), 3.0);
    }
}

#[test]
fn a_pod_that_the_api_server_calls_ended_holds_nothing_though_it_is_listed() {
    let mut node = one_pod();
    let names = PodNames {
        uid: PodUid::new(uid("p")),
        namespace: "ns".into(),
        name: "p".into(),
        containers: vec![],
        ended: true,
        info: PodInfo::default(),
        allotments: vec![],
    };
    node.put(Source::Names, Fact::Names(vec![names]));
    node.pass(2, &[]);
    near(held(&settled(&mut node), &[]), 0.0);
}

#[test]
fn a_pod_replaced_by_another_of_its_name_is_another_account() {
    let mut node = one_pod();
    let mut source = KubeletSource::new(node.options.clone());
    node.ask_by(&mut source);
    node.process(1, &cgroup("p", &id(1)), &[0]);
    node.pass(2, &[(FIRST, 50, &[(1, 50, 1)])]);
    node.put(Source::Host, Fact::Gone(ProcessId { pid: HostPid(1), start: MonoNs(2) }));
    node.kubelet.remove_logs("ns", "p", &uid("p")).unwrap();
    node.kubelet.log("ns", "p", "another-uid", &[("other", &id(2))]).unwrap();
    // The source leaves a second between two questions.
    std::thread::sleep(Duration::from_millis(1100));
    node.ask_by(&mut source);
    node.process(2, &format!("0::/kubepods/podanother-uid/{}", id(2)), &[0]);
    node.pass(3, &[(FIRST, 50, &[(2, 50, 1)])]);
    let metrics = settled(&mut node);
    near(held(&metrics, &[("pod", "p"), ("pod_uid", &uid("p"))]), 2.0);
    near(used(&metrics, &[("pod", "p"), ("pod_uid", &uid("p"))]), 1.0);
    near(held(&metrics, &[("pod", "p"), ("pod_uid", "another-uid")]), 3.0);
    near(used(&metrics, &[("pod", "p"), ("pod_uid", "another-uid")]), 1.5);
    near(held(&metrics, &[]), 5.0);
}

#[test]
fn a_pod_that_lives_shorter_than_a_refresh_is_known_by_its_cgroup_and_kept_until_it_is_named() {
    let mut node = Paper::new();
    node.ask();
    node.process(1, &cgroup("short", &id(1)), &[0]);
    node.pass(2, &[(FIRST, 50, &[(1, 50, 1)])]);
    node.put(Source::Host, Fact::Gone(ProcessId { pid: HostPid(1), start: MonoNs(2) }));
    node.pass(3, &[]);
    // The kubelet is asked only now, and lists it although it has ended.
    node.kubelet.list(vec![holder("short", &[&gpu_id(0)])]);
    node.kubelet.log("ns", "short", &uid("short"), &[("main", &id(1))]).unwrap();
    node.ask();
    node.pass(1, &[]);
    let metrics = settled(&mut node);
    let own = [("pod_uid", &*uid("short"))];
    near(used(&metrics, &own), 1.0);
    assert!(
        metrics
            .all("warpmeter_pod_gpu_used_seconds_total", &own)
            .all(|series| series.label("pod") == "short")
    );
}
