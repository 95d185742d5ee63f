//! The page of a neighbouring DCGM exporter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let page = warpmeter::dcgm::parse(data);
    assert!(page.devices.len() <= 1024);
    assert!(page.devices.keys().all(|place| !place.gpu.is_empty() && place.gpu.len() <= 128));
});
