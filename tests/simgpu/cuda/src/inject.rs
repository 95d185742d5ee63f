//! The library that a process's environment has the driver load.

use std::ffi::{CString, c_char, c_void};
use std::sync::Once;

/// The variable that names it.
const VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// What is called in it: without arguments, and what it returns is of no consequence here.
const ENTRY: &std::ffi::CStr = c"InitializeInjection";

/// Loads it and calls its entry, at the first `cuInit` that succeeds. One that cannot be loaded is passed over.
pub(crate) fn load_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(path) = std::env::var_os(VARIABLE) else { return };
        let Ok(path) = CString::new(path.into_encoded_bytes()) else { return };
        let path: *const c_char = path.as_ptr();
        // SAFETY: a zero-terminated string; that the library may be loaded is the word of who set the variable.
        let library = unsafe { libc::dlopen(path, libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return;
        }
        // SAFETY: an open library and a zero-terminated string.
        let entry: *mut c_void = unsafe { libc::dlsym(library, ENTRY.as_ptr()) };
        if entry.is_null() {
            return;
        }
        // SAFETY: the function of this name has this type, by the driver's convention.
        let entry: extern "C" fn() -> i32 = unsafe { std::mem::transmute(entry) };
        entry();
    });
}
