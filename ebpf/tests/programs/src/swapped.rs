//! A process that touches more memory than it may have: pages come back from swap.

use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// A prime number: steps of any length come to each of them.
const PAGES: usize = 8191;

/// Touches its memory again and again, for so long; prints how many pages came from a disk.
pub fn run(length: Duration, shared: bool) {
    // SAFETY: a new mapping; what is read and written lies within it.
    unsafe {
        let null = std::ptr::null_mut();
        let all = libc::mmap(
            null,
            PAGES * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            (if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE }) | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        println!("running 1");
        let until = Instant::now() + length;
        let mut page = 0;
        while Instant::now() < until {
            page = (page + 37) % PAGES;
            std::ptr::write_volatile(all.cast::<u8>().add(page * PAGE), 7);
        }
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        println!("back {}", usage.ru_majflt);
    }
}
