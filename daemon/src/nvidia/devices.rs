//! The devices that the `nvidia` process is to do without, because it did not survive them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Health, HealthState};
use warpmeter_core::inventory::{Gpu, Inventory};

/// After so long without a failure since its last chance, a device starts with a clean record.
const FORGIVEN: Duration = Duration::from_secs(600);

/// The longest that a device is left alone.
const LONGEST: Duration = Duration::from_secs(3600);

/// A device that the process did not survive.
#[derive(Debug, Clone)]
struct Bad {
    /// It is left alone until then; none: it has been given another chance.
    until: Option<Instant>,
    /// For how long it was left alone the last time.
    wait: Duration,
    /// When it failed last.
    failed: Instant,
    /// What happened.
    reason: String,
}

impl Bad {
    fn sentence(&self) -> String {
        format!("left alone for {}: {}", humantime::format_duration(self.wait), self.reason)
    }
}

/// Before the PCI bus id of a device whose performance monitor is meant, or alone: all of them.
pub(super) const CUPTI: &str = "cupti";

/// What a name that was touched stands for.
fn thing(name: &str) -> String {
    match name.strip_prefix(CUPTI) {
        Some("") => "PM sampling".to_owned(),
        Some(device) => format!("PM sampling of GPU{device}"),
        None => format!("GPU {name}"),
    }
}

/// All devices that were seen, and those that are left alone, by PCI bus id.
#[derive(Debug)]
pub(super) struct Devices {
    skip: Duration,
    bad: BTreeMap<String, Bad>,
    known: BTreeMap<String, Gpu>,
}

impl Devices {
    /// Devices of which nothing is known yet. One that fails is left alone for `skip` at first; doubled each time.
    pub(super) const fn new(skip: Duration) -> Self {
        Self { skip, bad: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.bad.clear();
        self.known.clear();
    }

    /// The device that was `touched` is to blame for `reason`, and is left alone from `now` on.
    pub(super) fn blame(&mut self, touched: String, reason: String, now: Instant) {
        // A new process cannot know yet who is where; what was known before says it.
        let index = touched.strip_prefix("index-").and_then(|index| index.parse().ok());
        let there = self.known.values().find(|gpu| index.is_some() && gpu.index == index);
        let device = there.map_or(touched, |gpu| gpu.pci_bus_id.clone());
        // A failure long after another chance is a new one.
        let recent = self.bad.get(&device).filter(|bad| now.duration_since(bad.failed) < bad.wait + FORGIVEN);
        let wait = recent.map_or(self.skip, |bad| (bad.wait * 2).min(LONGEST));
        self.bad.insert(device, Bad { until: Some(now + wait), wait, failed: now, reason });
    }

    /// Gives devices that were left alone for long enough another chance. True if there are any: then a new
    /// process has to be told. A new failure doubles the wait, as [`Devices::blame`] finds it here.
    pub(super) fn give_chances(&mut self, now: Instant) -> bool {
        let mut any = false;
        for bad in self.bad.values_mut().filter(|bad| bad.until.is_some_and(|until| until <= now)) {
            bad.until = None;
            any = true;
        }
        any
    }

    /// Those that are left alone.
    pub(super) fn skipped(&self) -> Vec<String> {
        self.left_alone().map(|(device, _)| device.clone()).collect()
    }

    fn left_alone(&self) -> impl Iterator<Item = (&String, &Bad)> {
        self.bad.iter().filter(|(_, bad)| bad.until.is_some())
    }

    /// PCI bus ids by index, if every index up to the last has one.
    pub(super) fn by_index(&self) -> Vec<String> {
        let at = |gpu: &Gpu| gpu.index.and_then(|index| usize::try_from(index).ok());
        let mut ids: BTreeMap<usize, &String> = BTreeMap::new();
        for gpu in self.known.values() {
            ids.extend(at(gpu).map(|index| (index, &gpu.pci_bus_id)));
        }
        let complete = ids.keys().copied().eq(0..ids.len()) && ids.len() == self.known.len();
        if complete { ids.into_values().cloned().collect() } else { Vec::new() }
    }

    /// Takes note of what an inventory lists, and adds to it what is left alone, with the reason.
    pub(super) fn complete(&mut self, inventory: &mut Inventory) {
        for gpu in inventory.gpus.iter().filter(|gpu| gpu.down.is_none()) {
            self.known.insert(gpu.pci_bus_id.clone(), gpu.clone());
        }
        for (device, bad) in self.left_alone() {
            let listed = inventory.gpus.iter().find(|gpu| gpu.pci_bus_id == *device);
            if listed.is_some_and(|gpu| gpu.down.is_none()) {
                continue;
            }
            if let Some(gpu) = self.known.get(device).or(listed) {
                let gpu = Gpu { down: Some(bad.sentence()), ..gpu.clone() };
                inventory.gpus.retain(|other| other.id != gpu.id);
                inventory.gpus.push(gpu);
            }
        }
        inventory.gpus.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// Adds to the health of a process that works what it cannot know: why devices are left alone.
    pub(super) fn degrade(&self, health: &mut Health) {
        if !matches!(health.state, HealthState::Up | HealthState::Degraded) {
            return;
        }
        let sentence = |(name, bad): (&String, &Bad)| format!("{} is {}", thing(name), bad.sentence());
        let mut reasons: Vec<String> = self.left_alone().map(sentence).collect();
        if !reasons.is_empty() {
            health.state = HealthState::Degraded;
            reasons.extend(Some(std::mem::take(&mut health.reason)).filter(|reason| !reason.is_empty()));
            health.reason = reasons.join("; ");
        }
    }
}

#[cfg(test)]
mod tests {
    use warpmeter_core::identity::GpuId;
    use warpmeter_core::inventory::Authority;

    use super::*;

    const SKIP: Duration = Duration::from_secs(60);

    fn gpu(index: u32, down: Option<&str>) -> Gpu {
        Gpu {
            id: GpuId::new(format!("GPU-{index}")),
            index: Some(index),
            minor: Some(index),
            pci_bus_id: format!("bus:{index}"),
            model: "NVIDIA H100".into(),
            memory_bytes: None,
            memory_bus: None,
            link: None,
            down: down.map(str::to_owned),
            mig: None,
            authority: Authority::default(),
        }
    }

    fn inventory(gpus: &[Gpu]) -> Inventory {
        Inventory { driver: None, gpus: gpus.to_vec() }
    }

    fn health(devices: &Devices, state: HealthState, reason: &str) -> Health {
        let mut health = Health { state, reason: reason.into() };
        devices.degrade(&mut health);
        health
    }

    #[test]
    fn a_device_is_left_alone_twice_as_long_each_time_and_starts_anew_after_a_good_while() {
        let mut devices = Devices::new(SKIP);
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            devices.blame("bus:0".into(), "x".into(), now);
            let wait = devices.bad["bus:0"].wait;
            assert!(!devices.give_chances(now + wait / 2));
            assert_eq!(devices.skipped(), ["bus:0"]);
            now += wait;
            assert!(devices.give_chances(now) && devices.skipped().is_empty());
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        devices.blame("bus:0".into(), "x".into(), now + FORGIVEN);
        assert_eq!(devices.bad["bus:0"].wait, SKIP);
    }

    #[test]
    fn each_device_that_is_left_alone_is_named_once_with_what_happened_to_it() {
        let mut devices = Devices::new(SKIP);
        devices.complete(&mut inventory(&[gpu(0, None), gpu(1, None), gpu(2, None)]));
        devices.blame(
            "index-0".into(),
            "a driver call on it did not return within 3s".into(),
            Instant::now(),
        );
        devices.blame(
            "bus:1".into(),
            "the process that read it was ended by signal 6".into(),
            Instant::now(),
        );
        let expected = "GPU bus:0 is left alone for 1m: a driver call on it did not return within 3s; GPU bus:1 is \
                        left alone for 1m: the process that read it was ended by signal 6";
        assert_eq!(
            health(&devices, HealthState::Up, ""),
            Health { state: HealthState::Degraded, reason: expected.into() }
        );
        let both = health(&devices, HealthState::Degraded, "bus:2: no power");
        assert_eq!(both.reason, format!("{expected}; bus:2: no power"));
        assert_eq!(health(&devices, HealthState::Down, "no driver").reason, "no driver");
        assert_eq!(devices.by_index(), ["bus:0", "bus:1", "bus:2"]);
        // Whether the process lists what it leaves alone or not.
        for gpus in [vec![gpu(2, None)], vec![gpu(0, Some("?")), gpu(1, Some("?")), gpu(2, None)]] {
            let mut inventory = inventory(&gpus);
            devices.complete(&mut inventory);
            let downs: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.down.as_deref()).collect();
            assert_eq!(downs.len(), 3);
            assert!(downs[0].unwrap().ends_with("did not return within 3s"), "{downs:?}");
            assert!(downs[1].unwrap().ends_with("signal 6") && downs[2].is_none(), "{downs:?}");
        }
    }

    #[test]
    fn a_monitor_that_is_left_alone_is_not_its_gpu() {
        let mut devices = Devices::new(SKIP);
        devices.complete(&mut inventory(&[gpu(0, None)]));
        devices.blame("cupti bus:0".into(), "x".into(), Instant::now());
        devices.blame("cupti".into(), "y".into(), Instant::now());
        let reason = health(&devices, HealthState::Up, "").reason;
        assert_eq!(
            reason,
            "PM sampling is left alone for 1m: y; PM sampling of GPU bus:0 is left alone for 1m: x"
        );
        assert_eq!(devices.skipped(), ["cupti", "cupti bus:0"]);
        let mut listed = inventory(&[gpu(0, None)]);
        devices.complete(&mut listed);
        assert_eq!(listed.gpus, [gpu(0, None)], "the GPU is read on");
    }

    #[test]
    fn one_that_only_the_kernel_module_names_has_its_reason_all_the_same() {
        let mut devices = Devices::new(SKIP);
        devices.blame(
            "bus:0".into(),
            "the process that read it was ended by signal 11".into(),
            Instant::now(),
        );
        let mut inventory = inventory(&[gpu(0, Some("not to be touched"))]);
        devices.complete(&mut inventory);
        assert!(inventory.gpus[0].down.as_deref().unwrap().contains("signal 11"));
    }
}
