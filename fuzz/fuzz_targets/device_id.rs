//! Device ids as allocators write them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(id) = std::str::from_utf8(data) {
        warpmeter_core::device_id::parse(id);
    }
});
