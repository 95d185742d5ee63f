//! The kubelet's answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let options = warpmeter::kubelet::KubeletOptions::default();
    if let Some(grants) = warpmeter::kubelet::grants(data, &options) {
        // No grant comes out that the bytes could not hold.
        assert!(grants.len() <= data.len());
    }
});
