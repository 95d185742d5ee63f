//! libcupti.so over the simulated GPU: as much of it as sampling the performance monitor and recording activity take.
//!
//! Every exported function has the C ABI of NVIDIA's of the same name. Struct layouts come from cudarc. A call's
//! way: `abi` checks the size that the caller states, `session` finds the node and the device and lets faults strike,
//! and `host` (metrics, passes, values), `sampling` (the monitor, its samples) or `activity` (records) answers.
//!
//! As with the real library, the process must have initialised `libcuda.so.1` first; a device index is that
//! library's ordinal. No call makes a context.
#![allow(
    missing_docs,
    reason = "the exported functions are NVIDIA's, documented in CUPTI's headers under the same names"
)]
#![allow(clippy::map_err_ignore, reason = "a C result code has no cause to keep")]
#![allow(unreachable_pub, reason = "the exported functions are reached by name, from C")]
#![allow(non_snake_case, reason = "names are the C library's")]
#![allow(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "table indexes come from the tables themselves; values are doubles by ABI"
)]

mod abi;
mod activity;
mod chip;
mod host;
mod image;
mod sampling;
mod session;
