//! Return codes, and the writing of results through C pointers.

use std::ffi::{CStr, c_char, c_uint};

pub(crate) use nvml_wrapper_sys::bindings::*;

/// `Err` holds the `nvmlReturn_t` to give.
pub(crate) type Answer = Result<(), nvmlReturn_t>;

pub(crate) const SUCCESS: nvmlReturn_t = 0;
pub(crate) const UNINITIALIZED: nvmlReturn_t = 1;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub(crate) const TIMEOUT: nvmlReturn_t = 10;
pub(crate) const FUNCTION_NOT_FOUND: nvmlReturn_t = 13;
pub(crate) const GPU_IS_LOST: nvmlReturn_t = 15;
pub(crate) const VERSION_MISMATCH: nvmlReturn_t = 25;

/// NVML's "no value here" for 32-bit integers, as DCGM writes it.
pub(crate) const BLANK_32: u32 = 0x7fff_fff0;
/// The same for 64-bit integers.
pub(crate) const BLANK_64: u64 = 0x7fff_ffff_ffff_fff2;

/// The code of an answer.
pub(crate) const fn code(answer: Answer) -> nvmlReturn_t {
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

/// Writes a result.
pub(crate) fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: NVML's contract: a non-null result pointer is valid for one value of its type.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes element `at` of a result array.
pub(crate) fn put_at<T>(out: *mut T, at: usize, value: T) -> Answer {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: NVML's contract: the caller gave the array's length, and `at` is below it.
    let slot = unsafe { out.add(at) };
    put(slot, value)
}

/// Reads an argument that the caller filled in.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, nvmlReturn_t> {
    if from.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: NVML's contract: a non-null argument pointer is valid for one value of its type.
    Ok(unsafe { from.read() })
}

/// A C string argument.
pub(crate) fn text<'a>(from: *const c_char) -> Result<&'a str, nvmlReturn_t> {
    if from.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: NVML's contract: the argument is a zero-terminated string that outlives the call.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| INVALID_ARGUMENT)
}

/// Writes a string with its closing zero into a buffer of `length`.
pub(crate) fn put_text(out: *mut c_char, length: c_uint, value: &str) -> Answer {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if (length as usize) <= value.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    for (at, byte) in value.bytes().chain([0]).enumerate() {
        put_at(out, at, byte.cast_signed())?;
    }
    Ok(())
}

/// A string as a C array.
pub(crate) fn chars<const N: usize>(value: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().take(N - 1).zip(value.bytes()) {
        *to = from.cast_signed();
    }
    array
}

/// The size-then-fill protocol: `count` holds the room, and becomes the number needed.
pub(crate) fn put_list<T>(count: *mut c_uint, out: *mut T, items: Vec<T>) -> Answer {
    let room = get(count)?;
    let needed = narrow(items.len() as u64);
    put(count, needed)?;
    if room < needed {
        return Err(INSUFFICIENT_SIZE);
    }
    for (at, item) in items.into_iter().enumerate() {
        put_at(out, at, item)?;
    }
    Ok(())
}

/// The low range of a wide count.
pub(crate) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Exports functions that answer `NOT_SUPPORTED` whatever their arguments.
macro_rules! not_supported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> nvmlReturn_t {
            NOT_SUPPORTED
        }
    )*};
}

/// Exports functions whose first argument is a device.
macro_rules! device_calls {
    ($($name:ident($($arg:ident: $ty:ty),*) |$view:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(device: nvmlDevice_t, $($arg: $ty),*) -> nvmlReturn_t {
            $crate::session::on_device(stringify!($name), device, |$view| $body)
        }
    )*};
}

pub(crate) use device_calls;
pub(crate) use not_supported;
