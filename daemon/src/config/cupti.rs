//! `[cupti]`: whether performance monitors are sampled, where, and by which library.

use std::path::PathBuf;

use toml::de::DeValue;
use warpmeter_cuda::{Architecture, PmSampling};

use super::reader::Section;
use super::values;

/// Sampling of performance monitors. Off unless asked for: each has one owner on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CuptiOptions {
    /// Whether it is done at all.
    pub enabled: bool,
    /// Directories or files in which `libcupti` is looked for, in order; empty: the built-in list.
    pub libraries: Vec<PathBuf>,
    /// Generations of GPUs that are sampled.
    pub architectures: Vec<Architecture>,
    /// Devices that are sampled, by UUID or PCI bus id; empty: all of those generations.
    pub devices: Vec<String>,
}

impl Default for CuptiOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            libraries: Vec::new(),
            architectures: Architecture::WITHOUT_GPM.into(),
            devices: Vec::new(),
        }
    }
}

impl CuptiOptions {
    /// What is wanted, if anything is.
    pub fn wanted(&self) -> Option<PmSampling> {
        self.enabled.then(|| PmSampling {
            libraries: self.libraries.clone(),
            architectures: self.architectures.clone(),
            devices: self.devices.clone(),
        })
    }
}

pub(super) fn read(section: &mut Section<'_>, options: &mut CuptiOptions) -> bool {
    section.read(&["enabled", "libraries", "architectures", "devices"], |section, key| match key {
        "enabled" => section.set(key, &mut options.enabled, values::boolean),
        "libraries" => section.set(key, &mut options.libraries, values::paths),
        "architectures" => section.set(key, &mut options.architectures, architectures),
        "devices" => section.set(key, &mut options.devices, devices),
        _ => false,
    })
}

fn architectures(value: &DeValue<'_>) -> Result<Vec<Architecture>, String> {
    let wanted = format!("wants a list of {}", Architecture::ALL.map(Architecture::name).join(", "));
    let named = |name: &String| Architecture::named(name).ok_or_else(|| format!("{wanted}, got {name:?}"));
    let names = values::texts(value).map_err(|got| format!("{wanted}: {got}"))?;
    names.iter().map(named).collect()
}

fn devices(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let wanted = "wants UUIDs (GPU-…) or PCI bus ids (0000:17:00.0)";
    let names = values::texts(value).map_err(|got| format!("{wanted}: {got}"))?;
    let is_place = |name: &str| {
        name.matches(':').count() == 2 && name.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
    };
    match names.iter().find(|name| !name.starts_with("GPU-") && !is_place(name)) {
        Some(other) => Err(format!("{wanted}, got {other:?}")),
        None => Ok(names),
    }
}
