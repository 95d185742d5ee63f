//! How long copies that hold their threads up can have taken, if nothing shows it.

/// Bytes in a nanosecond that such a copy is taken to move at best: most are of pageable memory, which is copied twice.
const FASTEST: u64 = 8;
/// No such copy is slower: what it takes longer is a wait for what was enqueued before it.
const SLOWEST: u64 = 2;

/// The most of `spent` nanoseconds in a call that its copy of so many bytes can have taken: at 2 GB/s.
#[inline(always)]
pub const fn most(spent: u64, bytes: u64) -> u64 {
    least_of(spent, bytes / SLOWEST)
}

/// What of them it took in any case: at 8 GB/s.
#[inline(always)]
pub const fn least(spent: u64, bytes: u64) -> u64 {
    least_of(spent, bytes / FASTEST)
}

#[inline(always)]
const fn least_of(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}
