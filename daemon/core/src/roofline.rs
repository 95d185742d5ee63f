//! What bounds the work on a device while it runs: one of the two roofs of the roofline model, or neither.
//!
//! The roofs are the bandwidth of the device's memory (DRAM) and the rate of the SMs' busiest pipe. How near the work
//! came to each is what the counters say as a share of the peak, taken of the time in which the device was active.
//! `docs/roofline.md` argues the thresholds and says what a mean over a window cannot tell.

use std::ops::Add;

use crate::ratio::Ppb;

/// From this share of the active time on, in percent, the work is at a roof: that which DRAM and the busiest pipe would
/// take at their peaks, one after the other. Nsight Compute takes below 60 % of both peaks for a sign of latencies.
pub const AT_A_ROOF: u64 = 60;

/// Below this share, in percent, next to nothing is moved or computed: more than six times below a roof.
pub const INTENSE: u64 = 10;

/// A device that was active for less than this share of the time, in percent, says too little: traffic of copies, which
/// run beside the engine, would be taken for that of its kernels.
pub const LONG_ENOUGH: u64 = 10;

/// What bounds work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// It is at a roof, and DRAM's is the nearer one.
    Bandwidth,
    /// It is at a roof, and that of the SMs' pipes is the nearer one.
    Compute,
    /// It is at neither: latencies keep it from both.
    Latency,
    /// It is far from both.
    LowIntensity,
    /// Nobody can say.
    Unknown,
}

impl Bound {
    /// Every bound.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Bandwidth, Self::Compute, Self::Latency, Self::LowIntensity, Self::Unknown];
    /// How many there are.
    pub const COUNT: usize = 5;

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The bound as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth_bound",
            Self::Compute => "compute_bound",
            Self::Latency => "latency_bound",
            Self::LowIntensity => "low_intensity",
            Self::Unknown => "unknown",
        }
    }
}

/// Why nobody can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blind {
    /// Others ran on the device too, or may have: its counters do not tell whose work they counted.
    Shared,
    /// The device was active for too short a time.
    Brief,
    /// A counter is missing without which the rest says nothing.
    Uncounted,
}

/// What a device's counters say of a stretch: shares of peaks × time, in nanoseconds. None is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loads {
    /// The stretch.
    pub whole: u64,
    /// The engine: the time in which the device was active.
    pub engine: u64,
    /// SMs with a warp.
    pub sm_active: Option<u64>,
    /// Warps resident.
    pub sm_occupied: Option<u64>,
    /// Bandwidth of DRAM.
    pub dram: Option<u64>,
    /// Tensor pipes.
    pub tensor: Option<u64>,
    /// The busiest of the SMs' other pipes.
    pub vector: Option<u64>,
}

impl Add for Loads {
    type Output = Self;

    /// Both stretches together. What one does not count is not counted.
    fn add(self, other: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            whole: self.whole.saturating_add(other.whole),
            engine: self.engine.saturating_add(other.engine),
            sm_active: both(self.sm_active, other.sm_active),
            sm_occupied: both(self.sm_occupied, other.sm_occupied),
            dram: both(self.dram, other.dram),
            tensor: both(self.tensor, other.tensor),
            vector: both(self.vector, other.vector),
        }
    }
}

impl Loads {
    /// A load as a share of its peak while the device was active; none without either.
    pub fn while_active(&self, load: Option<u64>) -> Option<Ppb> {
        Ppb::of_whole(load?.into(), self.engine.into())
    }

    /// What bounds work that had the device to itself, or why nobody can say.
    ///
    /// A roof that a counter shows to be reached is reached, whatever is not counted. That no roof is, takes all of
    /// them.
    ///
    /// # Errors
    ///
    /// [`Blind::Brief`] and [`Blind::Uncounted`].
    pub fn bound(&self) -> Result<Bound, Blind> {
        if !at_least(LONG_ENOUGH, self.engine.into(), self.whole) {
            return Err(Blind::Brief);
        }
        let pipes = self.tensor.max(self.vector);
        let nearer = if self.dram >= pipes { Bound::Bandwidth } else { Bound::Compute };
        if let (Some(dram), Some(tensor), Some(vector)) = (self.dram, self.tensor, self.vector) {
            let both = u128::from(dram) + u128::from(tensor.max(vector));
            return Ok(match both {
                both if at_least(AT_A_ROOF, both, self.engine) => nearer,
                both if at_least(INTENSE, both, self.engine) => Bound::Latency,
                _ => Bound::LowIntensity,
            });
        }
        let nearest = self.dram.max(pipes).ok_or(Blind::Uncounted)?;
        if at_least(AT_A_ROOF, nearest.into(), self.engine) { Ok(nearer) } else { Err(Blind::Uncounted) }
    }
}

/// Whether `part` is at least so many percent of `whole`.
fn at_least(percent: u64, part: u128, whole: u64) -> bool {
    part * 100 >= u128::from(percent) * u128::from(whole)
}

/// What bounded an owner's work in a stretch, and what that rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roofline {
    /// The device's counters.
    pub loads: Loads,
    /// The bound, or why it is unknown.
    pub found: Result<Bound, Blind>,
}

impl Roofline {
    /// Of a device whose counters say `loads`; `alone` is whether all its work is known to be one owner's.
    pub fn of(loads: Loads, alone: bool) -> Self {
        Self { loads, found: if alone { loads.bound() } else { Err(Blind::Shared) } }
    }

    /// The bound.
    pub fn bound(&self) -> Bound {
        self.found.unwrap_or(Bound::Unknown)
    }
}

#[cfg(test)]
mod tests;
