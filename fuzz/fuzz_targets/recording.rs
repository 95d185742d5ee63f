//! A recording's lines, which are also what the source processes send: no facts may break the ledgers.
#![no_main]

use warpmeter_core::fact::Sample;
use warpmeter_core::fold::Fold;
use warpmeter_core::settings::Settings;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut fold = Fold::new(Settings::default());
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(sample) = serde_json::from_slice::<Sample>(line) {
            if let Some(view) = fold.apply(sample) {
                assert_eq!(view.conservation_error, 0);
            }
        }
    }
});
