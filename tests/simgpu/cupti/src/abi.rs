//! Result codes, and the reading and writing of parameter structures.

use std::ffi::{CStr, c_char};

/// `CUptiResult`.
pub(crate) type Code = u32;
/// `Err` holds the code to give.
pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_PARAMETER: Code = 1;
pub(crate) const INVALID_DEVICE: Code = 2;
pub(crate) const INVALID_OPERATION: Code = 7;
pub(crate) const NOT_INITIALIZED: Code = 15;
pub(crate) const INVALID_METRIC_NAME: Code = 17;
pub(crate) const HARDWARE_BUSY: Code = 26;
pub(crate) const NOT_SUPPORTED: Code = 27;
pub(crate) const MIG_DEVICE_NOT_SUPPORTED: Code = 43;
pub(crate) const INVALID_CHIP_NAME: Code = 46;
pub(crate) const UNKNOWN: Code = 999;

/// The code of an answer.
pub(crate) const fn code(answer: Answer) -> Code {
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

/// A parameter structure whose first field says how much of it the caller knows: as much as `size`.
pub(crate) fn get<T: Copy>(params: *const T, size: usize) -> Answer<T> {
    if params.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: CUPTI's contract: the structure begins with its size, and is there for the length of the call.
    let stated = unsafe { params.cast::<usize>().read() };
    if stated != size {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: as above; the size is that of this structure.
    Ok(unsafe { params.read() })
}

/// Writes a value to where the caller said.
pub(crate) fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: CUPTI's contract: a non-null pointer of a parameter structure is valid for what the header says.
    unsafe { out.write(value) };
    Ok(())
}

/// Bytes that the caller gave.
pub(crate) fn bytes(from: *const u8, length: usize) -> Answer<Vec<u8>> {
    if from.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: CUPTI's contract: the buffer is as long as the length given with it.
    Ok(unsafe { std::slice::from_raw_parts(from, length) }.to_vec())
}

/// Writes bytes into a buffer of `room`.
pub(crate) fn put_bytes(out: *mut u8, room: usize, value: &[u8]) -> Answer {
    if out.is_null() || room < value.len() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: the buffer is as long as the length given with it, which is enough, and nobody else's now.
    unsafe { out.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    Ok(())
}

/// A C string.
pub(crate) fn text<'a>(from: *const c_char) -> Answer<&'a str> {
    if from.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: CUPTI's contract: a zero-terminated string that outlives the call.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| INVALID_PARAMETER)
}

/// An array of C strings.
pub(crate) fn texts<'a>(from: *mut *const c_char, count: usize) -> Answer<Vec<&'a str>> {
    if from.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: CUPTI's contract: the array is as long as the length given with it.
    let pointers = unsafe { std::slice::from_raw_parts(from, count) };
    pointers.iter().map(|pointer| text(*pointer)).collect()
}
