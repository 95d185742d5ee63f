//! Who has a device open for work.

use std::collections::BTreeMap;

use warpmeter_core::fact::{Discard, Holder};
use warpmeter_core::identity::HostPid;
use warpmeter_core::time::MonoNs;

use crate::nvml::sys::{Device, List, Listed};
use crate::sieve::Sieve;
use crate::support::{Answer, Ask, Support};

/// More memory than any device has, in bytes.
pub(crate) const MEMORY_LIMIT: u64 = 16 << 40;

/// The processes of a device, each once, in order of pid; none if the driver did not say.
///
/// Clients of MPS are in a list of their own on some drivers and in the compute list on others; merged by pid they
/// are holders like any other, which is what they are.
pub(crate) fn holders(
    device: &Device,
    support: &mut Support,
    now: MonoNs,
    sieve: &mut Sieve,
) -> Answer<Vec<Holder>> {
    let compute = match support.ask(Ask::ComputeProcesses, now, || device.processes(List::Compute)) {
        Answer::Said(compute) => compute,
        Answer::Unsupported => return Answer::Unsupported,
        Answer::Failed(fault) => return Answer::Failed(fault),
    };
    let graphics = support.ask(Ask::GraphicsProcesses, now, || device.processes(List::Graphics));
    let mps = support.ask(Ask::MpsProcesses, now, || device.processes(List::Mps));
    let lists = [Some(compute), graphics.said(), mps.said()];
    Answer::Said(merge(lists.into_iter().flatten().flatten(), sieve))
}

/// Each pid once, with the most memory that a list gave it.
fn merge(listed: impl Iterator<Item = Listed>, sieve: &mut Sieve) -> Vec<Holder> {
    let mut holders: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for Listed { pid, memory } in listed {
        // Entries that the driver left empty; and no process of user space has pid 0.
        if pid == 0 || pid == u32::MAX {
            sieve.discard(Discard::Garbage);
            continue;
        }
        // All ones is the documented answer in a container or under WDDM, not a slip worth counting.
        let memory =
            (memory != u64::MAX).then_some(memory).and_then(|memory| sieve.long(memory, 0..=MEMORY_LIMIT));
        let known = holders.entry(pid).or_default();
        *known = (*known).max(memory);
    }
    holders.into_iter().map(|(pid, memory)| Holder { pid: HostPid(pid), memory }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_several_lists_is_one_holder() {
        let listed =
            [(7, 100), (3, u64::MAX), (7, 250), (3, u64::MAX), (9, 9_223_372_036_854_775_794), (0, 5)];
        let mut sieve = Sieve::default();
        let holders = merge(listed.into_iter().map(|(pid, memory)| Listed { pid, memory }), &mut sieve);
        let expected =
            [(3, None), (7, Some(250)), (9, None)].map(|(pid, memory)| Holder { pid: HostPid(pid), memory });
        assert_eq!(holders, expected);
        assert_eq!(sieve.drain().len(), 2, "a mark and an empty entry; not available is neither");
    }
}
