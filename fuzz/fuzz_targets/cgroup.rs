//! The text of /proc/PID/cgroup.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    warpmeter::host::cgroup::scope(&String::from_utf8_lossy(data));
});
