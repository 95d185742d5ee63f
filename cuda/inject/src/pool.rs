//! Buffers for records: a fixed number, lent and taken back without waiting.
//!
//! Why this is sound: a slot's memory belongs to whoever moved the slot to its state by an atomic exchange. FREE: to
//! nobody. LENT: to CUPTI. FULL, once taken: to the one thread that takes. Memory is never given back to the system.
#![allow(unsafe_code, reason = "memory that another library writes to")]

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a buffer: some six hundred kernels.
pub(crate) const SIZE: usize = 128 << 10;
/// Buffers: 4 MiB, of which the system gives only what was used.
pub(crate) const COUNT: usize = 32;
/// Records are aligned to this, and so must buffers be.
const ALIGN: usize = 8;

const FREE: u8 = 0;
const LENT: u8 = 1;
const FULL: u8 = 2;

#[derive(Debug, Default)]
struct Slot {
    state: AtomicU8,
    /// Bytes of records, once it is full.
    valid: AtomicUsize,
    /// In which order it became so.
    ticket: AtomicU64,
}

/// The buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    memory: NonNull<u8>,
    slots: [Slot; COUNT],
    tickets: AtomicU64,
}

// SAFETY: as argued at the head of this module.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// A buffer that came back full. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Full<'a> {
    slot: &'a Slot,
    /// The records.
    pub(crate) memory: NonNull<u8>,
    /// How many bytes of them there are.
    pub(crate) valid: usize,
}

impl Pool {
    /// The buffers, all free; none if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        let layout = Layout::from_size_align(SIZE * COUNT, ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { memory, slots: Default::default(), tickets: AtomicU64::new(0) })
    }

    /// A buffer of [`SIZE`] bytes, if one is free.
    pub(crate) fn lend(&self) -> Option<NonNull<u8>> {
        let free = |slot: &Slot| {
            slot.state.compare_exchange(FREE, LENT, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        self.slots.iter().position(free).map(|at| self.buffer(at))
    }

    /// Takes back a buffer that was lent, with so many bytes of records. One that was not is passed over.
    pub(crate) fn give_back(&self, memory: *mut u8, valid: usize) {
        let Some(slot) = self.slot(memory) else { return };
        slot.valid.store(valid.min(SIZE), Ordering::Relaxed);
        slot.ticket.store(self.tickets.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let next = if valid == 0 { FREE } else { FULL };
        // Only what was lent: then nobody else changes it.
        let _refused = slot.state.compare_exchange(LENT, next, Ordering::Release, Ordering::Relaxed);
    }

    /// The buffer that has been full for longest. Called by one thread only.
    pub(crate) fn take(&self) -> Option<Full<'_>> {
        let full =
            self.slots.iter().enumerate().filter(|(_, slot)| slot.state.load(Ordering::Acquire) == FULL);
        let (at, slot) = full.min_by_key(|(_, slot)| slot.ticket.load(Ordering::Relaxed))?;
        Some(Full { slot, memory: self.buffer(at), valid: slot.valid.load(Ordering::Relaxed) })
    }

    fn buffer(&self, at: usize) -> NonNull<u8> {
        // SAFETY: `at` is below `COUNT`, so this is within the memory.
        unsafe { self.memory.add(at * SIZE) }
    }

    fn slot(&self, memory: *mut u8) -> Option<&Slot> {
        let offset = memory.addr().checked_sub(self.memory.as_ptr().addr())?;
        self.slots.get(offset / SIZE).filter(|_| offset % SIZE == 0)
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        self.slot.state.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_lent_as_there_are_and_they_come_back_in_order() {
        let pool = Pool::new().unwrap();
        let lent: Vec<_> = std::iter::from_fn(|| pool.lend()).collect();
        assert_eq!(lent.len(), COUNT);
        assert!(pool.take().is_none());
        for at in [5, 3, 9] {
            pool.give_back(lent[at].as_ptr(), 100 + at);
        }
        let order: Vec<usize> = std::iter::from_fn(|| pool.take().map(|full| full.valid)).collect();
        assert_eq!(order, [105, 103, 109]);
        assert_eq!(std::iter::from_fn(|| pool.lend()).count(), 3, "and are free again");
    }

    #[test]
    fn what_was_not_lent_is_not_taken_back() {
        let pool = Pool::new().unwrap();
        let lent = pool.lend().unwrap().as_ptr();
        for odd in [
            lent.wrapping_add(8),
            lent.wrapping_add(SIZE * COUNT),
            lent.wrapping_sub(SIZE),
            lent.wrapping_add(SIZE),
        ] {
            pool.give_back(odd, 1);
        }
        assert!(pool.take().is_none());
        pool.give_back(lent, usize::MAX);
        assert_eq!(pool.take().unwrap().valid, SIZE, "never more than there is");
        pool.give_back(lent, 1);
        assert!(pool.take().is_none(), "twice");
        let empty = pool.lend().unwrap().as_ptr();
        pool.give_back(empty, 0);
        assert!(pool.take().is_none(), "without records there is nothing to take");
        assert_eq!(std::iter::from_fn(|| pool.lend()).count(), COUNT);
    }
}
