//! Pods that want no probes in their processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use warpmeter_core::fact::Source;
use warpmeter_core::identity::PodUid;

/// The pods that their labels or annotations, or the file of pods, exempt from probes. Shared between the source that
/// learns it and the supervisor of the process that has to heed it.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    pods: Arc<Mutex<BTreeMap<Source, BTreeSet<PodUid>>>>,
}

impl Refusals {
    /// Replaces those that a source has named.
    pub fn set(&self, source: Source, pods: BTreeSet<PodUid>) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(source, pods);
    }

    /// All of them now.
    pub fn get(&self) -> BTreeSet<PodUid> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.values().flatten().cloned().collect()
    }
}
