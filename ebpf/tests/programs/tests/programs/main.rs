//! The kernel programs say of threads and CUDA programs of known behaviour what those do. Needs root; says so and
//! passes without.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a failed step is a failed test")]

mod classes;
mod device;
mod support;
