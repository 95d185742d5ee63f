//! The page that hands the sums over.
//!
//! A sealed memory file: its size is fixed for good, so that no reader can meet its end. Words are written one at a
//! time by one thread; the sequence is odd meanwhile.
//!
//! Why this is sound: the mapping is this process's own memory, as long as a page, never undone, and only ever used as
//! atomic words, which other processes may read and even write.
#![allow(unsafe_code, reason = "memory that other processes see")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use warpmeter_inject_page::{BYTES, NAME, Reason, State, WORDS, word};

/// The page of this process.
#[derive(Debug)]
pub(crate) struct Shared {
    words: NonNull<AtomicU64>,
    file: OwnedFd,
}

// SAFETY: as argued at the head of this module.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A page of zeros; none if the system does not give one.
    pub(crate) fn new() -> Option<Self> {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        ftruncate(&file, BYTES as u64).ok()?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).ok()?;
        // SAFETY: a new mapping where the kernel chooses aliases nothing.
        let at = unsafe {
            mmap(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        };
        Some(Self { words: NonNull::new(at.ok()?.cast())?, file })
    }

    /// The number of its descriptor.
    pub(crate) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Puts the words of a page in place of those that are there. Called by one thread at a time.
    pub(crate) fn publish(&self, words: &[u64]) {
        let sequence = self.begin();
        for (place, value) in words.iter().enumerate().filter(|(place, _)| *place != word::SEQUENCE) {
            self.word(place).store(value.to_le(), Ordering::Relaxed);
        }
        self.end(sequence);
    }

    /// Says that nothing more comes, and why. What was summed stays.
    pub(crate) fn off(&self, reason: Reason, detail: u64) {
        let sequence = self.begin();
        for (place, value) in
            [(word::STATE, State::Off.number()), (word::REASON, reason.number()), (word::DETAIL, detail)]
        {
            self.word(place).store(value.to_le(), Ordering::Relaxed);
        }
        self.end(sequence);
    }

    fn begin(&self) -> u64 {
        let sequence = u64::from_le(self.word(word::SEQUENCE).load(Ordering::Relaxed)) | 1;
        self.word(word::SEQUENCE).store(sequence.to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
        sequence
    }

    fn end(&self, sequence: u64) {
        self.word(word::SEQUENCE).store(sequence.wrapping_add(1).to_le(), Ordering::Release);
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        assert!(place < WORDS, "a page has no word {place}");
        // SAFETY: within the page.
        let word = unsafe { self.words.add(place) };
        // SAFETY: it lives as long as the process, and is only used as an atomic.
        unsafe { word.as_ref() }
    }
}
