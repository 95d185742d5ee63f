//! NVML, NVIDIA's management library, behind functions that are safe to call.
//!
//! `nvml-wrapper` opens, initialises and shuts down the library and names its errors. Its safe layer stops there
//! for us: its devices borrow the library, so that they cannot be kept beside it; it has no own buffer for GPM
//! (210 metrics, while the newest driver has 333), cannot name the cumulative cycle counters, and has no way to
//! the GPU instances of MIG. All other calls therefore go through the symbols of `nvml-wrapper-sys`, each looked
//! up on its own, in one thin layer: [`sys`], the only place with unsafe code. A function that the driver lacks
//! is [`Fault::FUNCTION_NOT_FOUND`], like any other "no".

mod fault;
pub(crate) mod sys;

pub(crate) use fault::Fault;
