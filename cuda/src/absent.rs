//! GPUs that are listed and not read: lost, refused, or to be left alone.

use std::collections::{BTreeMap, BTreeSet};

use warpmeter_core::identity::GpuId;
use warpmeter_core::inventory::Gpu;
use warpmeter_core::time::{MonoNs, SECOND};

use crate::nvml::Fault;
use crate::nvml::sys::Device;
use crate::procfs;

/// How long a GPU that gave nothing is left alone.
const RETRY: u64 = 10 * SECOND;

/// No GPU's position.
const NOWHERE: u32 = u32::MAX;

/// GPUs by PCI bus id as they were last read, across restarts of the driver.
pub(crate) type Known = BTreeMap<String, Gpu>;

#[derive(Debug)]
struct Down {
    /// Its position, or [`NOWHERE`] if another GPU has that now.
    index: u32,
    info: Gpu,
    /// What names it in faults that were queued before.
    device: Option<Device>,
    retry: MonoNs,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    down: Vec<Down>,
    /// Those that nothing but themselves could name, each with its reason.
    nameless: BTreeSet<String>,
}

impl Absent {
    /// Starts a new listing: the nameless are named again or not.
    pub(crate) fn relist(&mut self, positions_moved: bool) {
        self.nameless.clear();
        if positions_moved {
            // Whoever is left alone may be someone else now.
            for down in &mut self.down {
                down.retry = MonoNs(0);
            }
        }
    }

    /// Whether the GPU at a position is to be left alone for now.
    pub(crate) fn rests(&self, index: u32, now: MonoNs) -> bool {
        self.down.iter().any(|down| down.index == index && now < down.retry)
    }

    /// Whether a GPU has been left alone for long enough.
    pub(crate) fn is_due(&self, now: MonoNs) -> bool {
        self.down.iter().any(|down| down.index != NOWHERE && now >= down.retry)
    }

    /// The position belongs to this GPU now.
    pub(crate) fn moved_in(&mut self, index: u32, pci_bus_id: &str) {
        for down in &mut self.down {
            if down.index == index && down.info.pci_bus_id != pci_bus_id {
                down.index = NOWHERE;
            }
        }
    }

    /// Lists a GPU that was read until now.
    pub(crate) fn put(&mut self, info: Gpu, device: Option<Device>, reason: String, now: MonoNs) {
        let before = self.down.iter().find(|down| down.info.pci_bus_id == info.pci_bus_id);
        let device = device.or_else(|| before.and_then(|down| down.device.clone()));
        let index = info.index.unwrap_or(NOWHERE);
        let info = Gpu { down: Some(reason), ..info };
        self.down.retain(|down| {
            down.info.pci_bus_id != info.pci_bus_id && (index == NOWHERE || down.index != index)
        });
        self.down.push(Down { index, info, device, retry: now.plus(RETRY) });
    }

    /// Lists a GPU that cannot or must not be read, if anything but the GPU itself knows its name.
    pub(crate) fn put_unread(
        &mut self,
        index: u32,
        pci_bus_id: &str,
        reason: String,
        known: &Known,
        now: MonoNs,
    ) {
        let info = known.get(pci_bus_id).cloned().or_else(|| procfs::gpu(pci_bus_id, &reason));
        match info {
            Some(info) => self.put(Gpu { index: Some(index), ..info }, None, reason, now),
            None => self.put_nameless(pci_bus_id, &reason),
        }
    }

    /// Mentions a GPU that nothing names.
    pub(crate) fn put_nameless(&mut self, name: &str, reason: &str) {
        self.nameless.insert(format!("{name}: {reason}"));
    }

    /// Lists what is at positions that gave no device: what was there before, or else what the kernel module lists
    /// beyond the GPUs that are `read`.
    pub(crate) fn put_refused(
        &mut self,
        refused: &[(u32, Fault)],
        read: &BTreeSet<String>,
        known: &Known,
        now: MonoNs,
    ) {
        if refused.is_empty() {
            return;
        }
        let listed: BTreeSet<String> =
            procfs::pci_bus_ids().into_iter().chain(known.keys().cloned()).collect();
        let mut left: BTreeSet<String> = listed.difference(read).cloned().collect();
        for (index, fault) in refused {
            let down = self.down.iter().find(|down| down.index == *index).map(|down| &down.info.pci_bus_id);
            let before = known.iter().find(|(id, gpu)| gpu.index == Some(*index) && left.contains(*id));
            let id = down.or(before.map(|(id, _)| id)).cloned().or_else(|| left.first().cloned());
            let reason = fault.reason();
            match id {
                Some(id) => {
                    left.remove(&id);
                    self.put_unread(*index, &id, reason, known, now);
                }
                None => self.put_nameless(&format!("index-{index}"), &reason),
            }
        }
    }

    /// Drops what is read again.
    pub(crate) fn forget(&mut self, pci_bus_id: &str) {
        self.down.retain(|down| down.info.pci_bus_id != pci_bus_id);
    }

    /// Drops what has been taken out: without a position, and the kernel module does not list it either. One that
    /// has fallen off the bus is still listed there.
    pub(crate) fn drop_removed(&mut self, count: u32) {
        if self.down.iter().any(|down| down.index >= count) {
            let there = procfs::pci_bus_ids();
            self.down.retain(|down| down.index < count || there.contains(&down.info.pci_bus_id));
            for down in self.down.iter_mut().filter(|down| down.index >= count) {
                down.index = NOWHERE;
            }
        }
    }

    /// The name of a device among them.
    pub(crate) fn name_of(&self, device: &Device) -> Option<&GpuId> {
        self.down.iter().find(|down| down.device.as_ref() == Some(device)).map(|down| &down.info.id)
    }

    /// As the inventory lists them.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Gpu> {
        self.down.iter().map(|down| &down.info)
    }

    /// Each with its reason, but for those, by PCI bus id, whose reason is `known`.
    pub(crate) fn reasons(&self, known: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
        let news = self.listed().filter(move |gpu| !known(&gpu.pci_bus_id));
        let down = news.map(|gpu| format!("{}: {}", gpu.pci_bus_id, gpu.down.as_deref().unwrap_or("down")));
        down.chain(self.nameless.iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use warpmeter_core::inventory::Authority;

    use super::*;

    fn gpu(index: u32, pci_bus_id: &str) -> Gpu {
        Gpu {
            id: GpuId::new(format!("GPU-{pci_bus_id}")),
            index: Some(index),
            minor: Some(index),
            pci_bus_id: pci_bus_id.to_owned(),
            model: String::new(),
            memory_bytes: None,
            memory_bus: None,
            link: None,
            down: None,
            mig: None,
            authority: Authority::default(),
        }
    }

    fn reasons(absent: &Absent) -> Vec<String> {
        absent.reasons(|_| false).collect()
    }

    #[test]
    fn a_lost_gpu_rests_and_is_tried_again() {
        let mut absent = Absent::default();
        absent.put(gpu(3, "x:3"), None, "lost".to_owned(), MonoNs(0));
        assert!(absent.rests(3, MonoNs(9 * SECOND)) && !absent.rests(2, MonoNs(0)));
        assert!(absent.is_due(MonoNs(10 * SECOND)) && !absent.rests(3, MonoNs(10 * SECOND)));
        assert_eq!(reasons(&absent), ["x:3: lost"]);
        assert_eq!(absent.reasons(|name| name == "x:3").count(), 0);
        absent.forget("x:3");
        assert_eq!(reasons(&absent), [""; 0]);
    }

    #[test]
    fn a_position_that_gives_nothing_is_the_gpu_that_was_there() {
        let known: Known =
            [(0, "x:0"), (1, "x:1")].into_iter().map(|(i, id)| (id.to_owned(), gpu(i, id))).collect();
        let mut absent = Absent::default();
        let read = BTreeSet::from(["x:0".to_owned()]);
        absent.put_refused(&[(1, Fault(15)), (2, Fault(15))], &read, &known, MonoNs(0));
        assert_eq!(reasons(&absent), ["x:1: lost", "index-2: lost"]);
    }

    #[test]
    fn a_gpu_whose_position_another_took_is_not_mistaken_for_it() {
        let mut absent = Absent::default();
        absent.put(gpu(0, "x:0"), None, "lost".to_owned(), MonoNs(0));
        absent.moved_in(0, "x:1");
        assert!(!absent.rests(0, MonoNs(0)));
        absent.drop_removed(1);
        assert_eq!(reasons(&absent), [""; 0], "nor does the kernel module list it");
    }
}
