//! One device's performance monitor: asked for, sampled, given back, asked for again.

use std::ffi::CString;
use std::rc::Rc;

use warpmeter_core::fact::Discard;
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::{MonoNs, SECOND};

use super::fault::Fault;
use super::plan::{self, Quantity};
use super::samples::{Counted, Raw, Samples};
use super::sys::{Host, Library, Sampling};
use super::{DeviceNs, same_place};
use crate::clock;
use crate::sieve::Sieve;

/// The first wait after a refusal; doubled each time.
const FIRST_WAIT: u64 = SECOND;
/// The longest.
const LAST_WAIT: u64 = 300 * SECOND;
/// After so long without a fault the next wait is the first again.
const FORGIVEN: u64 = 60 * SECOND;
/// More batches in one round than any buffer holds.
const BATCHES: usize = 64;
/// PCIe: far above 16 lanes of generation 7, in bytes in a sample of at most a tenth of a second.
const PCIE_LIMIT: f64 = 1e11;
/// Memory: far above any, in bytes in a sample.
const DRAM_LIMIT: f64 = 1e13;
/// Counters round: more than the peak by more than this, in thousandths, cannot be.
const ROUNDING: u128 = 5;

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    wait: u64,
    until: MonoNs,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { wait: FIRST_WAIT, until: MonoNs(0) }
    }
}

impl Backoff {
    /// Whether it is time.
    pub(super) fn is_due(&self, now: MonoNs) -> bool {
        now >= self.until
    }

    /// It was in vain.
    pub(super) fn refused(&mut self, now: MonoNs) {
        self.until = now.plus(self.wait);
        self.wait = self.wait.saturating_mul(2).min(LAST_WAIT);
    }

    /// It was in vain, and will be for long.
    fn refused_for_long(&mut self, now: MonoNs) {
        self.wait = LAST_WAIT;
        self.refused(now);
    }
}

/// What bounds a device's memory traffic, from NVML: two transfers a cycle over the whole bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peak {
    /// The highest clock of the memory, in MHz.
    pub(crate) clock_mhz: u32,
    /// The width of its bus.
    pub(crate) bits: u32,
}

impl Peak {
    /// Which share of it so many bytes in so many nanoseconds are; nothing if they cannot be.
    fn share(self, bytes: u64, nanos: u64, sieve: &mut Sieve) -> Option<Ppb> {
        // 2 × MHz × bits ÷ 8 are bytes in a microsecond: MHz × bits × ns is 4000 times the most bytes.
        let part = u128::from(bytes) * 4000;
        let whole = u128::from(self.clock_mhz) * u128::from(self.bits) * u128::from(nanos);
        if part * 1000 > whole * (1000 + ROUNDING) {
            sieve.discard(Discard::Range);
            return None;
        }
        Ppb::of_whole(part, whole)
    }
}

/// A monitor in use.
#[derive(Debug)]
struct Use {
    sampling: Sampling,
    quantities: Vec<Quantity>,
    /// What the chip does not give.
    lacks: Option<String>,
    since: MonoNs,
}

/// One device's monitor.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    in_use: Option<Use>,
    backoff: Backoff,
    /// Why it is not.
    why: String,
}

impl Monitor {
    /// Takes what was sampled into `samples`; starts first, if it is time. Gives what is missing: why there is nothing, or
    /// what the chip does not give.
    pub(super) fn collect(
        &mut self,
        library: &Rc<Library>,
        pci_bus_id: &str,
        period: u64,
        peak: Option<Peak>,
        samples: &mut Samples,
        sieve: &mut Sieve,
    ) -> Option<String> {
        let now = clock::now();
        let outcome = match self.in_use.as_mut() {
            Some(used) => {
                if now.since(used.since) > FORGIVEN {
                    self.backoff = Backoff::default();
                }
                used.decode(peak, samples, sieve)
            }
            None if !self.backoff.is_due(now) => return Some(self.why.clone()),
            None => start(library, pci_bus_id, period).map(|used| {
                samples.gap();
                self.in_use = Some(used);
            }),
        };
        let Err(refusal) = outcome else { return self.in_use.as_ref().and_then(Use::lacks) };
        // Whatever it was: the monitor is let go of at once.
        self.in_use = None;
        samples.gap();
        let now = clock::now();
        if refusal.lasts() {
            self.backoff.refused_for_long(now);
        } else {
            self.backoff.refused(now);
        }
        self.why = refusal.to_string();
        Some(self.why.clone())
    }
}

/// Why a monitor is not to be had.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Fault(Fault),
    #[error(
        "CUDA does not show the device to this process: leave CUDA_VISIBLE_DEVICES unset; beside GPUs in MIG mode it \
         may show those only"
    )]
    Hidden,
    /// Others found that all later decodings then fail in the same way, until the monitor is started anew.
    #[error(
        "its buffer overflowed, and some of what was sampled is lost: it is started anew by itself; should that come \
         again and again, give the daemon more of a CPU"
    )]
    Overflow,
    #[error(
        "{chip} gives nothing that is wanted: {lacks}; name a newer CUPTI in [cupti] libraries, or leave the device out of \
         [cupti] devices"
    )]
    Nothing { chip: String, lacks: String },
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Refusal {
    /// Whether it will be the same for as long as the machine is set up as it is.
    const fn lasts(&self) -> bool {
        match self {
            Self::Fault(fault) => fault.lasts(),
            Self::Hidden | Self::Nothing { .. } => true,
            Self::Overflow => false,
        }
    }
}

fn start(library: &Rc<Library>, pci_bus_id: &str, period: u64) -> Result<Use, Refusal> {
    let device = library.devices().iter().position(|place| same_place(place, pci_bus_id));
    let device = device.ok_or(Refusal::Hidden)?;
    let chip = library.chip(device)?;
    let name = CString::new(chip.as_str()).unwrap_or_default();
    let available = library.availability(device)?;
    let host = || Host::new(library, &name, &available);
    let choice = plan::choose(|metrics| host()?.configure(metrics))?;
    let lacks = choice.lacks();
    if choice.metrics.is_empty() {
        return Err(Refusal::Nothing { chip, lacks: lacks.unwrap_or_default() });
    }
    let setup = plan::setup(&chip, &choice, period);
    let sampling = Sampling::start(library, device, host()?, &setup)?;
    tracing::info!(%pci_bus_id, %chip, metrics = ?choice.metrics, "the performance monitor is sampled");
    let lacks = lacks.map(|lacks| format!("{chip} does not give {lacks}"));
    Ok(Use { sampling, quantities: choice.quantities, lacks, since: clock::now() })
}

impl Use {
    fn lacks(&self) -> Option<String> {
        self.lacks.clone()
    }

    /// Takes in all that was sampled. An overflow is an error after that.
    fn decode(
        &mut self,
        peak: Option<Peak>,
        samples: &mut Samples,
        sieve: &mut Sieve,
    ) -> Result<(), Refusal> {
        let mut overflow = false;
        for _ in 0..BATCHES {
            let mut raw: Vec<Raw> = Vec::new();
            let quantities = &self.quantities;
            let mut each = |start: DeviceNs, end: DeviceNs, values: &[f64]| {
                if end > start {
                    raw.push(Raw {
                        start,
                        end,
                        counted: counted(quantities, values, end - start, peak, sieve),
                    });
                } else {
                    sieve.discard(Discard::Clock);
                }
            };
            let decoded = self.sampling.decode(&mut each)?;
            samples.take_in(&raw, clock::now(), sieve);
            overflow |= decoded.overflow;
            if !decoded.more {
                break;
            }
        }
        if overflow {
            sieve.discard(Discard::Overflow);
            return Err(Refusal::Overflow);
        }
        Ok(())
    }
}

/// What the values of one sample of `nanos` mean.
fn counted(
    quantities: &[Quantity],
    values: &[f64],
    nanos: u64,
    peak: Option<Peak>,
    sieve: &mut Sieve,
) -> Counted {
    let of = |quantity| {
        let at = quantities.iter().position(|known| *known == quantity)?;
        values.get(at).copied()
    };
    let mut ratio = |quantity| of(quantity).and_then(|percent| sieve.ratio(percent));
    let [sm_active, sm_occupied, tensor] =
        [Quantity::SmActive, Quantity::SmOccupied, Quantity::Tensor].map(&mut ratio);
    let shares = ratio(Quantity::DramRead).zip(ratio(Quantity::DramWrite));
    let mut bytes = |quantity, most| of(quantity).and_then(|bytes| sieve.amount(bytes, 1.0, most));
    let volume =
        bytes(Quantity::DramBytesRead, DRAM_LIMIT).zip(bytes(Quantity::DramBytesWritten, DRAM_LIMIT));
    let pcie = bytes(Quantity::PcieRead, PCIE_LIMIT).zip(bytes(Quantity::PcieWritten, PCIE_LIMIT));
    let dram = match (shares, volume) {
        (Some((read, written)), _) => both(read, written, sieve),
        (None, Some((read, written))) => peak.and_then(|peak| peak.share(read + written, nanos, sieve)),
        (None, None) => None,
    };
    Counted { sm_active, sm_occupied, tensor, dram, pcie }
}

/// Two shares of the same whole together; nothing if they are more than it.
fn both(one: Ppb, other: Ppb, sieve: &mut Sieve) -> Option<Ppb> {
    let sum = u128::from(one.parts()) + u128::from(other.parts());
    let whole = u128::from(Ppb::ONE.parts());
    if sum * 1000 > whole * (1000 + ROUNDING) {
        sieve.discard(Discard::Range);
        return None;
    }
    Ppb::of_whole(sum, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        let mut now = MonoNs(0);
        let mut waits = Vec::new();
        for _ in 0..11 {
            assert!(backoff.is_due(now));
            backoff.refused(now);
            let wait = backoff.until.since(now);
            assert!(!backoff.is_due(now.plus(wait - 1)));
            now = now.plus(wait);
            waits.push(wait / SECOND);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let mut backoff = Backoff::default();
        backoff.refused_for_long(now);
        assert_eq!(backoff.until.since(now), LAST_WAIT);
    }

    #[test]
    fn what_comes_of_the_machines_setup_is_tried_again_seldom_and_all_else_soon() {
        let nothing = Refusal::Nothing { chip: String::new(), lacks: String::new() };
        assert!(Refusal::Hidden.lasts() && nothing.lasts() && Refusal::Fault(Fault(35)).lasts());
        assert!(!Refusal::Overflow.lasts() && !Refusal::Fault(Fault(26)).lasts());
    }

    #[test]
    fn bytes_are_a_share_of_two_transfers_a_cycle_over_the_bus() {
        // T4: 5 GHz and 256 bits are 320 GB/s.
        let peak = Peak { clock_mhz: 5000, bits: 256 };
        let mut sieve = Sieve::default();
        assert_eq!(peak.share(160_000_000, 1_000_000, &mut sieve), Ppb::percent(50));
        assert_eq!(peak.share(320_000_000, 1_000_000, &mut sieve), Some(Ppb::ONE));
        assert_eq!(sieve.drain().len(), 0);
        assert_eq!(peak.share(325_000_000, 1_000_000, &mut sieve), None, "more than there can be");
        assert_eq!(sieve.drain().len(), 1);
    }

    #[test]
    fn reads_and_writes_are_one_share_and_each_value_stands_for_itself() {
        use Quantity::{DramRead, DramWrite, PcieRead, PcieWritten, SmActive, SmOccupied};
        let quantities = [SmActive, SmOccupied, DramRead, DramWrite, PcieRead, PcieWritten];
        let mut sieve = Sieve::default();
        let values = [50.0, f64::NAN, 30.0, 10.5, 1000.0, 1.0];
        let counted = counted(&quantities, &values, 1, None, &mut sieve);
        assert_eq!((counted.sm_active, counted.sm_occupied, counted.tensor), (Ppb::percent(50), None, None));
        assert_eq!((counted.dram, counted.pcie), (Ppb::new(405_000_000), Some((1000, 1))));
        assert_eq!(sieve.drain().len(), 1);
        assert_eq!(both(Ppb::ONE, Ppb::ZERO, &mut sieve), Some(Ppb::ONE));
        assert_eq!(both(Ppb::ONE, Ppb::new(4_000_000).unwrap(), &mut sieve), Some(Ppb::ONE), "rounding");
        assert_eq!(both(Ppb::ONE, Ppb::new(6_000_000).unwrap(), &mut sieve), None);
    }
}
