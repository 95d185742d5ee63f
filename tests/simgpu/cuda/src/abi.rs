//! Result codes, and the reading and writing of C pointers.

use std::ffi::{CStr, c_char};

use warpmeter_simgpu::Refused;

/// `CUresult`.
pub(crate) type CuResult = u32;
/// `Err` holds the code to give.
pub(crate) type Answer = Result<(), CuResult>;

pub(crate) const SUCCESS: CuResult = 0;
pub(crate) const INVALID_VALUE: CuResult = 1;
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
pub(crate) const NOT_INITIALIZED: CuResult = 3;
pub(crate) const NO_DEVICE: CuResult = 100;
pub(crate) const INVALID_DEVICE: CuResult = 101;
pub(crate) const INVALID_CONTEXT: CuResult = 201;
pub(crate) const INVALID_HANDLE: CuResult = 400;
pub(crate) const NOT_FOUND: CuResult = 500;
pub(crate) const NOT_READY: CuResult = 600;
pub(crate) const LAUNCH_FAILED: CuResult = 719;
pub(crate) const CAPTURE_UNSUPPORTED: CuResult = 900;

/// The code of an answer.
pub(crate) const fn code(answer: Answer) -> CuResult {
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

/// The code of the model's refusal.
pub(crate) const fn refused(why: Refused) -> CuResult {
    match why {
        Refused::Table | Refused::Memory => OUT_OF_MEMORY,
        Refused::QueueFull => NOT_READY,
        Refused::Handle => INVALID_HANDLE,
        Refused::Lost => LAUNCH_FAILED,
    }
}

/// Writes a result.
pub(crate) fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: CUDA's contract: a non-null result pointer is valid for one value of its type.
    unsafe { out.write(value) };
    Ok(())
}

/// Reads an argument that the caller filled in.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, CuResult> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: CUDA's contract: a non-null argument pointer is valid for one value of its type.
    Ok(unsafe { from.read() })
}

/// A C string argument.
pub(crate) fn text<'a>(from: *const c_char) -> Result<&'a str, CuResult> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: CUDA's contract: the argument is a zero-terminated string that outlives the call.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| INVALID_VALUE)
}
