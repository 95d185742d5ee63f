//! The kernel programs say of threads and CUDA programs of known behaviour what those do. Needs root; says so and
//! passes without.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "tests: a failed step is a failed test, and figures are small"
)]

mod classes;
mod device;
mod lives;
mod support;
mod swapped;
mod wakes;
