//! libnvidia-ml.so.1 over the simulated GPU.
//!
//! Every exported function has the C ABI of NVIDIA's of the same name. Struct layouts come from `nvml-wrapper-sys`.
//! Calls on a device pass through `session::on_device`, where faults strike.
#![allow(
    missing_docs,
    reason = "the exported functions are NVIDIA's, documented in nvml.h under the same names"
)]
#![allow(clippy::map_err_ignore, reason = "a C result code has no cause to keep")]
#![allow(unreachable_pub, reason = "the exported functions are reached by name, from C")]
#![allow(
    non_snake_case,
    clippy::similar_names,
    clippy::used_underscore_binding,
    reason = "names and arguments are the C library's"
)]
#![allow(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "table indexes come from the tables themselves; GPM values are doubles by ABI"
)]

mod abi;
mod device;
mod events;
mod gpm;
mod meters;
mod mig;
mod processes;
mod rest;
mod session;
mod system;
