//! What can go wrong when a simulated node is made or opened.

use std::path::PathBuf;

/// A failure to make, open or change a simulated node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario is not valid TOML, or holds a key that does not exist.
    #[error("scenario: {0}")]
    Scenario(Box<toml::de::Error>),
    /// The scenario is well formed and asks for something impossible.
    #[error("scenario: {0}")]
    Invalid(String),
    /// A file could not be read, written or mapped.
    #[error("{action} {path}")]
    File {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The state file was made by another version of the simulator.
    #[error("{0} is not a state file of this simulator version")]
    Version(PathBuf),
    /// The fault table is full.
    #[error("no room for another fault; clear the old ones")]
    FaultsFull,
}

impl Error {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::File { action, path: path.into(), source: source.into() }
    }
}

/// Why the model refused a request; each driver library turns it into its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A fixed table is full.
    Table,
    /// The stream's queue is full; the caller waits and tries again.
    QueueFull,
    /// Device memory is exhausted.
    Memory,
    /// The handle names nothing alive.
    Handle,
    /// The device is lost.
    Lost,
}
