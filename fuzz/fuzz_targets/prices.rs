//! The price file and the file of node labels.
#![no_main]

use warpmeter::prices::{file, labels};
use warpmeter_core::price::Price;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match file::parse(data, "USD") {
        Ok(file) => assert!(file.rows.iter().all(|row| row.quote.price <= Price::HIGHEST)),
        Err(problems) => {
            assert!(problems.iter().all(|problem| problem.starts_with("line ") || problem.starts_with("and ")));
            assert!(!problems.is_empty());
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Err(problems) = labels::parse(text) {
            assert!(!problems.is_empty());
        }
    }
});
