//! The configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Err(problems) = warpmeter::config::Config::parse(text) {
            assert!(!problems.is_empty());
        }
    }
});
