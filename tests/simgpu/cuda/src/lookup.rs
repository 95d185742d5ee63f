//! Finding functions by name, and names of errors.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::{CuResult, INVALID_VALUE, NOT_FOUND, code, put, text};
use crate::entry::{NAMES, address};

/// Names whose newest form is not simply the highest `_vN`.
const NEWEST: [(&str, &str); 3] = [
    ("cuGraphInstantiate", "cuGraphInstantiateWithFlags"),
    ("cuCtxCreate", "cuCtxCreate_v2"),
    ("cuGetProcAddress", "cuGetProcAddress_v2"),
];
const PER_THREAD: u64 = 2;

/// The exported symbol that a name means under `flags`.
fn find(name: &str, flags: u64) -> Option<usize> {
    let exported = |name: &str| NAMES.iter().position(|n| *n == name);
    if flags & PER_THREAD != 0 {
        let forms = ["_v2_ptsz", "_ptsz", "_v2_ptds", "_ptds"];
        if let Some(found) = forms.iter().find_map(|form| exported(&format!("{name}{form}"))) {
            return Some(found);
        }
    }
    if let Some((_, newest)) = NEWEST.iter().find(|n| n.0 == name) {
        return exported(newest);
    }
    ["_v3", "_v2", ""].iter().find_map(|form| exported(&format!("{name}{form}")))
}

fn look_up(
    name: *const c_char,
    out: *mut *const c_void,
    flags: u64,
    status: *mut u32,
) -> Result<(), CuResult> {
    let found = find(text(name)?, flags).map(address);
    put(out, found.unwrap_or(std::ptr::null()))?;
    if !status.is_null() {
        put(status, u32::from(found.is_none()))?;
        return Ok(());
    }
    found.map(drop).ok_or(NOT_FOUND)
}

pub(crate) extern "C" fn get_proc_address(
    name: *const c_char,
    out: *mut *const c_void,
    _version: i32,
    flags: u64,
) -> CuResult {
    code(look_up(name, out, flags, std::ptr::null_mut()))
}

pub(crate) extern "C" fn get_proc_address_v2(
    name: *const c_char,
    out: *mut *const c_void,
    _version: i32,
    flags: u64,
    status: *mut u32,
) -> CuResult {
    code(look_up(name, out, flags, status))
}

/// An error's name and text.
const fn words(error: CuResult) -> Option<(&'static CStr, &'static CStr)> {
    Some(match error {
        0 => (c"CUDA_SUCCESS", c"no error"),
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        4 => (c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        900 => {
            (c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing")
        }
        _ => return None,
    })
}

pub(crate) extern "C" fn error_name(error: CuResult, out: *mut *const c_char) -> CuResult {
    code(words(error).ok_or(INVALID_VALUE).and_then(|w| put(out, w.0.as_ptr())))
}

pub(crate) extern "C" fn error_string(error: CuResult, out: *mut *const c_char) -> CuResult {
    code(words(error).ok_or(INVALID_VALUE).and_then(|w| put(out, w.1.as_ptr())))
}
