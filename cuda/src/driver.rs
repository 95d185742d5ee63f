//! All GPUs of an open driver: which there are, round after round.

use std::collections::BTreeSet;
use std::rc::Rc;

use warpmeter_core::fact::{Fact, Health, HealthState};
use warpmeter_core::identity::GpuId;
use warpmeter_core::inventory::{self, Inventory};
use warpmeter_core::time::{MonoNs, SECOND};

use crate::absent::{Absent, Known};
use crate::clock;
use crate::cupti::{self, Monitors};
use crate::gpu::{Gpu, LEARNING_PAUSE, Tools};
use crate::nvml::Fault;
use crate::nvml::sys::{Device, Library};
use crate::report::{Options, Outlet, Report};
use crate::xid;

/// How often the GPUs are listed anew.
const ENUMERATE: u64 = 5 * SECOND;

/// An open driver.
#[derive(Debug)]
pub(crate) struct Driver<'a> {
    library: Rc<Library>,
    versions: Option<inventory::Driver>,
    skip: &'a [String],
    /// PCI bus ids by index, as the parent saw them last.
    expected: &'a [String],
    known: &'a mut Known,
    gpus: Vec<Gpu>,
    absent: Absent,
    faults: xid::Queue,
    monitors: Monitors,
    tools: Tools,
    /// As sent last.
    inventory: Option<Inventory>,
    /// How many GPUs the driver counted last.
    count: u32,
    /// When the GPUs are listed next, and when a disturbance may bring that forward again.
    enumerate: MonoNs,
    disturb: MonoNs,
}

/// A GPU that was just opened, and until when it was read before if it only was divided anew.
type Opened = (Gpu, Option<MonoNs>);

impl<'a> Driver<'a> {
    /// Takes over an open library. Calls the driver, but no GPU yet.
    pub(crate) fn new(
        library: Rc<Library>,
        options: &'a Options,
        known: &'a mut Known,
        monitors: Monitors,
        tools: Tools,
    ) -> Self {
        Self {
            versions: library.versions().ok(),
            faults: xid::Queue::new(&library),
            library,
            skip: &options.skip,
            expected: &options.known,
            known,
            gpus: Vec::new(),
            absent: Absent::default(),
            monitors,
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
        self.report_faults(outlet);
        let disturbed = self.poll(outlet)?;
        let now = clock::now();
        let disturbed = disturbed && now >= self.disturb;
        if disturbed {
            // What fails again after it was opened anew waits for the regular turn.
            self.disturb = now.plus(ENUMERATE);
        }
        if disturbed || now >= self.enumerate || self.absent.is_due(now) {
            self.list(outlet)?;
        }
        for fact in self.tools.sieve.drain() {
            outlet.fact(fact);
        }
        outlet.fact(Fact::Poll { took: clock::now().since(began), answered: true });
        Ok(())
    }

    /// Reads every GPU; whether one seems to be divided otherwise than it was.
    fn poll(&mut self, outlet: &mut Outlet<'_>) -> Result<bool, Fault> {
        let mut disturbed = false;
        let mut lost = None;
        for mut gpu in std::mem::take(&mut self.gpus) {
            let name = gpu.info.pci_bus_id.clone();
            self.sample(&mut gpu, outlet);
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
                    self.faults.forget(&name);
                    let (info, device) = (gpu.info.clone(), gpu.device().clone());
                    self.absent.put(info, Some(device), fault.reason(), clock::now());
                    self.let_go(&name, outlet);
                    // Its samples go back to the driver, which is a call like any other.
                    outlet.touching(&name, || drop(gpu));
                }
            }
        }
        match lost {
            // Not one GPU's fault: perhaps the driver's.
            Some(fault) if self.gpus.is_empty() => return Err(fault),
            Some(_) => self.announce(outlet),
            None => {}
        }
        Ok(disturbed)
    }

    /// Collects what a GPU's performance monitor sampled, if it is sampled. Calls of CUPTI are announced under names of
    /// their own: should they hang, or end this process, the next does without them and reads all else.
    fn sample(&mut self, gpu: &mut Gpu, outlet: &mut Outlet<'_>) {
        let name = cupti::name(&gpu.info.pci_bus_id);
        if !gpu.is_sampled() || self.is_skipped(cupti::LIBRARY) || self.is_skipped(&name) {
            return;
        }
        let Self { monitors, tools, .. } = self;
        if monitors.opens_now() {
            outlet.touching(cupti::LIBRARY, || monitors.open());
        }
        let place = gpu.info.pci_bus_id.clone();
        outlet.touching(&name, || {
            gpu.collect(|samples, peak| monitors.collect(&place, peak, samples, &mut tools.sieve));
        });
    }

    /// Empties the performance monitors' buffers between rounds that are far apart.
    pub(crate) fn drain(&mut self, outlet: &mut Outlet<'_>) {
        for mut gpu in std::mem::take(&mut self.gpus) {
            self.sample(&mut gpu, outlet);
            self.gpus.push(gpu);
        }
        outlet.alive();
    }

    /// Lets go of a GPU's performance monitor.
    fn let_go(&mut self, pci_bus_id: &str, outlet: &mut Outlet<'_>) {
        if self.monitors.holds(pci_bus_id) {
            outlet.touching(&cupti::name(pci_bus_id), || self.monitors.let_go(pci_bus_id));
        }
    }

    /// Ends the use of the driver. Whether its CUDA library was started, which works once in a process.
    pub(crate) fn close(mut self, outlet: &mut Outlet<'_>) -> bool {
        for name in self.monitors.held() {
            self.let_go(&name, outlet);
        }
        let started = self.monitors.used();
        // Closes the library too.
        outlet.touching(Report::DRIVER, || drop(self));
        started
    }

    /// How well it works, with all that is missing.
    pub(crate) fn health(&self) -> Health {
        let mut reasons: BTreeSet<String> = self.absent.reasons(|name| self.is_skipped(name)).collect();
        for gpu in &self.gpus {
            reasons.extend(gpu.missing().map(|missing| format!("{}: {missing}", gpu.info.pci_bus_id)));
        }
        reasons.extend(self.faults.refused().map(|fault| format!("faults (XID) are not reported: {fault}")));
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
        self.absent.relist(std::mem::replace(&mut self.count, count) != count);
        let mut before = std::mem::take(&mut self.gpus);
        let mut opened: Vec<Opened> = Vec::new();
        let mut refused: Vec<(u32, Fault)> = Vec::new();
        for index in 0..count {
            if self.absent.rests(index, clock::now()) {
                continue;
            }
            match self.visit(index, &mut before, &mut opened, outlet) {
                Ok(()) => {}
                Err(fault) if fault.is_driver_gone() => return Err(fault),
                Err(fault) => refused.push((index, fault)),
            }
        }
        let read = self.gpus.iter().chain(opened.iter().map(|(gpu, _)| gpu));
        let read: BTreeSet<String> = read.map(|gpu| gpu.info.pci_bus_id.clone()).collect();
        self.absent.put_refused(&refused, &read, self.known, clock::now());
        self.absent.drop_removed(count);
        // Those that were read and have no place any more.
        for gpu in before {
            let name = gpu.info.pci_bus_id.clone();
            self.faults.forget(&name);
            self.let_go(&name, outlet);
            outlet.touching(&name, || drop(gpu));
        }
        self.take_in(opened, outlet);
        Ok(())
    }

    /// Finds out who is at a position. A fault means that nobody could be identified there.
    fn visit(
        &mut self,
        index: u32,
        before: &mut Vec<Gpu>,
        opened: &mut Vec<Opened>,
        outlet: &mut Outlet<'_>,
    ) -> Result<(), Fault> {
        let known = before.iter().find(|gpu| gpu.info.index == Some(index));
        let known = known.map(|gpu| gpu.info.pci_bus_id.clone()).or_else(|| self.expected(index));
        let name = known.clone().unwrap_or_else(|| format!("index-{index}"));
        if self.is_skipped(&name) {
            // Of one that nothing names, whoever said that it must not be touched says so.
            if let Some(id) = known {
                self.absent.put_unread(index, &id, SKIPPED.to_owned(), self.known, clock::now());
            }
            return Ok(());
        }
        let (device, pci_bus_id) = outlet.touching(&name, || {
            let device = self.library.device(index)?;
            let pci_bus_id = device.pci_bus_id()?;
            Ok::<(Device, String), Fault>((device, pci_bus_id))
        })?;
        self.absent.moved_in(index, &pci_bus_id);
        if self.is_skipped(&pci_bus_id) {
            self.absent.put_unread(index, &pci_bus_id, SKIPPED.to_owned(), self.known, clock::now());
            return Ok(());
        }
        let position = before.iter().position(|gpu| gpu.info.pci_bus_id == pci_bus_id);
        let same = position.map(|position| before.swap_remove(position));
        let sampled = same.as_ref().is_some_and(Gpu::is_sampled);
        let outcome = outlet.touching(&pci_bus_id, || look_again(same, device, &pci_bus_id, index));
        match outcome {
            Ok(Look::Same(gpu)) => self.gpus.push(gpu),
            Ok(Look::Opened(gpu, since)) => {
                if sampled {
                    // It is sampled anew, or in MIG mode not at all.
                    self.let_go(&pci_bus_id, outlet);
                }
                opened.push((gpu, since));
            }
            Err(fault) if fault.is_driver_gone() => return Err(fault),
            Err(fault) => {
                self.faults.forget(&pci_bus_id);
                self.absent.put_unread(index, &pci_bus_id, fault.reason(), self.known, clock::now());
            }
        }
        Ok(())
    }

    /// Who was at a position before this process, if the driver still shows as many GPUs.
    fn expected(&self, index: u32) -> Option<String> {
        let count = usize::try_from(self.count).ok()?;
        let index = usize::try_from(index).ok()?;
        (self.expected.len() == count).then(|| self.expected.get(index).cloned())?
    }

    fn is_skipped(&self, name: &str) -> bool {
        self.skip.iter().any(|skip| skip.eq_ignore_ascii_case(name))
    }

    /// Makes newly opened GPUs ready, and tells of them.
    fn take_in(&mut self, mut opened: Vec<Opened>, outlet: &mut Outlet<'_>) {
        self.learn(&mut opened, outlet);
        let mut bridges = Vec::new();
        for (gpu, since) in opened {
            self.absent.forget(&gpu.info.pci_bus_id);
            bridges.extend(since.and_then(|since| gpu.bridge(since)));
            self.gpus.push(gpu);
        }
        for gpu in &self.gpus {
            self.faults.watch(gpu, outlet);
        }
        // The inventory first: readings are of the instances that it lists.
        self.announce(outlet);
        for fact in bridges {
            outlet.fact(fact);
        }
    }

    /// Finds out what newly opened GPUs give, all at the same time.
    fn learn(&mut self, opened: &mut [Opened], outlet: &mut Outlet<'_>) {
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

    /// Sends the inventory if it is not the one sent last.
    fn announce(&mut self, outlet: &mut Outlet<'_>) {
        for gpu in &self.gpus {
            self.known.insert(gpu.info.pci_bus_id.clone(), gpu.info.clone());
        }
        let live = self.gpus.iter().map(|gpu| &gpu.info);
        let mut gpus: Vec<inventory::Gpu> = live.chain(self.absent.listed()).cloned().collect();
        gpus.sort_by(|one, other| one.id.cmp(&other.id));
        gpus.dedup_by(|one, other| one.id == other.id);
        let inventory = Inventory { driver: self.versions.clone(), gpus };
        if self.inventory.as_ref() != Some(&inventory) {
            outlet.fact(Fact::Inventory(inventory.clone()));
            self.inventory = Some(inventory);
        }
    }

    /// Reports every fault that the driver has queued.
    fn report_faults(&mut self, outlet: &mut Outlet<'_>) {
        for (device, xid) in self.faults.drain(&self.library, outlet) {
            if let Some(gpu) = outlet.touching(Report::DRIVER, || self.name_of(&device)) {
                outlet.fact(Fact::Xid { gpu, xid });
            } else {
                tracing::warn!(xid, "a fault of a GPU that cannot be named");
            }
        }
        // Does something only after the queue was made anew.
        for gpu in &self.gpus {
            self.faults.watch(gpu, outlet);
        }
    }

    fn name_of(&self, device: &Device) -> Option<GpuId> {
        let live = self.gpus.iter().find(|gpu| gpu.device() == device).map(|gpu| &gpu.info.id);
        live.or_else(|| self.absent.name_of(device)).cloned().or_else(|| device.uuid().ok().map(GpuId::new))
    }
}

/// Why a GPU that the parent named is not read. The parent knows what happened to it.
const SKIPPED: &str = "not to be touched";

/// What was found at a position.
enum Look {
    /// The GPU as it was.
    Same(Gpu),
    /// Another, or the same divided otherwise; then with the end of its last reading.
    Opened(Gpu, Option<MonoNs>),
}

fn look_again(same: Option<Gpu>, device: Device, pci_bus_id: &str, index: u32) -> Result<Look, Fault> {
    let Some(mut gpu) = same else {
        return Gpu::open(device, pci_bus_id, index).map(|gpu| Look::Opened(gpu, None));
    };
    if gpu.refresh(&device)? {
        gpu.info.index = Some(index);
        return Ok(Look::Same(gpu));
    }
    let (id, end) = (gpu.info.id.clone(), gpu.end());
    // Its samples go back to the driver before new ones are taken.
    drop(gpu);
    let anew = Gpu::open(device, pci_bus_id, index)?;
    let since = (anew.info.id == id).then_some(end);
    Ok(Look::Opened(anew, since))
}
