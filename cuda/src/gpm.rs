//! Averages from GPM: two samples of a device's counters, a period apart.

use warpmeter_core::fact::{Discard, Level, Pipes, Volume};

use crate::nvml::Fault;
use crate::nvml::sys::{Device, GpmBuffer, GpmSample, Values};
use crate::sieve::Sieve;

/// Percent of time with a kernel of whatever kind executing.
const ENGINE: u32 = 1;
/// Percent of SM cycles with a warp resident.
const SM_ACTIVE: u32 = 2;
/// Percent of the warps that could be resident.
const SM_OCCUPIED: u32 = 3;
/// Percent of time with integer operations under way.
const INTEGER: u32 = 4;
/// Percent of time with a tensor pipe active.
const TENSOR: u32 = 5;
/// Percent of the DRAM's peak bandwidth.
const DRAM: u32 = 10;
/// Percent of time with floating-point operations of a width under way, beside those of tensor pipes.
const FP64: u32 = 11;
const FP32: u32 = 12;
const FP16: u32 = 13;
/// MiB/s from this GPU, and to it, over PCIe.
const PCIE_TRANSMIT: u32 = 20;
const PCIE_RECEIVE: u32 = 21;
/// MiB/s over all links. Received comes first here.
const NVLINK_RECEIVE: u32 = 60;
const NVLINK_TRANSMIT: u32 = 61;
/// SM cycles, and those of them with a warp resident. The bindings have no name for these.
const CYCLES_ELAPSED: u32 = 248;
const CYCLES_ACTIVE: u32 = 249;

/// What a compute device is asked.
pub(crate) const COMPUTE: [u32; 11] =
    [ENGINE, SM_ACTIVE, SM_OCCUPIED, INTEGER, TENSOR, DRAM, FP64, FP32, FP16, CYCLES_ELAPSED, CYCLES_ACTIVE];
/// What a board is asked.
pub(crate) const LINKS: [u32; 4] = [PCIE_TRANSMIT, PCIE_RECEIVE, NVLINK_RECEIVE, NVLINK_TRANSMIT];

/// Cycles since the machine started, of all SMs together: 200 at 3 GHz for five months, and what fits in 63 bits.
const CYCLES_LIMIT: f64 = 9e18;
/// PCIe: far above 16 lanes of generation 7, in MiB/s.
const PCIE_LIMIT: f64 = 1e6;
/// NVLink: far above all links of a GPU, in MiB/s.
const NVLINK_LIMIT: f64 = 1e7;

/// What the driver gives for the two cycle counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cycles {
    /// The count since the machine started.
    Total,
    /// The count between the two samples.
    Between,
}

fn value(values: &Values, id: u32) -> Option<f64> {
    values.iter().find(|(of, _)| *of == id).and_then(|(_, value)| value.ok())
}

/// Averages of one compute device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) engine: Option<Level>,
    pub(crate) sm_active: Option<Level>,
    pub(crate) sm_occupied: Option<Level>,
    pub(crate) tensor: Option<Level>,
    pub(crate) dram: Option<Level>,
    pub(crate) pipes: Pipes,
}

/// Traffic of one board.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) pcie_receive: Option<Volume>,
    pub(crate) pcie_transmit: Option<Volume>,
    pub(crate) nvlink_receive: Option<Volume>,
    pub(crate) nvlink_transmit: Option<Volume>,
}

/// The totals of the cycle counters, if both are there.
fn totals(values: &Values, sieve: &mut Sieve) -> Option<(u64, u64)> {
    let active = sieve.amount(value(values, CYCLES_ACTIVE)?, 1.0, CYCLES_LIMIT)?;
    let elapsed = sieve.amount(value(values, CYCLES_ELAPSED)?, 1.0, CYCLES_LIMIT)?;
    Some((active, elapsed))
}

/// Where SM activity is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SmSource {
    /// The percentage.
    Percent,
    /// Cycles of this interval: active, elapsed. None if they are not known for it; the percentage does not stand
    /// in, since an authority is not exchanged for one interval.
    Cycles(Option<(u64, u64)>),
}

/// Averages from one answer.
fn levels(values: &Values, sm: SmSource, sieve: &mut Sieve) -> Levels {
    let mut ratio = |id| value(values, id).and_then(|percent| sieve.ratio(percent)).map(Level::Ratio);
    let [engine, sm_occupied, tensor, dram] = [ENGINE, SM_OCCUPIED, TENSOR, DRAM].map(&mut ratio);
    let [integer, fp64, fp32, fp16] = [INTEGER, FP64, FP32, FP16].map(&mut ratio);
    let sm_active = match sm {
        SmSource::Percent => ratio(SM_ACTIVE),
        SmSource::Cycles(None | Some((_, 0))) => None,
        SmSource::Cycles(Some((active, elapsed))) if active > elapsed => {
            sieve.discard(Discard::Range);
            None
        }
        SmSource::Cycles(Some((active, elapsed))) => Some(Level::Cycles { active, elapsed }),
    };
    let pipes = Pipes { integer, fp64, fp32, fp16 };
    Levels { engine, sm_active, sm_occupied, tensor, dram, pipes }
}

/// Traffic from one answer.
fn links(values: &Values, sieve: &mut Sieve) -> Links {
    let mut rate = |id, most| sieve.amount(value(values, id)?, 1_048_576.0, most).map(Volume::PerSecond);
    Links {
        pcie_receive: rate(PCIE_RECEIVE, PCIE_LIMIT),
        pcie_transmit: rate(PCIE_TRANSMIT, PCIE_LIMIT),
        nvlink_receive: rate(NVLINK_RECEIVE, NVLINK_LIMIT),
        nvlink_transmit: rate(NVLINK_TRANSMIT, NVLINK_LIMIT),
    }
}

/// What a counter means, from its value between samples 200 ms and 100 ms apart that end at the same sample.
///
/// A total is the same in both. The header says "since reboot" and takes two samples; so this is asked, not believed.
fn cycles_kind(long: f64, short: f64) -> Option<Cycles> {
    if !(long.is_finite() && short.is_finite() && short > 0.0) {
        return None;
    }
    if (long - short).abs() <= f64::EPSILON * long {
        return Some(Cycles::Total);
    }
    (1.5..=3.0).contains(&(long / short)).then_some(Cycles::Between)
}

/// Which quantities a device's GPM gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gives {
    pub(crate) engine: bool,
    pub(crate) sm_active: bool,
    pub(crate) sm_cycles: bool,
}

/// How a device's counters are sampled.
#[derive(Debug, Clone)]
pub(crate) enum Sampler {
    /// By its own handle: a whole GPU, or one of several compute instances.
    Own(Device),
    /// Through its GPU, by the GPU instance id. Cheaper, and all that some drivers offer.
    Instance(Device, u32),
}

impl Sampler {
    fn device(&self) -> &Device {
        match self {
            Self::Own(device) | Self::Instance(device, _) => device,
        }
    }

    fn sample(&self, into: &mut GpmSample) -> Result<(), Fault> {
        match self {
            Self::Own(device) => device.gpm_sample(into),
            Self::Instance(device, id) => device.gpm_sample_instance(*id, into),
        }
    }
}

/// Two samples of one device that take turns.
#[derive(Debug)]
pub(crate) struct Pair {
    sampler: Sampler,
    ids: Vec<u32>,
    cycles: Option<Cycles>,
    /// The start of the interval, if `based`.
    earlier: GpmSample,
    later: GpmSample,
    based: bool,
    fresh: bool,
    /// Cycle totals at `earlier`.
    totals: Option<(u64, u64)>,
}

impl Pair {
    /// Allocates two samples; takes none yet.
    pub(crate) fn new(sampler: Sampler, ids: &[u32]) -> Result<Self, Fault> {
        let (earlier, later) = (sampler.device().gpm_alloc()?, sampler.device().gpm_alloc()?);
        Ok(Self {
            sampler,
            ids: ids.to_vec(),
            cycles: None,
            earlier,
            later,
            based: false,
            fresh: false,
            totals: None,
        })
    }

    /// Samples the counters now. After a fault there is no start for the next interval either.
    pub(crate) fn sample(&mut self) -> Result<(), Fault> {
        let outcome = self.sampler.sample(&mut self.later);
        self.fresh = outcome.is_ok();
        outcome
    }

    /// The averages between the last two samples; the newer becomes the start of the next interval.
    pub(crate) fn measure(
        &mut self,
        buffer: &mut GpmBuffer,
        sieve: &mut Sieve,
    ) -> Result<(Levels, Links), Fault> {
        let outcome = self.values(buffer);
        self.advance();
        let Some(values) = outcome? else { return Ok((Levels::default(), Links::default())) };
        let now = match self.cycles {
            Some(_) => totals(&values, sieve),
            None => None,
        };
        let sm = match self.cycles {
            None => SmSource::Percent,
            Some(Cycles::Between) => SmSource::Cycles(now),
            Some(Cycles::Total) => SmSource::Cycles(now.zip(self.totals).and_then(|(now, then)| {
                // A counter that went back was reset: its interval is unknown.
                Some((now.0.checked_sub(then.0)?, now.1.checked_sub(then.1)?))
            })),
        };
        self.totals = now;
        Ok((levels(&values, sm, sieve), links(&values, sieve)))
    }

    /// Makes the newest sample the start of the next interval, and gives no averages.
    pub(crate) fn start(&mut self, buffer: &mut GpmBuffer) {
        let values = self.values(buffer).ok().flatten();
        self.totals = values.and_then(|values| totals(&values, &mut Sieve::default()));
        self.advance();
    }

    fn values(&mut self, buffer: &mut GpmBuffer) -> Result<Option<Values>, Fault> {
        if !(self.based && self.fresh) {
            self.totals = None;
            return Ok(None);
        }
        let values = buffer.measure(&self.earlier, &self.later, &self.ids);
        if values.is_err() {
            self.totals = None;
        }
        values.map(Some)
    }

    fn advance(&mut self) {
        if self.fresh {
            std::mem::swap(&mut self.earlier, &mut self.later);
        }
        self.based = self.fresh;
        self.fresh = false;
    }

    fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Which of the quantities that need an authority it gives.
    pub(crate) fn gives(&self) -> Gives {
        Gives { engine: self.has(ENGINE), sm_active: self.has(SM_ACTIVE), sm_cycles: self.cycles.is_some() }
    }

    /// With a start and a newer sample taken: leaves out the metrics that this driver does not know, each asked on
    /// its own, since one unknown id can fail a whole request. Keeps both samples.
    pub(crate) fn learn(&mut self, buffer: &mut GpmBuffer) {
        let (earlier, later) = (&self.earlier, &self.later);
        if !(self.based && self.fresh) {
            return;
        }
        self.ids.retain(|id| match buffer.measure(earlier, later, &[*id]) {
            Ok(values) => !values.iter().any(|(_, value)| value.is_err_and(Fault::is_unsupported)),
            Err(fault) => !fault.is_unsupported(),
        });
    }

    /// With a start, a newer sample, and one `older` than both: finds out what the cycle counters mean.
    pub(crate) fn learn_cycles(&mut self, older: &GpmSample, buffer: &mut GpmBuffer) -> Option<Cycles> {
        if !(self.based && self.fresh && self.has(CYCLES_ELAPSED) && self.has(CYCLES_ACTIVE)) {
            return None;
        }
        let long = buffer.measure(older, &self.later, &[CYCLES_ELAPSED]).ok()?;
        let short = buffer.measure(&self.earlier, &self.later, &[CYCLES_ELAPSED]).ok()?;
        cycles_kind(value(&long, CYCLES_ELAPSED)?, value(&short, CYCLES_ELAPSED)?)
    }

    /// Takes over what was learnt from another device of the same GPU.
    pub(crate) fn adopt(&mut self, ids: &[u32], cycles: Option<Cycles>) {
        self.ids = ids.to_vec();
        self.cycles = cycles;
        if cycles.is_none() {
            self.ids.retain(|id| *id != CYCLES_ACTIVE && *id != CYCLES_ELAPSED);
        }
    }

    /// The metrics asked for.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// A third sample, of the present.
    pub(crate) fn extra(&self) -> Result<GpmSample, Fault> {
        let mut sample = self.sampler.device().gpm_alloc()?;
        self.sampler.sample(&mut sample)?;
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use warpmeter_core::ratio::Ppb;

    use super::*;

    const NOT_SUPPORTED: Fault = Fault(3);

    fn ratio(percent: u32) -> Option<Level> {
        Ppb::percent(percent).map(Level::Ratio)
    }

    #[test]
    fn a_metric_with_its_own_fault_is_absent_and_the_others_stay() {
        let values = vec![
            (ENGINE, Ok(80.0)),
            (SM_ACTIVE, Ok(60.0)),
            (SM_OCCUPIED, Err(NOT_SUPPORTED)),
            (FP32, Ok(30.0)),
            (FP64, Err(NOT_SUPPORTED)),
            (DRAM, Ok(f64::NAN)),
        ];
        let mut sieve = Sieve::default();
        let levels = levels(&values, SmSource::Percent, &mut sieve);
        assert_eq!((levels.engine, levels.sm_active), (ratio(80), ratio(60)));
        assert_eq!((levels.sm_occupied, levels.tensor, levels.dram), (None, None, None));
        assert_eq!(levels.pipes, Pipes { fp32: ratio(30), ..Pipes::default() });
        assert_eq!(
            sieve.drain(),
            [warpmeter_core::fact::Fact::Discarded { reason: Discard::NotANumber, count: 1 }]
        );
    }

    #[test]
    fn where_cycles_are_the_authority_the_percentage_never_stands_in() {
        let values = vec![(SM_ACTIVE, Ok(60.0))];
        let mut sieve = Sieve::default();
        assert_eq!(levels(&values, SmSource::Cycles(None), &mut sieve).sm_active, None);
        let counted = levels(&values, SmSource::Cycles(Some((30, 40))), &mut sieve).sm_active;
        assert_eq!(counted, Some(Level::Cycles { active: 30, elapsed: 40 }));
        assert_eq!(
            levels(&values, SmSource::Cycles(Some((41, 40))), &mut sieve).sm_active,
            None,
            "more active than there were"
        );
        assert_eq!(levels(&values, SmSource::Cycles(Some((0, 0))), &mut sieve).sm_active, None);
    }

    #[test]
    fn traffic_is_converted_from_mebibytes() {
        let values = vec![(PCIE_RECEIVE, Ok(1.5)), (NVLINK_TRANSMIT, Ok(0.0)), (NVLINK_RECEIVE, Ok(-1.0))];
        let links = links(&values, &mut Sieve::default());
        assert_eq!(links.pcie_receive, Some(Volume::PerSecond(1_572_864)));
        assert_eq!(links.nvlink_transmit, Some(Volume::PerSecond(0)));
        assert_eq!((links.pcie_transmit, links.nvlink_receive), (None, None));
    }

    #[test]
    fn totals_are_told_from_differences() {
        assert_eq!(cycles_kind(8.1e15, 8.1e15), Some(Cycles::Total));
        assert_eq!(cycles_kind(5.8e10, 2.9e10), Some(Cycles::Between));
        assert_eq!(cycles_kind(3.0e10, 2.9e10), None, "neither");
        assert_eq!(cycles_kind(0.0, 0.0), None);
        assert_eq!(cycles_kind(f64::NAN, 1.0), None);
    }
}
