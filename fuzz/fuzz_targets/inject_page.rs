//! The page of an injected library, which any process may write. Input: words and their places, ten bytes each.
#![no_main]

use warpmeter_inject_page::{BYTES, Page, WORDS};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert!(Page::read(data).is_err() || data.len() == BYTES);
    let mut page = vec![0; BYTES];
    for word in data.chunks_exact(10) {
        let place = usize::from(u16::from_le_bytes([word[0], word[1]])) % WORDS;
        page[place * 8..place * 8 + 8].copy_from_slice(&word[2..]);
    }
    if let Ok(page) = Page::read(&page) {
        assert!(page.sampled <= page.elapsed);
        for device in &page.devices {
            assert!(device.ran <= device.busy && device.busy <= device.nanos);
            let shaped: u64 = device.shapes.iter().map(|shape| shape.nanos).sum();
            assert!(shaped <= device.nanos);
        }
    }
});
