//! libcuda.so.1 over the simulated GPU.
//!
//! Every exported `cu*` symbol is a trampoline with the real library's bytes (`entry`), which jumps through a table
//! to the function of the same meaning in the other modules. `launch::submit` is the way of an operation to its device.
#![allow(
    missing_docs,
    reason = "the exported functions are NVIDIA's, documented in cuda.h under the same names"
)]
#![allow(clippy::map_err_ignore, reason = "a C result code has no cause to keep")]
#![allow(unreachable_pub, reason = "the exported functions are reached by name, from C")]
#![allow(
    non_snake_case,
    clippy::similar_names,
    clippy::too_many_arguments,
    reason = "names and arguments are the C library's"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "table indexes come from the tables themselves; a test instrument may stop on a broken one"
)]

mod abi;
mod context;
mod device;
mod entry;
mod event;
mod graph;
mod host;
mod inject;
mod launch;
mod lookup;
mod memory;
mod runtime;
mod stream;
