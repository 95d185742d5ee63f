//! What the kernel module says of a GPU without any call to it: a name for one that must not or cannot be asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use warpmeter_core::identity::GpuId;
use warpmeter_core::inventory::{Authority, Gpu};

/// Where the kernel module lists its GPUs.
const ROOT: &str = "/proc/driver/nvidia/gpus";

/// The file takes locks of the module, so that a GPU that hangs could hang its reader too.
const PATIENCE: Duration = Duration::from_millis(200);

/// The PCI bus ids that the kernel module drives, in order, in the library's spelling.
pub(crate) fn pci_bus_ids() -> Vec<String> {
    let Ok(entries) = fs::read_dir(ROOT) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut ids: Vec<String> = names.map(|name| library_spelling(&name)).collect();
    ids.sort_unstable();
    ids
}

/// The GPU at this bus id, as far as the kernel module names it; without an answer within a fifth of a second, nothing.
pub(crate) fn gpu(pci_bus_id: &str, down: &str) -> Option<Gpu> {
    let path = Path::new(ROOT).join(kernel_spelling(pci_bus_id)).join("information");
    let text = read(path)?;
    parse(&text, pci_bus_id, down)
}

/// Reads on a thread of its own, which is left behind if it does not come back.
fn read(path: PathBuf) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    let reader = move || {
        // Nobody may be waiting any more; then nobody wants it.
        if let Ok(text) = fs::read_to_string(path) {
            sender.send(text).unwrap_or_default();
        }
    };
    std::thread::Builder::new().name("procfs".to_owned()).spawn(reader).ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

fn parse(text: &str, pci_bus_id: &str, down: &str) -> Option<Gpu> {
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, v)| v.trim())
    };
    // A GPU that was never initialised has a UUID of question marks.
    let uuid = field("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'))?;
    Some(Gpu {
        id: GpuId::new(uuid),
        index: None,
        minor: field("Device Minor").and_then(|minor| minor.parse().ok()),
        pci_bus_id: pci_bus_id.to_owned(),
        model: field("Model").unwrap_or_default().to_owned(),
        memory_bytes: None,
        memory_bus: None,
        link: None,
        down: Some(down.to_owned()),
        mig: None,
        authority: Authority::default(),
    })
}

/// The library writes eight digits of domain, in capitals.
fn library_spelling(id: &str) -> String {
    let (domain, rest) = id.split_once(':').unwrap_or(("0", id));
    format!("{domain:0>8}:{rest}").to_uppercase()
}

/// The kernel writes four digits of domain, in small letters.
fn kernel_spelling(id: &str) -> String {
    let (domain, rest) = id.split_once(':').unwrap_or(("0", id));
    let domain = domain.trim_start_matches('0');
    format!("{domain:0>4}:{rest}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 420\nGPU UUID: \t GPU-5a5a7118-e550-79a1-597e-7631e126c57a\nBus Location: \t 0000:17:00.0\nDevice Minor: \t 3\n";

    #[test]
    fn a_gpu_is_named_without_a_call() {
        let gpu = parse(TEXT, "00000000:17:00.0", "lost").unwrap();
        assert_eq!(gpu.id.as_str(), "GPU-5a5a7118-e550-79a1-597e-7631e126c57a");
        assert_eq!(
            (gpu.minor, gpu.model.as_str(), gpu.down.as_deref()),
            (Some(3), "NVIDIA H100 80GB HBM3", Some("lost"))
        );
    }

    #[test]
    fn a_gpu_that_was_never_initialised_has_no_name() {
        assert_eq!(parse(&TEXT.replace("5a5a7118", "????????"), "x", "lost"), None);
        assert_eq!(parse("", "x", "lost"), None);
    }

    #[test]
    fn bus_ids_are_spelled_in_two_ways() {
        assert_eq!(kernel_spelling("00000000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(library_spelling("0000:c1:00.0"), "00000000:C1:00.0");
        assert_eq!(kernel_spelling("00010000:C1:00.0"), "10000:c1:00.0");
    }
}
