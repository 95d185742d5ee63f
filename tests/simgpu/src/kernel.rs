//! Kernels of known behaviour: a function handle says what its kernel does.
//!
//! | bits  | meaning                                            |
//! |-------|----------------------------------------------------|
//! | 0–31  | duration in units of 100 ns                        |
//! | 32–41 | share of the engine's SMs, thousandths             |
//! | 42–48 | warps resident ÷ maximum on those SMs, percent     |
//! | 49–55 | share of the peak memory bandwidth, percent        |
//! | 56–62 | share of time with tensor pipes active, percent    |
//! | 63    | 1                                                  |
//!
//! `cuModuleGetFunction` makes a handle of a name such as `us=2000,sm=80,occ=50,dram=30,tensor=20`: microseconds,
//! then percent. What the name leaves out is `us=100,sm=100,occ=50,dram=20,tensor=0`; other words are ignored.

use crate::layout::{Load, Op};

/// Registers of a thread, of every kernel.
pub const REGISTERS: u32 = 32;

const MARK: u64 = 1 << 63;

/// A kernel's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Duration in nanoseconds.
    pub nanos: u64,
    /// Demand.
    pub load: Load,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { nanos: 100_000, load: Load { sm: 1000, occupancy: 500, dram: 200, tensor: 0 } }
    }
}

impl Kernel {
    /// The behaviour that a kernel's name states.
    pub fn named(name: &str) -> Self {
        let mut kernel = Self::default();
        for word in name.split([',', ';', ' ']) {
            let Some((key, value)) = word.split_once('=') else { continue };
            let Some(value) = thousandths(value) else { continue };
            let share = u32::try_from(value / 100).unwrap_or(1000).min(1000);
            match key.trim() {
                "us" => kernel.nanos = value,
                "sm" => kernel.load.sm = share,
                "occ" => kernel.load.occupancy = share,
                "dram" => kernel.load.dram = share,
                "tensor" => kernel.load.tensor = share,
                _ => {}
            }
        }
        kernel
    }

    /// The handle that stands for it.
    pub fn handle(self) -> u64 {
        let percent = |share: u32| u64::from(share.min(1000) / 10);
        let ticks = (self.nanos / 100).clamp(1, u64::from(u32::MAX));
        MARK | ticks
            | u64::from(self.load.sm.min(1000)) << 32
            | percent(self.load.occupancy) << 42
            | percent(self.load.dram) << 49
            | percent(self.load.tensor) << 56
    }

    /// The behaviour that a handle states; `None` if it is no handle of ours.
    pub fn of_handle(handle: u64) -> Option<Self> {
        if handle & MARK == 0 {
            return None;
        }
        let bits = |from: u32, count: u32| u32::try_from((handle >> from) & ((1 << count) - 1)).unwrap_or(0);
        let percent = |from| bits(from, 7).min(100) * 10;
        let load = Load {
            sm: bits(32, 10).min(1000),
            occupancy: percent(42),
            dram: percent(49),
            tensor: percent(56),
        };
        Some(Self { nanos: u64::from(bits(0, 32)) * 100, load })
    }

    /// It as an operation.
    pub fn op(self) -> Op {
        Op::kernel(self.nanos, self.load)
    }
}

/// A decimal number times 1000.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let whole: u64 = whole.parse().ok()?;
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1000)?.checked_add(part.parse().ok()?)
}
