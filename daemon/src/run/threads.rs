//! The threads of a run, which end together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::RunError;

/// The threads of a run. All end when this is dropped, also if the next one cannot be started.
#[derive(Debug, Default)]
pub(super) struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts one, which is to end when its argument is set.
    pub(super) fn start(
        &mut self,
        name: &str,
        body: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), RunError> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&stop));
        self.handles.push(thread.map_err(|source| RunError::Start { attempt: "start a thread", source })?);
        Ok(())
    }

    /// Tells all to end, and waits until they have.
    pub(super) fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a thread panicked: its last figures are missing");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.join();
    }
}
