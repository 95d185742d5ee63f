//! The API server's answer, with the labels and annotations that anybody can set.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let keys = warpmeter::names::LabelKeys::default();
    if let Ok(pods) = warpmeter::names::parse(data, &keys) {
        for pod in pods {
            assert!(pod.info.team.len() <= 128 && pod.info.workload.len() <= 253);
            assert!(pod.allotments.len() <= 256);
        }
    }
});
