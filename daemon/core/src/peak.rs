//! What a GPU can do at most: the bandwidth of its memory and the rate of its tensor pipes.
//!
//! Counters give shares of these peaks, and conclusions rest on the shares alone. The peaks only turn shares into
//! bytes and operations for people, so a model that is not known has none: nothing stands in for it.

mod table;

use serde::{Deserialize, Serialize};

use crate::inventory::MemoryBus;
use crate::words::by_words;

/// Peaks of a model as the configuration states them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stated {
    /// Bytes per second of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram: Option<u64>,
    /// Dense 16-bit operations per second of its tensor pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<u64>,
}

/// Peaks by words of the product name, as the configuration states them.
pub type Peaks = Vec<(String, Stated)>;

/// Who says what a peak is, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The configuration.
    Configuration,
    /// The built-in table, which was written after NVIDIA's data sheet of this name: from memory, and partly checked.
    BuiltIn(&'static str),
    /// The driver's width of the memory's bus and highest clock, at two transfers a cycle.
    Driver,
}

impl Origin {
    /// The origin as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::BuiltIn(_) => "built_in",
            Self::Driver => "driver",
        }
    }

    /// Which document it was written after; empty if after none.
    pub const fn document(self) -> &'static str {
        match self {
            Self::BuiltIn(name) => name,
            Self::Configuration | Self::Driver => "",
        }
    }
}

/// A peak, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Bytes or operations per second.
    pub rate: u64,
    /// Who says so.
    pub origin: Origin,
}

/// The peak bandwidth of a GPU's memory, in bytes per second.
pub fn dram(stated: &[(String, Stated)], model: &str, bus: Option<MemoryBus>) -> Option<Peak> {
    let configured = by_words(stated, model).and_then(|stated| stated.dram);
    if let Some(rate) = configured {
        return Some(Peak { rate, origin: Origin::Configuration });
    }
    if let Some(row) = table::of(model) {
        return Some(Peak { rate: row.dram(), origin: Origin::BuiltIn(row.source) });
    }
    let rate = bus.and_then(MemoryBus::bandwidth)?;
    Some(Peak { rate, origin: Origin::Driver })
}

/// The peak rate of a GPU's tensor pipes, in dense 16-bit operations per second.
pub fn tensor(stated: &[(String, Stated)], model: &str) -> Option<Peak> {
    let configured = by_words(stated, model).and_then(|stated| stated.tensor);
    if let Some(rate) = configured {
        return Some(Peak { rate, origin: Origin::Configuration });
    }
    let row = table::of(model)?;
    Some(Peak { rate: row.tensor()?, origin: Origin::BuiltIn(row.source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(key: &str, dram: Option<u64>, tensor: Option<u64>) -> Peaks {
        vec![(key.to_owned(), Stated { dram, tensor })]
    }

    #[test]
    fn a_model_that_nobody_knows_has_no_peak() {
        for model in ["", "NVIDIA H100", "NVIDIA Z9000", "GRID T4-16Q", "NVIDIA A100-SXM4-96GB"] {
            assert_eq!((dram(&[], model, None), tensor(&[], model)), (None, None), "{model}");
        }
    }

    #[test]
    fn the_configuration_goes_before_the_table_and_that_before_the_driver() {
        let (model, bus) = ("NVIDIA H100 80GB HBM3", Some(MemoryBus { clock_mhz: 1, bits: 512 }));
        let of = |peak: Option<Peak>| peak.map(|peak| (peak.rate, peak.origin.label())).unwrap();
        assert_eq!(of(dram(&stated("H100", Some(7), None), model, bus)), (7, "configuration"));
        assert_eq!(of(tensor(&stated("H100", None, Some(9)), model)), (9, "configuration"));
        let only_tensor = stated("H100", None, Some(9));
        assert_eq!(of(dram(&only_tensor, model, bus)), (3_350_000_000_000, "built_in"));
        assert_eq!(of(dram(&only_tensor, "NVIDIA Z9000", bus)), (128_000_000, "driver"));
        assert_eq!(tensor(&stated("H100", None, Some(9)), "NVIDIA Z9000"), None, "another model");
    }

    #[test]
    fn a_bus_that_says_nothing_gives_no_peak() {
        for (clock_mhz, bits) in [(0, 5120), (2619, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(dram(&[], "NVIDIA Z9000", Some(MemoryBus { clock_mhz, bits })), None);
        }
    }
}
