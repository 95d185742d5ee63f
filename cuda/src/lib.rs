//! Everything in Warpmeter that touches an NVIDIA library.
//!
//! [`run()`] is the body of the one process that opens the driver's library. It reports facts, and before each batch
//! of calls whose device it is about to touch: a driver can hang, and then its parent ends this process and starts
//! another that skips the device. Nothing here divides, smooths or fills in; a value that the driver did not give,
//! or that cannot be, is absent and counted.
//!
//! From the outside in: [`run()`] opens and reopens the driver · `driver` lists the GPUs and makes the rounds, with
//! `absent` for those that cannot be read and `xid` for faults · `gpu` reads one of them · `gpm`, `ring`, `process_use`, `processes`, `board`, `mig` each turn one kind of answer into
//! facts · `cupti` samples the performance monitor where that is wanted · `sieve` keeps back what cannot be · `support` remembers what a device does not answer · `nvml` makes the
//! calls.
#![deny(unsafe_code)]

mod absent;
mod board;
mod clock;
mod cupti;
mod driver;
mod gpm;
mod gpu;
mod library;
mod mig;
mod nvml;
mod own;
mod process_use;
mod processes;
mod procfs;
mod report;
mod ring;
mod run;
mod sieve;
mod support;
mod xid;

pub use cupti::{Architecture, DEFAULT_CUPTI_LIBRARIES, PmSampling, find_cupti};
pub use library::{DEFAULT_LIBRARIES, Rejected, Search, find_library};
pub use report::{Ending, Options, Report};
pub use run::run;
