//! The libraries that processes map, of which containers bring their own.
#![no_main]

use warpmeter_ebpf::elf::functions;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(found) = functions(data, |name| name.starts_with(b"cu").then_some(name.len())) {
        assert!(found.is_sorted_by_key(|function| function.start));
        assert!(found.iter().all(|function| function.probe() < data.len() as u64));
    }
});
