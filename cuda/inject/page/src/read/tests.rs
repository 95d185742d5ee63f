use proptest::prelude::*;

use super::*;
use crate::WORDS;

const HOUR: u64 = 3600 * SECOND;

/// The bytes of a page that says this and nothing else.
fn page(words: &[(usize, u64)]) -> Vec<u8> {
    let mut page = vec![0; BYTES];
    let head = [(word::MAGIC, MAGIC), (word::VERSION, VERSION), (word::ELAPSED, HOUR)];
    for (place, value) in head.iter().chain(words) {
        page[place * 8..place * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Words of the first device, by their places in it.
fn with_device(words: &[(usize, u64)]) -> Vec<u8> {
    let named = [(device::first(0) + device::UUID, 1)];
    let own = words.iter().map(|(place, value)| (device::first(0) + place, *value));
    page(&named.into_iter().chain(own).collect::<Vec<_>>())
}

#[test]
fn a_page_is_read_as_it_stands() {
    let mut bytes = with_device(&[
        (device::UUID + 1, u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15])),
        (device::CAPABILITY, 9 << 32 | 1),
        (device::BUSY, 5),
        (device::RAN, 4),
        (device::INTERRUPTED, 1),
        (device::KERNELS, 3),
        (device::NANOS, 9),
        (device::TO_HOST, 7),
        (device::TO_HOST + 1, 700),
        (device::TO_HOST + 2, 70),
        (device::UNSHAPED, 2),
    ]);
    let shapes = [(shape::LAUNCH, 256 | 40 << 16 | 4096 << 32), (shape::KERNELS, 2), (shape::NANOS, 7)];
    for (place, value) in shapes {
        let at = (shape::first(0, 0) + place) * 8;
        bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    let page = Page::read(&bytes).unwrap();
    let [found] = &page.devices[..] else { panic!("{page:?}") };
    assert_eq!(found.uuid, [1, 0, 0, 0, 0, 0, 0, 0, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!((found.mig, found.capability), (None, (9, 1)));
    assert_eq!((found.busy, found.ran, found.interrupted, found.kernels, found.nanos), (5, 4, 1, 3, 9));
    assert_eq!(found.copies[1], Copied { count: 7, bytes: 700, nanos: 70 });
    assert_eq!(found.shapes, [Shape { block: 256, registers: 40, shared: 4096, kernels: 2, nanos: 7 }]);
}

#[test]
fn what_cannot_be_is_refused_and_named() {
    let cases: [(Vec<u8>, Broken); 14] = [
        (Vec::new(), Broken::Size),
        (vec![0; BYTES + 8], Broken::Size),
        (vec![0; BYTES], Broken::Magic),
        (page(&[(word::VERSION, 2)]), Broken::Version(2)),
        (page(&[(word::SEQUENCE, 3)]), Broken::Torn),
        (page(&[(word::PID, 1 << 32)]), Broken::Number("pid")),
        (page(&[(word::STATE, 3)]), Broken::Number("state")),
        (page(&[(word::REASON, 7)]), Broken::Number("reason")),
        (page(&[(word::ELAPSED, u64::MAX)]), Broken::Number("elapsed")),
        (page(&[(word::SAMPLED, HOUR + 1)]), Broken::Number("sampled")),
        (with_device(&[(device::BUSY, 2 * HOUR), (device::NANOS, 2 * HOUR)]), Broken::Number("busy")),
        (with_device(&[(device::BUSY, 6), (device::NANOS, 5)]), Broken::Number("busy")),
        (with_device(&[(device::NANOS, u64::MAX)]), Broken::Number("kernels")),
        (with_device(&[(device::INTERRUPTED, 1)]), Broken::Number("interrupted")),
    ];
    for (bytes, broken) in cases {
        assert_eq!(Page::read(&bytes), Err(broken));
    }
}

#[test]
fn words_have_their_own_places() {
    // Each device and each of its shapes ends where the next begins, and the last where the page does.
    let last = (DEVICES - 1, SHAPES - 1);
    assert_eq!(shape::first(last.0, last.1) + 3, WORDS);
    assert!((1..DEVICES).all(|number| shape::first(number - 1, SHAPES - 1) + 3 == device::first(number)));
    assert!(shape::first(0, 0) > device::first(0) + device::UNSHAPED && device::first(0) > word::WRITTEN);
}

proptest! {
    #[test]
    fn whatever_the_words_are_what_comes_out_can_be(
        words in prop::collection::vec((0..WORDS, any::<u64>(), 0_u32..64), 0..80),
    ) {
        let name = (device::first(0) + device::UUID, 1);
        let words = words.iter().map(|&(place, value, shift)| (place, value >> shift));
        let mut bytes = page(&[name].into_iter().chain(words).collect::<Vec<_>>());
        // Most of them would be refused for their first words.
        bytes[..24].copy_from_slice(&page(&[])[..24]);
        if let Ok(page) = Page::read(&bytes) {
            prop_assert!(page.sampled <= page.elapsed);
            for device in &page.devices {
                prop_assert!(device.ran <= device.busy && device.busy <= page.elapsed + SLACK);
                prop_assert!(device.busy <= device.nanos);
                let shaped: u64 = device.shapes.iter().map(|shape| shape.nanos).sum();
                prop_assert!(shaped <= device.nanos);
            }
        }
    }
}
