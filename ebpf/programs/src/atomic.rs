//! Atomic operations on words of maps.

use core::intrinsics::{
    self,
    AtomicOrdering::{Relaxed, SeqCst},
};
use core::ptr::{read_volatile, write_volatile};

/// Adds. Relaxed, which gives the plain locked addition that every kernel has.
#[inline(always)]
pub fn add(word: *mut u64, amount: u64) {
    // SAFETY: callers pass words of map values, which stay while the program runs.
    unsafe { intrinsics::atomic_xadd::<u64, u64, { Relaxed }>(word, amount) };
}

/// Adds, and gives the old value.
#[inline(always)]
pub fn fetch_add(word: *mut u64, amount: u64) -> u64 {
    // SAFETY: as above.
    unsafe { intrinsics::atomic_xadd::<u64, u64, { SeqCst }>(word, amount) }
}

/// Adds to half a word.
#[inline(always)]
pub fn add32(word: *mut u32, amount: u32) {
    // SAFETY: as above.
    unsafe { intrinsics::atomic_xadd::<u32, u32, { Relaxed }>(word, amount) };
}

/// Stores, and gives the old value.
#[inline(always)]
pub fn swap(word: *mut u64, value: u64) -> u64 {
    // SAFETY: as above.
    unsafe { intrinsics::atomic_xchg::<u64, { SeqCst }>(word, value) }
}

/// Stores `new` if the word is `old`; whether it was.
#[inline(always)]
pub fn replace(word: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: as above.
    unsafe { intrinsics::atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, old, new) }.1
}

/// Reads a word that others change.
#[inline(always)]
pub fn read(word: *const u64) -> u64 {
    // SAFETY: as above.
    unsafe { read_volatile(word) }
}

/// Reads half a word that others change.
#[inline(always)]
pub fn read32(word: *const u32) -> u32 {
    // SAFETY: as above.
    unsafe { read_volatile(word) }
}

/// Writes a word that others read.
#[inline(always)]
pub fn write(word: *mut u64, value: u64) {
    // SAFETY: as above.
    unsafe { write_volatile(word, value) }
}
