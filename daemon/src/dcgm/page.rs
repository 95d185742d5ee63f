//! The exporter's page: Prometheus' text format, of which a few families are looked at.
//!
//! No parser of the whole format: it would keep every series of the node, and let one bad line cost the page. Here a
//! line is a value of a known family, or is passed over; one that is of a known family and cannot be read is counted.

use std::collections::BTreeMap;

/// Bytes of a line. Exporters put labels of pods on theirs.
const LINE: usize = 64 << 10;
/// Devices of a page: 16 GPUs with 7 instances each, eight times.
const DEVICES: usize = 1024;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    /// Graphics or compute engine active.
    Engine,
    /// SM active.
    SmActive,
    /// SM occupied.
    SmOccupied,
    /// Tensor pipes active.
    Tensor,
    /// DRAM active.
    Dram,
    /// PCIe, received, in bytes a second.
    PcieReceive,
    /// PCIe, transmitted, in bytes a second.
    PcieTransmit,
    /// Energy since the driver was loaded: it moves whenever the exporter collects.
    Energy,
    /// Power, which does so nearly always.
    Power,
    /// Utilisation by the driver, in percent, of the last second at most.
    Utilisation,
}

impl Field {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Utilisation as usize + 1;

    /// The families, by their names before and since DCGM 4.6.
    const NAMES: [(&str, Self); 15] = [
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Self::Engine),
        ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", Self::Engine),
        ("DCGM_FI_PROF_SM_ACTIVE", Self::SmActive),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", Self::SmActive),
        ("DCGM_FI_PROF_SM_OCCUPANCY", Self::SmOccupied),
        ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", Self::SmOccupied),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Self::Tensor),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", Self::Tensor),
        ("DCGM_FI_PROF_DRAM_ACTIVE", Self::Dram),
        ("DCGM_FI_PROF_DRAM_UTIL_RATIO", Self::Dram),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", Self::PcieReceive),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", Self::PcieTransmit),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Self::Energy),
        ("DCGM_FI_DEV_POWER_USAGE", Self::Power),
        ("DCGM_FI_DEV_GPU_UTIL", Self::Utilisation),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }
}

/// A GPU as the page names it, or a GPU instance of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The GPU's UUID.
    pub gpu: String,
    /// The GPU instance's id.
    pub instance: Option<u32>,
}

/// What is shown of one field of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Shown {
    /// No series.
    #[default]
    Nothing,
    /// One value: in one series, or in one for each pod.
    Value(f64),
    /// Series with different values.
    Several,
}

impl Shown {
    fn add(&mut self, value: f64) {
        *self = match *self {
            Self::Nothing => Self::Value(value),
            // The same is the same, also if it is no number.
            Self::Value(other) if other.to_bits() == value.to_bits() => Self::Value(value),
            Self::Value(_) | Self::Several => Self::Several,
        };
    }
}

/// All that is looked at of one page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// By device, in the order of `Field`.
    pub devices: BTreeMap<Place, [Shown; Field::COUNT]>,
    /// Lines of known families that cannot be read, or name no device.
    pub unread: u64,
}

/// Reads a page. Any bytes are a page: what is none is one without devices.
pub fn parse(bytes: &[u8]) -> Page {
    let mut page = Page::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let end = line.iter().position(|byte| matches!(byte, b'{' | b' ' | b'\t')).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let Some(field) = std::str::from_utf8(name).ok().and_then(Field::named) else { continue };
        match series(rest) {
            Some((place, value)) if page.devices.contains_key(&place) || page.devices.len() < DEVICES => {
                let device = page.devices.entry(place).or_default();
                if let Some(shown) = device.get_mut(field as usize) {
                    shown.add(value);
                }
            }
            _ => page.unread += 1,
        }
    }
    page
}

/// Labels and value of a series, from behind its name.
fn series(rest: &[u8]) -> Option<(Place, f64)> {
    let rest = std::str::from_utf8(rest).ok().filter(|rest| rest.len() <= LINE)?;
    let mut labels = rest.trim_start().strip_prefix('{')?;
    let mut place = Place { gpu: String::new(), instance: None };
    let rest = loop {
        labels = labels.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = labels.strip_prefix('}') {
            break rest;
        }
        let (key, text) = labels.split_once('=')?;
        let text = text.trim_start().strip_prefix('"')?;
        let end = quoted(text)?;
        let value = text.get(..end)?;
        match key.trim() {
            "UUID" | "uuid" => value.clone_into(&mut place.gpu),
            "GPU_I_ID" if !value.is_empty() => place.instance = Some(value.parse().ok()?),
            _ => {}
        }
        labels = text.get(end + 1..)?;
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let time = words.next().is_none_or(|time| time.parse::<i64>().is_ok());
    let known = !place.gpu.is_empty() && place.gpu.len() <= 128;
    (known && time && words.next().is_none()).then_some((place, value))
}

/// Where a label's value ends: at the first quote that no backslash is before.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}
