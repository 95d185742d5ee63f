//! Counters by sampling the performance monitor, through CUPTI: for devices without GPM.
//!
//! The monitor of a device has one owner on the whole machine. So nothing here runs unless it is asked for; what
//! another owner, the driver or the hardware refuses is let go of at once, said, and tried again later, less and
//! less often. No CUDA context is ever made: the driver's library is initialised and asked for its devices, no more.
//!
//! `find` looks for the library · `sys` makes the calls · `fault` says what a refusal means · `plan` chooses
//! metrics that fit one pass, and sizes · `monitor` is one device's, from refusal to samples and back · `samples`
//! puts what it counted on this machine's clock, and gives averages over any stretch.

mod fault;
mod find;
mod monitor;
mod plan;
mod samples;
mod sys;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use warpmeter_core::time::{MonoNs, SECOND};

use crate::clock;
use crate::sieve::Sieve;

pub use find::{DEFAULT_LIBRARIES as DEFAULT_CUPTI_LIBRARIES, find_cupti};
pub(crate) use monitor::Peak;
use monitor::{Backoff, Monitor};
pub(crate) use samples::Samples;
use sys::Library;

/// The longest time between two looks at the monitors' buffers.
pub(crate) const DRAIN: u64 = 5 * SECOND;

/// A generation of GPUs whose performance monitor can be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// T4, RTX 20.
    Turing,
    /// A100, A30, A10, RTX 30.
    Ampere,
    /// L4, L40, RTX 40.
    Ada,
    /// H100, H200: these have GPM.
    Hopper,
    /// B200, RTX 50.
    Blackwell,
}

impl Architecture {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Turing, Self::Ampere, Self::Ada, Self::Hopper, Self::Blackwell];

    /// Those whose devices have no GPM.
    pub const WITHOUT_GPM: [Self; 3] = [Self::Turing, Self::Ampere, Self::Ada];

    /// Its name, as configurations have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turing => "turing",
            Self::Ampere => "ampere",
            Self::Ada => "ada",
            Self::Hopper => "hopper",
            Self::Blackwell => "blackwell",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// The one with this number in NVML.
    pub(crate) const fn numbered(number: u32) -> Option<Self> {
        match number {
            6 => Some(Self::Turing),
            7 => Some(Self::Ampere),
            8 => Some(Self::Ada),
            9 => Some(Self::Hopper),
            10 => Some(Self::Blackwell),
            _ => None,
        }
    }
}

/// What is wanted of the performance monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmSampling {
    /// Where to look for CUPTI's library: absolute paths of directories or files, in order of preference. Empty
    /// stands for [`DEFAULT_CUPTI_LIBRARIES`].
    pub libraries: Vec<PathBuf>,
    /// Generations whose devices are sampled.
    pub architectures: Vec<Architecture>,
    /// Devices that are sampled, by UUID or PCI bus id; empty: all of those generations.
    pub devices: Vec<String>,
}

impl PmSampling {
    /// Whether a device of this generation, of this name, is to be sampled.
    pub(crate) fn wants(&self, architecture: u32, uuid: &str, pci_bus_id: &str) -> bool {
        let named = |name: &String| name == uuid || same_place(name, pci_bus_id);
        Architecture::numbered(architecture).is_some_and(|it| self.architectures.contains(&it))
            && (self.devices.is_empty() || self.devices.iter().any(named))
    }
}

/// Whether two PCI bus ids mean the same place: domains are written with four digits or eight.
fn same_place(one: &str, other: &str) -> bool {
    let parts = |id: &str| {
        let mut parts = id.split([':', '.']).map(|part| u32::from_str_radix(part, 16).ok());
        let place = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(place)
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}

/// Under what name calls for a device's monitor are announced.
pub(crate) fn name(pci_bus_id: &str) -> String {
    format!("{LIBRARY} {pci_bus_id}")
}

/// Under what name the opening of the library is announced.
pub(crate) const LIBRARY: &str = "cupti";

/// The library, as far as it could be had.
#[derive(Debug, Default)]
struct Slot {
    /// Kept from when it was to be started first, whatever came of that: there is one CUPTI in a process.
    library: Option<Rc<Library>>,
    started: bool,
    /// When it is opened or started next.
    backoff: Backoff,
    /// Why it failed, if it did.
    why: Option<String>,
}

/// The performance monitors of all devices that are sampled.
#[derive(Debug)]
pub(crate) struct Monitors {
    wanted: Option<PmSampling>,
    /// The driver's own libraries are here.
    driver: PathBuf,
    /// Nanoseconds between rounds.
    period: u64,
    slot: Slot,
    by_device: BTreeMap<String, Monitor>,
}

impl Monitors {
    /// None of them in use yet. `nvml` is the file of the driver's library that is open.
    pub(crate) fn new(wanted: Option<PmSampling>, nvml: &Path, period: u64) -> Self {
        Self {
            wanted,
            driver: nvml.parent().map(Path::to_owned).unwrap_or_default(),
            period,
            slot: Slot::default(),
            by_device: BTreeMap::new(),
        }
    }

    /// Whether the library is to be opened now: that is announced apart from any device.
    pub(crate) fn opens_now(&self) -> bool {
        self.wanted.is_some() && !self.slot.started && self.slot.backoff.is_due(clock::now())
    }

    /// Opens the library and starts it, or takes note of why that fails.
    pub(crate) fn open(&mut self) {
        let Some(wanted) = &self.wanted else { return };
        let Slot { library, started, backoff, why } = &mut self.slot;
        if *started {
            return;
        }
        let opened = match library {
            Some(library) => Ok(&*library),
            None => find::open(&wanted.libraries, &self.driver).map(|opened| &*library.insert(opened)),
        };
        match opened.and_then(|library| library.start().map_err(|error| error.to_string())) {
            Ok(()) => (*started, *why) = (true, None),
            Err(error) => {
                backoff.refused(clock::now());
                *why = Some(error);
            }
        }
    }

    /// Whether the driver's CUDA library was started, or that was tried: it cannot be started again for another driver
    /// in the same process.
    pub(crate) const fn used(&self) -> bool {
        self.slot.library.is_some()
    }

    /// Takes what a device's monitor has sampled into `samples`. Gives what is missing, in words.
    pub(crate) fn collect(
        &mut self,
        pci_bus_id: &str,
        peak: Option<Peak>,
        samples: &mut Samples,
        sieve: &mut Sieve,
    ) -> Option<String> {
        let Slot { library: Some(library), started: true, .. } = &self.slot else {
            let why = self.slot.why.clone();
            return Some(why.unwrap_or_else(|| "the library is not open yet".to_owned()));
        };
        let period = self.period.min(DRAIN);
        let monitor = self.by_device.entry(pci_bus_id.to_owned()).or_default();
        monitor.collect(library, pci_bus_id, period, peak, samples, sieve)
    }

    /// Lets go of a device's monitor.
    pub(crate) fn let_go(&mut self, pci_bus_id: &str) {
        self.by_device.remove(pci_bus_id);
    }

    /// Whether a device's monitor may be held.
    pub(crate) fn holds(&self, pci_bus_id: &str) -> bool {
        self.by_device.contains_key(pci_bus_id)
    }

    /// The devices whose monitors may be held.
    pub(crate) fn held(&self) -> Vec<String> {
        self.by_device.keys().cloned().collect()
    }
}

/// The time of a sample on the device's own clock, in nanoseconds.
type DeviceNs = u64;

/// When the present was, for both clocks: `CLOCK_MONOTONIC`.
type Now = MonoNs;

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(architectures: &[Architecture], devices: &[&str]) -> PmSampling {
        PmSampling {
            libraries: Vec::new(),
            architectures: architectures.to_vec(),
            devices: devices.iter().map(|&device| device.to_owned()).collect(),
        }
    }

    #[test]
    fn a_device_is_sampled_if_its_generation_and_its_name_are_wanted() {
        let place = "00000000:17:00.0";
        let all = wanted(&Architecture::WITHOUT_GPM, &[]);
        assert!(all.wants(7, "GPU-1", place) && all.wants(6, "GPU-1", place));
        assert!(!all.wants(9, "GPU-1", place), "Hopper only on request");
        assert!(!all.wants(5, "GPU-1", place), "Volta has no such sampling");
        assert!(wanted(&[Architecture::Hopper], &[]).wants(9, "GPU-1", place));
        for name in ["GPU-1", place, "0000:17:00.0", "0:17:0.0"] {
            assert!(wanted(&[Architecture::Ampere], &[name]).wants(7, "GPU-1", place), "{name}");
        }
        for name in ["GPU-2", "0000:18:00.0", "0001:17:00.0", "17:00.0", "0000:17:00.0.0", ""] {
            assert!(!wanted(&[Architecture::Ampere], &[name]).wants(7, "GPU-1", place), "{name}");
        }
    }

    #[test]
    fn every_generation_has_its_own_name() {
        for architecture in Architecture::ALL {
            assert_eq!(Architecture::named(architecture.name()), Some(architecture));
        }
        assert_eq!(Architecture::named("volta"), None);
    }
}
