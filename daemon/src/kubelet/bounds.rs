//! How much is kept of an answer, so that memory has a bound whatever a kubelet lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpmeter_core::fact::{DeviceRef, Grant};

use super::mapping::{Holding, PodName};

/// Pods that hold GPUs, and as many that hold none: a node runs 110 by default, and some hundred on the largest.
pub(super) const PODS: usize = 1024;
/// Containers of either.
pub(super) const CONTAINERS: usize = 4096;
/// Devices of containers, each of which has accounts and some twenty series: those of eight GPUs with seven instances
/// each, and 64 containers on every one of them, are 3,584.
pub(super) const PLACES: usize = 4096;
/// Grants: a plugin that hands out memory in MiB grants tens of thousands on one GPU.
pub(super) const GRANTS: usize = 1 << 16;
/// Parts of devices that are offered.
pub(super) const PARTS: usize = 1 << 17;
/// Things that were not understood, and are remembered to tell what is new.
pub(super) const ODD: usize = 4096;

/// How much a pod is, or several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    pods: usize,
    containers: usize,
    places: usize,
    grants: usize,
}

impl Size {
    fn fits(self) -> bool {
        self.pods <= PODS && self.containers <= CONTAINERS && self.places <= PLACES && self.grants <= GRANTS
    }
}

/// A pod while its parts are gathered.
#[derive(Debug, Default)]
pub(super) struct Draft {
    holding: Holding,
    places: BTreeSet<(Arc<str>, DeviceRef)>,
}

impl Draft {
    /// Adds a container, unless the pod is beyond all bounds already.
    pub(super) fn container(&mut self, name: &Arc<str>) {
        if self.size().fits() {
            self.holding.containers.insert(Arc::clone(name));
        }
    }

    /// Adds a grant, unless the pod is beyond all bounds already.
    pub(super) fn grant(&mut self, grant: Grant) {
        if self.size().fits() {
            self.places.insert((Arc::clone(&grant.container), grant.device.clone()));
            self.holding.grants.insert(grant);
        }
    }

    /// Notes that a container's plugin chooses its GPUs by itself.
    pub(super) fn defer(&mut self, container: &Arc<str>) {
        if self.holding.containers.contains(container) {
            self.holding.deferred.insert(Arc::clone(container));
        }
    }

    /// Whether it holds anything.
    pub(super) fn holds(&self) -> bool {
        !self.holding.grants.is_empty()
    }

    fn size(&self) -> Size {
        Size {
            pods: 1,
            containers: self.holding.containers.len(),
            places: self.places.len(),
            grants: self.holding.grants.len(),
        }
    }
}

/// The pods that are kept: all, or those that come first in order of name, so that it does not matter in which order
/// they are listed and the same stay from answer to answer. Entries that are alike count once.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pods: BTreeMap<(PodName, Holding), Size>,
    size: Size,
    /// The first for which there was no room.
    end: Option<(PodName, Holding)>,
    left_out: u64,
}

impl Kept {
    /// Puts in an entry.
    pub(super) fn put(&mut self, name: PodName, draft: Draft) {
        let size = draft.size();
        let entry = (name, draft.holding);
        if self.pods.contains_key(&entry) {
            return;
        }
        if !size.fits() || self.end.as_ref().is_some_and(|end| entry >= *end) {
            self.left_out += 1;
            return;
        }
        self.size.pods += size.pods;
        self.size.containers += size.containers;
        self.size.places += size.places;
        self.size.grants += size.grants;
        self.pods.insert(entry, size);
        while !self.size.fits()
            && let Some((entry, size)) = self.pods.pop_last()
        {
            self.size.pods -= size.pods;
            self.size.containers -= size.containers;
            self.size.places -= size.places;
            self.size.grants -= size.grants;
            self.end = Some(entry);
            self.left_out += 1;
        }
    }

    /// How often a pod was left out for want of room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What is kept.
    pub(super) fn into_pods(self) -> impl Iterator<Item = (PodName, Holding)> {
        self.pods.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warpmeter_core::fact::GrantPart;

    use super::*;

    fn name(number: usize) -> PodName {
        PodName { namespace: "ns".into(), name: format!("p{number:05}").into() }
    }

    fn holding(containers: usize, devices: usize, parts: usize) -> Draft {
        let mut draft = Draft::default();
        for container in 0..containers {
            let container: Arc<str> = format!("c{container}").into();
            draft.container(&container);
            for device in 0..u32::try_from(devices).unwrap() {
                for part in 0..u32::try_from(parts).unwrap() {
                    draft.grant(Grant {
                        container: Arc::clone(&container),
                        device: DeviceRef::Minor(device),
                        part: GrantPart::Replica(part),
                    });
                }
            }
        }
        draft
    }

    fn kept(pods: impl IntoIterator<Item = (usize, Draft)>) -> (Vec<String>, u64) {
        let mut kept = Kept::default();
        pods.into_iter().for_each(|(number, draft)| kept.put(name(number), draft));
        let left_out = kept.left_out();
        (kept.into_pods().map(|(name, _)| name.name.to_string()).collect(), left_out)
    }

    #[test]
    fn a_pod_that_is_too_much_by_itself_is_left_out_alone() {
        for (containers, devices, parts) in [(CONTAINERS + 5, 0, 0), (70, 70, 1), (1, 2, GRANTS)] {
            let large = holding(containers, devices, parts);
            let size = large.size();
            assert!(size.places <= PLACES + 1 && size.grants <= GRANTS + 1, "it stops to grow: {size:?}");
            let pods = [(1, large), (0, holding(1, 1, 1)), (2, holding(1, 1, 1))];
            assert_eq!(kept(pods), (vec!["p00000".to_owned(), "p00002".to_owned()], 1));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn the_first_that_fit_are_kept_whatever_their_order(
            sizes in proptest::collection::vec((1..900_usize, 1..3_usize), 1..20),
            seed in any::<prop::sample::Index>(),
        ) {
            let pods = |order: &[usize]| -> Vec<(usize, Draft)> {
                order.iter().map(|number| (*number, holding(sizes[*number].0, sizes[*number].1, 1))).collect()
            };
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            let first = kept(pods(&order));
            let fitting = sizes.iter().scan((0, 0), |(containers, places), (own, devices)| {
                *containers += own;
                *places += own * devices;
                Some(*containers <= CONTAINERS && *places <= PLACES)
            });
            prop_assert_eq!(first.0.len(), fitting.take_while(|fits| *fits).count());
            prop_assert_eq!(first.0.len() + usize::try_from(first.1).unwrap(), sizes.len());
            order.rotate_left(seed.index(sizes.len()));
            order.reverse();
            prop_assert_eq!(kept(pods(&order)), first);
        }
    }

    #[test]
    fn entries_that_are_alike_count_once() {
        let mut kept = Kept::default();
        for _ in 0..10_000 {
            kept.put(name(1), holding(3, 3, 3));
        }
        assert_eq!((kept.left_out(), kept.size), (0, Size { pods: 1, containers: 3, places: 9, grants: 27 }));
    }
}
