//! The opaque images: a configuration, and decoded counter data.

use warpmeter_simgpu::layout::MonitorSample;

use crate::abi::{Answer, INVALID_PARAMETER};

/// Marks a configuration image.
const CONFIG: &[u8; 4] = b"cfg1";
/// Marks a counter data image.
const DATA: u64 = 0x6461_7461_3170_6d73;
/// Words before the samples: mark, device, room, number of samples.
const HEAD: usize = 4;
/// Words of a sample: start, end, and seven integrals.
const SAMPLE: usize = 9;

/// Which metrics are to be counted on which chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) chip: String,
    pub(crate) metrics: Vec<u8>,
}

impl Config {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = CONFIG.to_vec();
        bytes.extend(self.chip.bytes().chain([0]));
        bytes.extend(&self.metrics);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Answer<Self> {
        let rest = bytes.strip_prefix(CONFIG).ok_or(INVALID_PARAMETER)?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(INVALID_PARAMETER)?;
        let chip = String::from_utf8(rest[..end].to_vec()).map_err(|_| INVALID_PARAMETER)?;
        Ok(Self { chip, metrics: rest[end + 1..].to_vec() })
    }
}

/// Decoded samples of a device, in a buffer for `room` of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) device: usize,
    pub(crate) room: usize,
    pub(crate) samples: Vec<MonitorSample>,
}

/// The bytes of an image for `room` samples.
pub(crate) const fn size(room: usize) -> usize {
    (HEAD + room * SAMPLE) * 8
}

/// The samples that an image of so many bytes has room for.
pub(crate) const fn room(bytes: usize) -> usize {
    (bytes / 8).saturating_sub(HEAD) / SAMPLE
}

impl Data {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut words = vec![DATA, self.device as u64, self.room as u64, self.samples.len() as u64];
        for sample in &self.samples {
            let used = sample.used;
            words.extend([sample.start, sample.end, used.sm, used.occupied, used.tensor, used.dram]);
            words.extend([used.rx, used.tx, used.active]);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn read(bytes: &[u8]) -> Answer<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or(INVALID_PARAMETER)
        };
        let index = |at: usize| usize::try_from(word(at)?).map_err(|_| INVALID_PARAMETER);
        let (device, room, count) = (index(1)?, index(2)?, index(3)?);
        if word(0)? != DATA || count > room || bytes.len() < size(room) {
            return Err(INVALID_PARAMETER);
        }
        let sample = |n: usize| {
            let at = HEAD + n * SAMPLE;
            let mut sample =
                MonitorSample { start: word(at)?, end: word(at + 1)?, ..MonitorSample::default() };
            sample.used.sm = word(at + 2)?;
            sample.used.occupied = word(at + 3)?;
            sample.used.tensor = word(at + 4)?;
            sample.used.dram = word(at + 5)?;
            sample.used.rx = word(at + 6)?;
            sample.used.tx = word(at + 7)?;
            sample.used.active = word(at + 8)?;
            Ok(sample)
        };
        Ok(Self { device, room, samples: (0..count).map(sample).collect::<Answer<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_read_as_they_were_written_and_others_are_refused() {
        let config = Config { chip: "GA100".to_owned(), metrics: vec![0, 3, 8] };
        assert_eq!(Config::read(&config.write()), Ok(config));
        assert_eq!(Config::read(b"other"), Err(INVALID_PARAMETER));
        let mut sample = MonitorSample { start: 1, end: 2, ..MonitorSample::default() };
        (sample.used.sm, sample.used.tx) = (3, 4);
        let data = Data { device: 5, room: room(size(7)), samples: vec![sample; 2] };
        assert_eq!(data.room, 7);
        let mut bytes = data.write();
        bytes.resize(size(7), 0xff);
        assert_eq!(Data::read(&bytes), Ok(data));
        assert_eq!(Data::read(&bytes[..size(7) - 1]), Err(INVALID_PARAMETER));
    }
}
