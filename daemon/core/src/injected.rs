//! What libraries say that were injected into processes: sums of the records that the driver makes inside them.
//!
//! They stand beside the ledgers, to be compared with them, and are no part of any: a process can write there what it
//! likes. `docs/inject.md` says what they are worth.

use serde::{Deserialize, Serialize};

use crate::identity::{DeviceId, ProcessId};
use crate::occupancy::{Launch, Limits, occupancy};
use crate::time::{MonoNs, SECOND};

/// By how much sums may exceed the time that passed: a device's clock is another, and a process's start is known to 10 ms.
const SLACK: u64 = 2 * SECOND;

/// Sums of one process on one device, since the library began in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Injected {
    /// The process.
    pub process: ProcessId,
    /// The device, as the process names it.
    pub device: DeviceId,
    /// Its compute capability, as the process says.
    pub capability: (u32, u32),
    /// The sums.
    pub sums: Sums,
    /// The kernels by what they need of an SM, as far as the library told them apart.
    pub shapes: Vec<Shape>,
}

/// Kernels with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Threads of a block.
    pub block: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Nanoseconds of the kernels, each for itself.
    pub nanos: u64,
}

macro_rules! sums {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Sums that only grow.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct Sums { $($(#[$doc])* pub $field: u64,)* }

        impl Sums {
            /// What was added since `before`; none if any is less than then.
            pub fn since(&self, before: &Self) -> Option<Self> {
                Some(Self { $($field: self.$field.checked_sub(before.$field)?,)* })
            }

            /// Adds others.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

sums! {
    /// Nanoseconds that the library has been there.
    elapsed,
    /// Those of them in which records were asked for: all other sums are of what was launched then.
    sampled,
    /// Records that the process's driver had no room for.
    dropped,
    /// Nanoseconds of a CPU that the library's own thread took.
    cpu,
    /// Nanoseconds in which at least one kernel had begun and not ended.
    busy,
    /// The same without the time for which kernels seem to have been interrupted by other processes' turns.
    ran,
    /// Kernels that seem to have been interrupted.
    interrupted,
    /// Kernels.
    kernels,
    /// Their nanoseconds, each for itself.
    kernel,
    /// Nanoseconds of kernels that came too late to be told from time already summed.
    late,
    /// Bytes copied to the device.
    to_device,
    /// Bytes copied to the host.
    to_host,
    /// Bytes copied otherwise.
    other,
    /// Nanoseconds of copies, each for itself.
    copying,
    /// Bytes of memory that was set.
    set,
}

/// An owner's sums on a device, over all its processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InjectedTotals {
    /// The sums.
    pub sums: Sums,
    /// Nanoseconds of kernels, each for itself, whose theoretical occupancy is known.
    pub shaped: u64,
    /// Those nanoseconds times that occupancy.
    pub theoretical: u64,
}

impl InjectedTotals {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.sums.add(&other.sums);
        self.shaped = self.shaped.saturating_add(other.shaped);
        self.theoretical = self.theoretical.saturating_add(other.theoretical);
    }
}

impl Injected {
    /// What was added since the last word and when that was; since the library began if there was none, or if any sum is
    /// less than then: it has begun anew. None if that cannot be.
    ///
    /// More can be added than the time that passed meanwhile: records come when the driver hands them over, which can be
    /// much later. So it is the sums that are bounded, by the process's life or by the time since the last word.
    pub fn grown(&self, before: Option<(&Self, MonoNs)>, now: MonoNs) -> Option<InjectedTotals> {
        let sums = &self.sums;
        let life = now.since(self.process.start);
        let (before, added, room) = match before {
            None => (None, *sums, life),
            Some((before, at)) => match sums.since(&before.sums) {
                Some(added) => (Some(before), added, life),
                None => (None, *sums, now.since(at)),
            },
        };
        let possible = sums.elapsed <= room.saturating_add(SLACK)
            && sums.sampled <= sums.elapsed
            && sums.busy <= sums.elapsed.saturating_add(SLACK)
            && sums.busy <= sums.kernel
            && sums.ran <= sums.busy;
        possible.then(|| {
            let (shaped, theoretical) = self.theoretical(before);
            InjectedTotals { sums: added, shaped, theoretical }
        })
    }

    /// Nanoseconds of kernels since `before` of which the theoretical occupancy is known, and the same times that.
    fn theoretical(&self, before: Option<&Self>) -> (u64, u64) {
        let Some(limits) = Limits::of(self.capability) else { return (0, 0) };
        let (mut shaped, mut theoretical) = (0_u64, 0_u64);
        for shape in &self.shapes {
            let launch =
                Launch { block: shape.block, registers: Some(shape.registers), shared: shape.shared };
            let Ok(found) = occupancy(limits, launch) else { continue };
            let same = |old: &&Shape| {
                (old.block, old.registers, old.shared) == (shape.block, shape.registers, shape.shared)
            };
            let old = before.and_then(|before| before.shapes.iter().find(same)).map_or(0, |old| old.nanos);
            let nanos = shape.nanos.saturating_sub(old);
            let part = u128::from(nanos) * u128::from(found.warps) / u128::from(found.of.max(1));
            shaped = shaped.saturating_add(nanos);
            theoretical = theoretical.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        (shaped, theoretical)
    }
}

#[cfg(test)]
mod tests;
