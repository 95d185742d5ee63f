//! What is kept of a pod for those who ask where its figures come from.

use warpmeter_core::explain::{End, Explanation};
use warpmeter_core::fact::{Fact, GrantPart, Process, Source};
use warpmeter_core::identity::{HostPid, ProcessId};
use warpmeter_core::probe::{Calls, Doing, GapKind, Probes, Waits};
use warpmeter_core::state::State;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

use crate::cases::{BEGIN, G, Node};
use crate::node::{gpu, pod, pods, process, settings, whole};
use crate::stalls::{calls, gap};

const MS: u64 = 1_000_000;

fn id(pid: u32) -> ProcessId {
    ProcessId { pid: HostPid(pid), start: MonoNs(2) }
}

/// A process of pod `p` that is called so.
fn called(name: &str, pid: u32) -> Fact {
    let Fact::Process(known) = process(pid, 2, "p") else { panic!("no process") };
    Fact::Process(Process { name: Some(name.into()), ..known })
}

/// Waits of `sleeper` for `waker`, which read from a disk meanwhile.
fn waits(sleeper: u32, waker: u32, ms: u64) -> Waits {
    let mut doings = [0; Doing::COUNT];
    doings[Doing::DiskRead as usize] = ms * MS;
    Waits { sleeper: id(sleeper), waker: id(waker), count: 3, doings }
}

/// What the probes saw in second `end`.
fn probed(node: &mut Node, end: u64, calls: Vec<Calls>, waits: Vec<Waits>) {
    let during = Interval::new(MonoNs(BEGIN + (end - 1) * SECOND), MonoNs(BEGIN + end * SECOND)).unwrap();
    let probes = Probes { calls, followed: true, waits, ..Probes::of_nothing(during) };
    node.put(end * SECOND + MS, Source::Probes, Fact::Probes(Box::new(probes)));
}

/// Pod `p` holds the device, and its training loop waits for a worker, which reads from a disk, for a second.
fn starved() -> Node {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[]));
    node.put(3, Source::Host, called("python", 7)).put(3, Source::Host, called("pt_data_worker", 8));
    node.second(1, Some(40), &[7]);
    probed(
        &mut node,
        1,
        vec![calls(7, &[gap(GapKind::Drained, 10, 600, Doing::DiskRead)])],
        vec![waits(7, 8, 550)],
    );
    node.tick(2);
    node
}

/// Seconds pass in which the device works for a process.
fn go_on(node: &mut Node, seconds: std::ops::RangeInclusive<u64>, pids: &[u32]) {
    for second in seconds {
        node.second(second - 1, Some(100), pids).tick(second);
    }
}

fn explanation(node: &Node) -> &Explanation {
    let [pod] = node.view.pods.as_slice() else { panic!("one pod: {:#?}", node.view.pods) };
    &pod.explanation
}

#[test]
fn a_stall_is_traced_to_the_process_behind_it_by_name() {
    let node = starved();
    let explanation = explanation(&node);
    let chain = explanation.chain(&explanation.recent()[0]).unwrap();
    assert_eq!((chain.state, chain.driver), (State::StalledDiskRead, id(7)));
    assert_eq!((chain.links.len(), chain.last(), chain.end), (1, id(8), End::Itself));
    let named = |process| explanation.who[&process].1.name.as_deref();
    assert_eq!([id(7), id(8)].map(named), [Some("python"), Some("pt_data_worker")]);
}

#[test]
fn a_process_that_took_another_name_is_called_by_the_new_one() {
    let mut node = starved();
    node.put(3 * SECOND, Source::Host, called("reader", 8)).second(2, Some(40), &[7]);
    node.second(4, Some(40), &[7]);
    probed(&mut node, 4, Vec::new(), vec![waits(7, 8, 100)]);
    node.tick(6);
    assert_eq!(explanation(&node).who[&id(8)].1.name.as_deref(), Some("reader"));
}

#[test]
fn who_is_in_no_roster_is_not_taken_for_one_of_the_pods() {
    let mut node = starved();
    node.second(2, Some(40), &[7]);
    probed(&mut node, 2, vec![calls(7, &[])], vec![waits(7, 9, 900)]);
    node.tick(4);
    let explanation = explanation(&node);
    let chain = explanation.chain(&explanation.recent()[0]).unwrap();
    assert_eq!((chain.last(), chain.end), (id(9), End::Stranger));
}

#[test]
fn waits_of_a_pod_that_waits_no_more_are_told_for_half_a_minute_and_no_longer() {
    let mut node = starved();
    go_on(&mut node, 3..=30, &[7]);
    assert_eq!(explanation(&node).all_waits().len(), 1);
    assert!(explanation(&node).who.contains_key(&id(8)));
    go_on(&mut node, 31..=31, &[7]);
    let explanation = explanation(&node);
    assert_eq!((explanation.all_waits(), explanation.waits.len()), (Vec::new(), 0));
    assert!(!explanation.who.contains_key(&id(8)), "{:?}", explanation.who);
    assert!(!explanation.windows.is_empty(), "it still holds the device");
}

#[test]
fn windows_of_a_device_that_was_given_back_are_told_for_half_a_minute_and_no_longer() {
    let mut node = starved();
    node.put(2 * SECOND + MS, Source::Pods, pods(&[pod("p", &[])], &[]));
    go_on(&mut node, 4..=31, &[]);
    assert_eq!(explanation(&node).recent().len(), 1, "the end of it was less than half a minute ago");
    go_on(&mut node, 32..=33, &[]);
    assert_eq!(explanation(&node).windows.len(), 0);
}
