//! Theoretical occupancy: how many warps of a kernel an SM can hold at a time, and which limit says so.
//!
//! It is an upper bound. Blocks that end early, a grid that does not fill the device and a tail of the last blocks lie
//! below it: `sm_occupied` ÷ `sm_active` is what was achieved.
//!
//! Limits are those of "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming Guide.
//! Granularities and the order of rounding are those that its occupancy calculator publishes in `cuda_occupancy.h`
//! (CUDA 12.8 and 13): registers are given to warps in units of 256, a quarter of an SM each; shared memory to blocks in
//! units of 256 bytes before compute capability 8.0 and of 128 bytes from there on, where the system takes 1 KiB of each
//! block's.

/// Threads of a warp.
const WARP: u32 = 32;
/// The most threads of a block.
const BLOCK: u32 = 1024;
/// 32-bit registers of an SM, and the most of a block.
const REGISTERS: u32 = 64 * 1024;
/// The most registers of a thread.
const REGISTERS_PER_THREAD: u32 = 255;
/// Registers are given to a warp in such units.
const REGISTER_UNIT: u32 = 256;
/// Parts of an SM, each with its own registers.
const PARTS: u32 = 4;
/// Bytes in a KiB.
const KIB: u32 = 1024;

/// What a generation of SMs can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Warps of an SM.
    pub warps: u32,
    /// Blocks of an SM.
    pub blocks: u32,
    /// Shared memory of an SM, in KiB, with the largest carveout.
    pub shared_kib: u32,
}

/// From Volta on. `(10, 3)` and `(12, 1)` are as the guide's columns 10.x and 12.x.
static LIMITS: [Limits; 12] = [
    limits((7, 0), 64, 32, 96),
    limits((7, 5), 32, 16, 64),
    limits((8, 0), 64, 32, 164),
    limits((8, 6), 48, 16, 100),
    limits((8, 7), 48, 16, 164),
    limits((8, 9), 48, 24, 100),
    limits((9, 0), 64, 32, 228),
    limits((10, 0), 64, 32, 228),
    limits((10, 3), 64, 32, 228),
    limits((11, 0), 48, 24, 228),
    limits((12, 0), 48, 24, 100),
    limits((12, 1), 48, 24, 100),
];

const fn limits(capability: (u32, u32), warps: u32, blocks: u32, shared_kib: u32) -> Limits {
    Limits { capability, warps, blocks, shared_kib }
}

impl Limits {
    /// Those of a compute capability; none of one that is not known here.
    pub fn of(capability: (u32, u32)) -> Option<&'static Self> {
        LIMITS.iter().find(|limits| limits.capability == capability)
    }

    /// Every compute capability that is known.
    pub fn known() -> impl Iterator<Item = (u32, u32)> {
        LIMITS.iter().map(|limits| limits.capability)
    }

    /// Bytes of shared memory that the system takes of each block.
    const fn reserved(&self) -> u32 {
        if self.capability.0 >= 8 { KIB } else { 0 }
    }

    /// Bytes in which shared memory is given out.
    const fn shared_unit(&self) -> u32 {
        if self.capability.0 >= 8 { 128 } else { 256 }
    }

    /// The most bytes of shared memory that a block can ask for.
    pub const fn shared_per_block(&self) -> u32 {
        self.shared_kib * KIB - self.reserved()
    }
}

/// What a kernel's launch asks of an SM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Threads of a block: the product of its three sizes.
    pub block: u32,
    /// Registers of a thread, as the compiler or `cuFuncGetAttribute` gives them; none if they are not known.
    pub registers: Option<u32>,
    /// Bytes of shared memory of a block, static and dynamic together.
    pub shared: u32,
}

/// What holds the number of warps down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limiter {
    /// Warps of an SM: all that there are, or what whole blocks leave over.
    Warps,
    /// Blocks of an SM: the blocks are too small.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

impl Limiter {
    /// A name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Warps => "warps",
            Self::Blocks => "blocks",
            Self::Registers => "registers",
            Self::Shared => "shared memory",
        }
    }
}

/// How many blocks of a launch an SM holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Warps of a block.
    pub warps_per_block: u32,
    /// Blocks by each limit alone; none of one that does not apply or is not known.
    pub blocks_by: [(Limiter, Option<u32>); 4],
    /// Blocks at a time: the least of those.
    pub blocks: u32,
    /// Warps at a time.
    pub warps: u32,
    /// The most warps that an SM holds of any kernel.
    pub of: u32,
}

impl Occupancy {
    /// The limits that say so: those that allow no more blocks than there are.
    pub fn limiters(&self) -> impl Iterator<Item = Limiter> + '_ {
        self.blocks_by.iter().filter(|(_, blocks)| *blocks == Some(self.blocks)).map(|(limiter, _)| *limiter)
    }
}

/// Why a launch cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Impossible {
    /// A block has from 1 to so many threads.
    Block(u32),
    /// A thread has at most so many registers.
    Registers(u32),
    /// A block's threads have more registers together than so many.
    BlockRegisters(u32),
    /// A block has at most so many bytes of shared memory.
    Shared(u32),
}

/// How many warps of a launch an SM holds at a time.
///
/// Without the number of registers this is an upper bound of the upper bound, which only what is known takes part in.
///
/// # Errors
///
/// What no SM of this compute capability can run.
pub fn occupancy(limits: &Limits, launch: Launch) -> Result<Occupancy, Impossible> {
    let Launch { block, registers, shared } = launch;
    if block == 0 || block > BLOCK {
        return Err(Impossible::Block(BLOCK));
    }
    if registers.is_some_and(|registers| registers > REGISTERS_PER_THREAD) {
        return Err(Impossible::Registers(REGISTERS_PER_THREAD));
    }
    if shared > limits.shared_per_block() {
        return Err(Impossible::Shared(limits.shared_per_block()));
    }
    let warps = block.div_ceil(WARP);
    let by_registers = match registers {
        None | Some(0) => None,
        Some(registers) => Some(by_registers(registers, warps)?),
    };
    let taken = (shared + limits.reserved()).next_multiple_of(limits.shared_unit());
    let by_shared = (limits.shared_kib * KIB).checked_div(taken);
    let blocks_by = [
        (Limiter::Warps, Some(limits.warps / warps)),
        (Limiter::Blocks, Some(limits.blocks)),
        (Limiter::Registers, by_registers),
        (Limiter::Shared, by_shared),
    ];
    let blocks = blocks_by.iter().filter_map(|(_, blocks)| *blocks).min().unwrap_or(0);
    Ok(Occupancy { warps_per_block: warps, blocks_by, blocks, warps: blocks * warps, of: limits.warps })
}

/// The launch with just as many registers or as much shared memory as let one more block fit, where that is what limits
/// it: one of the two if that is enough, else both.
pub fn one_more(limits: &Limits, launch: Launch) -> Option<Launch> {
    let wanted = occupancy(limits, launch).ok()?.blocks + 1;
    let fits = |launch: &Launch| occupancy(limits, *launch).is_ok_and(|found| found.blocks >= wanted);
    let fewer_registers = |launch: Launch| {
        let tries = (1..=launch.registers.unwrap_or(0)).rev();
        tries.map(|registers| Launch { registers: Some(registers), ..launch }).find(fits)
    };
    let less_shared = |launch: Launch| {
        // What the system takes is a multiple of the unit, so the most that fits is one too.
        let unit = limits.shared_unit();
        let tries = (0..=launch.shared / unit).rev();
        tries.map(|units| Launch { shared: units * unit, ..launch }).find(fits)
    };
    fewer_registers(launch).or_else(|| less_shared(launch)).or_else(|| {
        let fewer = fewer_registers(Launch { shared: 0, ..launch })?;
        less_shared(Launch { shared: launch.shared, ..fewer })
    })
}

/// Blocks by registers: each part of an SM has a quarter of them, for whole warps.
fn by_registers(registers: u32, warps: u32) -> Result<u32, Impossible> {
    let per_warp = (registers * WARP).next_multiple_of(REGISTER_UNIT);
    if per_warp * warps.next_multiple_of(PARTS) > REGISTERS {
        return Err(Impossible::BlockRegisters(REGISTERS));
    }
    Ok(REGISTERS / PARTS / per_warp * PARTS / warps)
}

#[cfg(test)]
mod tests;
