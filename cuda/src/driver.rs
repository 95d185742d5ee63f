//! All GPUs of an open driver: which there are, round after round.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use warpmeter_core::fact::{Fact, Health, HealthState};
use warpmeter_core::identity::GpuId;
use warpmeter_core::inventory::{self, Inventory};
use warpmeter_core::time::{MonoNs, SECOND};

use crate::clock;
use crate::gpu::{Gpu, LEARNING_PAUSE, Tools};
use crate::nvml::Fault;
use crate::nvml::sys::{Device, EventSet, Library};
use crate::procfs;
use crate::report::{Outlet, Report};

/// How often the GPUs are listed anew.
const ENUMERATE: u64 = 5 * SECOND;
/// How long a GPU that gave nothing is left alone.
const RETRY: u64 = 10 * SECOND;
/// More faults in one round are a storm, of which the rest can wait for the next.
const EVENTS: usize = 256;

/// No GPU's position.
const NOWHERE: u32 = u32::MAX;

/// GPUs by PCI bus id as they were last seen, across restarts of the driver.
pub(crate) type Known = BTreeMap<String, inventory::Gpu>;

/// A GPU that is listed and not read.
#[derive(Debug, Clone)]
struct Down {
    /// Its position, or [`NOWHERE`] if another GPU has that now.
    index: u32,
    info: inventory::Gpu,
    /// What names it in events that were queued before.
    device: Option<Device>,
    retry: MonoNs,
}

/// An open driver.
#[derive(Debug)]
pub(crate) struct Driver<'a> {
    library: Rc<Library>,
    versions: Option<inventory::Driver>,
    skip: &'a [String],
    known: &'a mut Known,
    gpus: Vec<Gpu>,
    down: Vec<Down>,
    /// Positions and bus ids that are skipped or have no name, with the reason.
    nameless: BTreeSet<String>,
    events: Option<EventSet>,
    events_fault: Option<Fault>,
    /// Bus ids of the GPUs in the set.
    watched: BTreeSet<String>,
    tools: Tools,
    inventory: Option<Inventory>,
    /// How many GPUs the driver counted last.
    count: u32,
    /// When the GPUs are listed next, and when a disturbance may bring that forward again.
    enumerate: MonoNs,
    disturb: MonoNs,
}

impl<'a> Driver<'a> {
    /// Takes over an open library; nothing is asked of a GPU yet.
    pub(crate) fn new(library: Rc<Library>, skip: &'a [String], known: &'a mut Known, tools: Tools) -> Self {
        let versions = library.versions().ok();
        let (events, events_fault) = match EventSet::new(&library) {
            Ok(events) => (Some(events), None),
            Err(fault) => (None, Some(fault)),
        };
        Self {
            library,
            versions,
            skip,
            known,
            gpus: Vec::new(),
            down: Vec::new(),
            nameless: BTreeSet::new(),
            events,
            events_fault,
            watched: BTreeSet::new(),
            tools,
            inventory: None,
            count: 0,
            enumerate: MonoNs(0),
            disturb: MonoNs(0),
        }
    }

    /// One round over all GPUs; the fault after which the driver has to be opened anew, if one came.
    pub(crate) fn round(&mut self, outlet: &mut Outlet<'_>) -> Result<(), Fault> {
        let began = clock::now();
        if self.inventory.is_none() {
            self.list(outlet)?;
        }
        self.drain_events(outlet);
        let had_gpus = !self.gpus.is_empty();
        let mut disturbed = false;
        let mut lost = None;
        for mut gpu in std::mem::take(&mut self.gpus) {
            let name = gpu.info.pci_bus_id.clone();
            let (facts, fault) = outlet.touching(&name, || gpu.poll(&mut self.tools));
            for fact in facts {
                outlet.fact(fact);
            }
            disturbed |= gpu.disturbed();
            match fault {
                None => self.gpus.push(gpu),
                Some(fault) if fault.is_driver_gone() => return Err(fault),
                Some(fault) => {
                    lost = Some(fault);
                    let index = gpu.info.index.unwrap_or(NOWHERE);
                    let device = gpu.device().clone();
                    self.put_down(index, gpu.info, Some(device), &fault.reason());
                }
            }
        }
        if let Some(fault) = lost {
            if had_gpus && self.gpus.is_empty() {
                return Err(fault);
            }
            self.announce(outlet);
        }
        let now = clock::now();
        let disturbed = disturbed && now >= self.disturb;
        if disturbed {
            // What fails again after it was opened anew waits for the regular turn.
            self.disturb = now.plus(ENUMERATE);
        }
        if disturbed || now >= self.enumerate {
            self.list(outlet)?;
        }
        for fact in self.tools.sieve.drain() {
            outlet.fact(fact);
        }
        outlet.fact(Fact::Poll { took: clock::now().since(began) });
        Ok(())
    }

    /// How well it works, with all that is missing.
    pub(crate) fn health(&self) -> Health {
        let mut reasons: BTreeSet<String> = self.nameless.clone();
        for down in &self.down {
            reasons.insert(format!(
                "{}: {}",
                down.info.pci_bus_id,
                down.info.down.as_deref().unwrap_or("down")
            ));
        }
        for gpu in &self.gpus {
            reasons.extend(gpu.missing().map(|missing| format!("{}: {missing}", gpu.info.pci_bus_id)));
        }
        reasons.extend(self.events_fault.map(|fault| format!("faults (XID) are not reported: {fault}")));
        let state = if reasons.is_empty() { HealthState::Up } else { HealthState::Degraded };
        Health { state, reason: reasons.into_iter().collect::<Vec<_>>().join("; ") }
    }

    /// Lists the GPUs: opens new ones and those that changed, drops those that are gone.
    fn list(&mut self, outlet: &mut Outlet<'_>) -> Result<(), Fault> {
        self.enumerate = clock::now().plus(ENUMERATE);
        let count = match outlet.touching(Report::DRIVER, || self.library.device_count()) {
            Ok(count) => count,
            Err(fault) if fault.is_driver_gone() || self.inventory.is_none() => return Err(fault),
            // Whatever this was, the GPUs that are open still answer for themselves.
            Err(_) => return Ok(()),
        };
        self.nameless.clear();
        if std::mem::replace(&mut self.count, count) != count {
            // Positions have moved: whoever is left alone may be someone else.
            for down in &mut self.down {
                down.retry = MonoNs(0);
            }
        }
        let mut before = std::mem::take(&mut self.gpus);
        let mut opened: Vec<(Gpu, Option<MonoNs>)> = Vec::new();
        let mut refused: Vec<(u32, Fault)> = Vec::new();
        for index in 0..count {
            if self.down.iter().any(|down| down.index == index && clock::now() < down.retry) {
                continue;
            }
            let known = before.iter().find(|gpu| gpu.info.index == Some(index));
            let name = known.map_or_else(|| format!("index-{index}"), |gpu| gpu.info.pci_bus_id.clone());
            if self.is_skipped(&name) {
                self.nameless.insert(format!("{name}: skipped, it hung before"));
                continue;
            }
            let identified = outlet.touching(&name, || {
                let device = self.library.device(index)?;
                let pci_bus_id = device.pci_bus_id()?;
                Ok::<(Device, String), Fault>((device, pci_bus_id))
            });
            let (device, pci_bus_id) = match identified {
                Ok(identified) => identified,
                Err(fault) if fault.is_driver_gone() => return Err(fault),
                Err(fault) => {
                    refused.push((index, fault));
                    continue;
                }
            };
            for down in &mut self.down {
                if down.index == index && down.info.pci_bus_id != pci_bus_id {
                    down.index = NOWHERE;
                }
            }
            if self.is_skipped(&pci_bus_id) {
                self.put_down_unread(index, &pci_bus_id, "skipped: it hung before");
                continue;
            }
            let position = before.iter().position(|gpu| gpu.info.pci_bus_id == pci_bus_id);
            let outcome = if let Some(position) = position {
                reopen(before.swap_remove(position), device, index, outlet)
            } else {
                let opened = outlet.touching(&pci_bus_id, || Gpu::open(device, &pci_bus_id, index));
                opened.map(|gpu| (gpu, None, true))
            };
            match outcome {
                Ok((gpu, since, true)) => opened.push((gpu, since)),
                Ok((gpu, _, false)) => self.gpus.push(gpu),
                Err(fault) if fault.is_driver_gone() => return Err(fault),
                Err(fault) => self.put_down_unread(index, &pci_bus_id, &fault.reason()),
            }
        }
        self.put_down_refused(refused, before);
        if self.down.iter().any(|down| down.index >= count) {
            // A GPU without a position has been taken out, or has fallen off the bus and is still expected back.
            let there = procfs::pci_bus_ids();
            self.down.retain(|down| down.index < count || there.contains(&down.info.pci_bus_id));
        }
        self.learn(&mut opened, outlet);
        let mut bridges = Vec::new();
        for (gpu, since) in opened {
            self.down.retain(|down| down.info.pci_bus_id != gpu.info.pci_bus_id);
            self.watch(&gpu, outlet);
            bridges.extend(since.and_then(|since| gpu.bridge(since)));
            self.gpus.push(gpu);
        }
        self.announce(outlet);
        for fact in bridges {
            outlet.fact(fact);
        }
        Ok(())
    }

    fn is_skipped(&self, name: &str) -> bool {
        self.skip.iter().any(|skip| skip.eq_ignore_ascii_case(name))
    }

    /// Finds out what newly opened GPUs give, all at the same time.
    fn learn(&mut self, opened: &mut [(Gpu, Option<MonoNs>)], outlet: &mut Outlet<'_>) {
        let pause = opened.iter().any(|(gpu, _)| gpu.has_gpm());
        let tools = &mut self.tools;
        let mut each = |step: &mut dyn FnMut(&mut Gpu)| {
            for (gpu, _) in opened.iter_mut() {
                let name = gpu.info.pci_bus_id.clone();
                outlet.touching(&name, || step(gpu));
            }
        };
        if pause {
            each(&mut Gpu::learn_first);
            std::thread::sleep(LEARNING_PAUSE);
            each(&mut |gpu| gpu.learn_second(tools));
            std::thread::sleep(LEARNING_PAUSE);
        }
        each(&mut |gpu| gpu.learn_third(tools));
    }

    fn put_down(&mut self, index: u32, info: inventory::Gpu, device: Option<Device>, reason: &str) {
        let retry = clock::now().plus(RETRY);
        let info = inventory::Gpu { down: Some(reason.to_owned()), ..info };
        self.watched.remove(&info.pci_bus_id);
        let before = self.down.iter().find(|down| down.info.pci_bus_id == info.pci_bus_id);
        let device = device.or_else(|| before.and_then(|down| down.device.clone()));
        self.down.retain(|down| down.info.pci_bus_id != info.pci_bus_id && down.index != index);
        self.down.push(Down { index, info, device, retry });
    }

    /// Lists a GPU that cannot or must not be read, if anything but the GPU itself knows its name.
    fn put_down_unread(&mut self, index: u32, pci_bus_id: &str, reason: &str) {
        let known = self.known.get(pci_bus_id).cloned();
        match known.or_else(|| procfs::gpu(pci_bus_id, reason)) {
            Some(info) => self.put_down(index, info, None, reason),
            None => {
                self.nameless.insert(format!("{pci_bus_id}: {reason}"));
            }
        }
    }

    /// Positions that gave no device: what was there before, or what the kernel module still lists.
    fn put_down_refused(&mut self, refused: Vec<(u32, Fault)>, mut before: Vec<Gpu>) {
        if refused.is_empty() {
            return;
        }
        let taken: BTreeSet<&str> = self.gpus.iter().map(|gpu| gpu.info.pci_bus_id.as_str()).collect();
        let listed = procfs::pci_bus_ids().into_iter().chain(self.known.keys().cloned());
        let mut left: Vec<String> = listed.filter(|id| !taken.contains(id.as_str())).collect();
        left.dedup();
        for (index, fault) in refused {
            let reason = fault.reason();
            if let Some(position) = before.iter().position(|gpu| gpu.info.index == Some(index)) {
                let gpu = before.swap_remove(position);
                left.retain(|id| *id != gpu.info.pci_bus_id);
                let device = gpu.device().clone();
                self.put_down(index, gpu.info, Some(device), &reason);
                continue;
            }
            let down =
                self.down.iter().find(|down| down.index == index).map(|down| down.info.pci_bus_id.clone());
            let by_known =
                || self.known.iter().find(|(_, gpu)| gpu.index == Some(index)).map(|(id, _)| id.clone());
            match down.or_else(by_known).or_else(|| left.first().cloned()) {
                Some(id) => {
                    left.retain(|other| *other != id);
                    self.put_down_unread(index, &id, &reason);
                }
                None => {
                    self.nameless.insert(format!("index-{index}: {reason}"));
                }
            }
        }
    }

    fn watch(&mut self, gpu: &Gpu, outlet: &mut Outlet<'_>) {
        let Some(events) = self.events.as_ref() else { return };
        if !self.watched.insert(gpu.info.pci_bus_id.clone()) {
            return;
        }
        let registered = outlet.touching(&gpu.info.pci_bus_id, || events.register(gpu.device()));
        if let Err(fault) = registered
            && !fault.is_device_down()
        {
            self.events_fault = Some(fault);
        }
    }

    /// Sends the inventory if it is not the one sent last.
    fn announce(&mut self, outlet: &mut Outlet<'_>) {
        let live = self.gpus.iter().map(|gpu| gpu.info.clone());
        let mut gpus: Vec<inventory::Gpu> =
            live.chain(self.down.iter().map(|down| down.info.clone())).collect();
        gpus.sort_by(|one, other| one.id.cmp(&other.id));
        gpus.dedup_by(|one, other| one.id == other.id);
        for gpu in &self.gpus {
            self.known.insert(gpu.info.pci_bus_id.clone(), gpu.info.clone());
        }
        let inventory = Inventory { driver: self.versions.clone(), gpus };
        if self.inventory.as_ref() != Some(&inventory) {
            outlet.fact(Fact::Inventory(inventory.clone()));
            self.inventory = Some(inventory);
        }
    }

    /// Reports every fault that the driver has queued, each as often as it happened.
    fn drain_events(&mut self, outlet: &mut Outlet<'_>) {
        let Some(events) = self.events.take() else { return };
        let mut broken = None;
        for _ in 0..EVENTS {
            match outlet.touching(Report::DRIVER, || events.next()) {
                Ok(None) => break,
                Ok(Some((device, xid))) => {
                    if let Some(gpu) = self.name_of(&device) {
                        outlet.fact(Fact::Xid { gpu, xid });
                    } else {
                        tracing::warn!(xid, "a fault of a GPU that cannot be named");
                    }
                }
                Err(fault) => {
                    broken = Some(fault);
                    break;
                }
            }
        }
        match broken {
            None => self.events = Some(events),
            // A set with a lost GPU in it answers for none: a new one, with the GPUs that are left.
            Some(fault) => self.renew_events(fault, outlet),
        }
    }

    fn name_of(&self, device: &Device) -> Option<GpuId> {
        let live = self.gpus.iter().find(|gpu| gpu.device() == device).map(|gpu| &gpu.info.id);
        let down =
            || self.down.iter().find(|down| down.device.as_ref() == Some(device)).map(|down| &down.info.id);
        live.or_else(down).cloned().or_else(|| device.uuid().ok().map(GpuId::new))
    }

    fn renew_events(&mut self, fault: Fault, outlet: &mut Outlet<'_>) {
        self.watched.clear();
        let Ok(events) = EventSet::new(&self.library) else {
            self.events_fault = Some(fault);
            return;
        };
        self.events = Some(events);
        let gpus = std::mem::take(&mut self.gpus);
        for gpu in &gpus {
            self.watch(gpu, outlet);
        }
        self.gpus = gpus;
    }
}

/// The GPU as it was, or opened anew if it is another or divided otherwise; since when nothing was read, and whether
/// it is new.
fn reopen(
    mut gpu: Gpu,
    device: Device,
    index: u32,
    outlet: &mut Outlet<'_>,
) -> Result<(Gpu, Option<MonoNs>, bool), Fault> {
    let name = gpu.info.pci_bus_id.clone();
    outlet.touching(&name, || {
        if gpu.refresh(&device)? {
            gpu.info.index = Some(index);
            return Ok((gpu, None, false));
        }
        let (id, end) = (gpu.info.id.clone(), gpu.end());
        let anew = Gpu::open(device, &name, index)?;
        let since = (anew.info.id == id).then_some(end);
        Ok((anew, since, true))
    })
}
