//! Whether what is exported can be relied on, and if not, why.

use warpmeter_core::fact::{HealthState, Source};
use warpmeter_core::time::SECOND;
use warpmeter_core::view::{SourceView, View};

/// From how long a silence of all GPUs on the node is not ready, in nanoseconds.
const SILENT: u64 = 60 * SECOND;

/// The reasons why `view` is not ready to be relied on; none if it is.
///
/// It is ready once a window has closed, while there is a GPU, at least one can be read, and no source is down, but for
/// a neighbour's exporter: only SM figures depend on that, and all others can be relied on without it.
pub fn reasons(view: &View) -> Vec<String> {
    let mut reasons = Vec::new();
    let nvidia = view.sources.iter().find(|source| source.source == Source::Nvidia);
    if view.gpus.is_empty() {
        let why = nvidia.map(|source| source.reason.as_str()).filter(|reason| !reason.is_empty());
        reasons.push(format!("no GPU: {}", why.unwrap_or("the driver has shown none")));
    } else if view.gpus.iter().all(|gpu| !gpu.up) {
        let downs = view
            .gpus
            .iter()
            .map(|gpu| format!("{} ({})", gpu.gpu.id, gpu.gpu.down.as_deref().unwrap_or("it is not read")));
        reasons.push(format!("no GPU can be read: {}", downs.collect::<Vec<_>>().join(", ")));
    } else if let Some(quiet) = view.gpus.iter().filter_map(|gpu| gpu.last_reading).max() {
        let quiet = view.at.since(quiet);
        if quiet > SILENT {
            reasons.push(format!("no GPU has been read for {} s", quiet / SECOND));
        }
    }
    // The reason of the driver's source already stands above where there is no GPU.
    let told = |source: &SourceView| view.gpus.is_empty() && source.source == Source::Nvidia;
    // What they give is extra.
    let neighbour = |source: &SourceView| matches!(source.source, Source::Dcgm | Source::Inject);
    let down = view.sources.iter().filter(|source| source.state == Some(HealthState::Down));
    for source in down.filter(|source| !told(source) && !neighbour(source)) {
        reasons.push(format!("source {} is down: {}", source.source.label(), source.reason));
    }
    if view.windows == 0 {
        reasons.push("no window has closed yet".to_owned());
    }
    reasons
}
