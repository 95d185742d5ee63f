//! Claims of pods that have ended and are still listed.

use warpmeter_core::fact::{DeviceRef, GrantPart, Source};
use warpmeter_core::identity::{MigId, Owner, PodUid};
use warpmeter_core::inventory::Gpu;
use warpmeter_core::settings::Settings;
use warpmeter_core::state::{DeviceState, State};

use crate::cases::{G, Node};
use crate::node::{gpu, mig, part, pod, pods, process, settings, whole};

/// A pod that has ended is still listed with the first device; one that lives has the second.
fn ended_and_living(settings: Settings, gpu: &Gpu, ended: DeviceRef, living: (DeviceRef, GrantPart)) -> Node {
    let mut node = Node::new(settings, std::slice::from_ref(gpu));
    let pods_ = [pod("done", &[(ended, GrantPart::Whole)]), pod("live", &[living])];
    node.put(2, Source::Host, process(7, 2, "live")).put(3, Source::Pods, pods(&pods_, &[(whole(G), 4)]));
    node
}

#[test]
fn who_has_ended_holds_no_part_of_what_was_granted_on_in_other_parts() {
    let replica = (whole(G), GrantPart::Replica(0));
    let mut node = ended_and_living(settings(), &gpu(G), whole(G), replica);
    node.second(1, Some(100), &[7]).tick(5);
    assert_eq!((node.ms("live", State::Active), node.account("live").borrowed), (250, 750_000_000));
    assert_eq!(node.device_ms(DeviceState::Unallocated), 750);
    assert!(!node.view.accounts.iter().any(|account| account.owner == owner_of("done")), "it held nothing");
}

#[test]
fn who_was_granted_a_gpu_before_it_was_divided_holds_none_of_its_instances() {
    let instance = (DeviceRef::Mig(MigId::new("MIG-GPU-a-0")), GrantPart::Whole);
    let mut node = ended_and_living(settings(), &mig(G, &[3, 4], 0), whole(G), instance);
    let parts = [0, 1].map(|index| {
        part(Some(MigId::new(format!("MIG-GPU-a-{index}"))), Some(0), if index == 0 { &[7] } else { &[] })
    });
    node.parts(1, parts.into()).tick(5);
    assert!(!node.view.accounts.iter().any(|account| account.owner == owner_of("done")), "it held nothing");
    assert_eq!(node.device_ms(DeviceState::Unallocated), 571);
}

fn owner_of(pod: &str) -> Owner {
    Owner::Pod { uid: PodUid::new(pod), container: "main".into() }
}
