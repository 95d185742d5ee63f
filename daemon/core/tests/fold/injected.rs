//! What injected libraries say: whose it is, and that nothing else changes for it.

use warpmeter_core::fact::{Discard, Fact, GrantPart, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{DeviceId, GpuId, HostPid, MigId, ProcessId};
use warpmeter_core::injected::{Injected, Shape, Sums};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_core::view::AccountView;

use crate::cases::{G, Node};
use crate::node::{gpu, inventory, part, pod, pods, process, reading, sample, settings, tick, whole};

/// The sums of a process that started at 2, on a device: the library's seconds, and milliseconds with kernels.
fn told(pid: u32, device: &str, seconds: u64, busy_ms: u64) -> Fact {
    let busy = busy_ms * 1_000_000;
    let (elapsed, sampled) = (seconds * SECOND, seconds * SECOND);
    Fact::Injected(Box::new(Injected {
        process: ProcessId { pid: HostPid(pid), start: MonoNs(2) },
        device: DeviceId { gpu: GpuId::new(device), mig: None },
        capability: (9, 0),
        sums: Sums { elapsed, sampled, busy, ran: busy, kernel: busy, kernels: 10, ..Sums::default() },
        shapes: vec![Shape { block: 256, registers: 64, shared: 0, nanos: busy }],
    }))
}

/// One pod with a whole GPU, whose process is 7.
fn node() -> Node {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[]));
    node.put(3, Source::Host, process(7, 2, "p"));
    node
}

/// Runs a node for six seconds with these facts of the library, each at the end of a second.
fn run(facts: &[(u64, Fact)]) -> Node {
    let mut node = node();
    for second in 1..=6 {
        node.second(second, Some(50), &[7]);
        for (_, fact) in facts.iter().filter(|(at, _)| *at == second) {
            node.put(second * SECOND, Source::Inject, fact.clone());
        }
    }
    node.tick(8);
    node
}

fn discarded(node: &Node, reason: Discard) -> u64 {
    let source = node.view.sources.iter().find(|source| source.source == Source::Inject).unwrap();
    source.discarded[reason as usize]
}

#[test]
fn what_a_library_sums_is_its_processs_owners_and_no_part_of_the_ledgers() {
    let with = run(&[(1, told(7, G, 1, 400)), (2, told(7, G, 2, 900)), (3, told(7, G, 3, 900))]);
    let without = run(&[]);
    let found = with.account("p").injected.unwrap();
    assert_eq!((found.sums.elapsed, found.sums.busy), (3 * SECOND, 900_000_000));
    // 64 registers of 256 threads: half of the warps.
    assert_eq!((found.shaped, found.theoretical), (900_000_000, 450_000_000));
    let rest = AccountView { injected: None, ..with.account("p").clone() };
    assert_eq!(rest, *without.account("p"));
    assert_eq!(with.view.gpus, without.view.gpus);
}

#[test]
fn of_a_library_that_was_there_before_only_what_it_adds_counts() {
    // The daemon starts ten seconds after the process.
    let mut fold = Fold::new(settings());
    let begin = 10 * SECOND;
    fold.apply(sample(begin, Source::Nvidia, inventory(&[gpu(G)])));
    fold.apply(sample(begin, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[])));
    fold.apply(sample(begin, Source::Host, process(7, 2, "p")));
    for (second, busy) in [(11, 4_000), (12, 4_500)] {
        let (start, end) = ((second - 1) * SECOND, second * SECOND);
        fold.apply(sample(end, Source::Nvidia, reading(G, start, end, vec![part(None, Some(50), &[7])])));
        fold.apply(sample(end, Source::Inject, told(7, G, second - 2, busy)));
    }
    let view = fold.apply(tick(15 * SECOND)).unwrap();
    let found = view.accounts[0].injected.unwrap();
    assert_eq!((found.sums.elapsed, found.sums.busy, found.shaped), (SECOND, 500_000_000, 500_000_000));
}

#[test]
fn a_library_that_begins_anew_in_its_process_adds_all_that_it_has() {
    let node = run(&[(1, told(7, G, 1, 400)), (2, told(7, G, 2, 900)), (4, told(7, G, 1, 300))]);
    let found = node.account("p").injected.unwrap();
    assert_eq!((found.sums.elapsed, found.sums.busy), (3 * SECOND, 1_200_000_000));
}

#[test]
fn what_cannot_be_is_left_out_and_counted() {
    let mut divided = told(7, G, 2, 900);
    if let Fact::Injected(told) = &mut divided {
        told.device.mig = Some(MigId::new("MIG-1"));
    }
    let node = run(&[
        (1, told(7, G, 1, 400)),
        // More than there was; a process that nobody knows; devices that are not there.
        (2, told(7, G, 2, 5_000)),
        (2, told(9, G, 2, 900)),
        (3, told(7, "GPU-elsewhere", 2, 900)),
        (3, divided),
    ]);
    assert_eq!(node.account("p").injected.unwrap().sums.busy, 400_000_000);
    let counts = [Discard::Range, Discard::Late, Discard::DeviceId].map(|reason| discarded(&node, reason));
    assert_eq!(counts, [1, 1, 2]);
}

#[test]
fn a_device_that_a_process_only_names_has_no_account_of_its_owner() {
    let mut node = Node::new(settings(), &[gpu(G), gpu("GPU-other")]);
    node.put(2, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[]));
    node.put(3, Source::Host, process(7, 2, "p"));
    for second in 1..=4 {
        node.second(second, Some(50), &[7]);
        node.put(second * SECOND, Source::Inject, told(7, "GPU-other", second, 100 * second));
    }
    node.tick(6);
    let named: Vec<_> = node.view.accounts.iter().map(|account| account.device.gpu.as_str()).collect();
    assert_eq!(named, [G]);
    assert_eq!(node.account("p").injected, None);
}
