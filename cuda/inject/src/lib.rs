//! A library that the CUDA driver loads into a process when `CUDA_INJECTION64_PATH` names it, and that sums what the
//! process runs on its GPUs: an experiment, to compare what Warpmeter concludes from outside with what the driver
//! records inside. `docs/inject.md` says how to use it, what it costs, and what it cannot know.
//!
//! It must never be in the program's way:
//! - no call of the program waits for it. A buffer for records is lent from a fixed pool or refused, and CUPTI counts
//!   what it then drops; all else happens in a thread of its own, which takes no signals.
//! - a panic anywhere switches it off, and only it;
//! - what it needs is looked up before it is used, and where something is missing it does nothing;
//! - a forked child neither sums nor writes.
//!
//! A record's way: `entry` lends CUPTI a buffer and takes it back · `pool` holds them · `worker` takes the full ones
//! in turn and iterates over their records · `record` reads one · `sums` adds it up, with `union` for the time in which
//! any kernel ran and `typical` for kernels that were interrupted · `shared` hands the sums over.
//! `sys` makes the calls; `plan` says in which seconds records are wanted; `process` watches for forks and the end.
#![deny(unsafe_code)]

mod entry;
mod plan;
mod pool;
mod process;
mod record;
mod shared;
mod sums;
mod sys;
mod typical;
mod union;
mod worker;

pub use entry::InitializeInjection;
