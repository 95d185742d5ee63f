//! What this node's GPUs cost: from the configuration, a price file, and the node's labels.
//!
//! ```text
//! file     the price file: CSV in the columns of OpenCost's custom pricing → rows of the book
//! labels   the file of the node's labels
//! watched  a file that is read again when it changes; one with problems changes nothing
//! source   all of it → prices, a fact whenever they change
//! ```
//!
//! Which of several prices counts is decided in [`warpmeter_core::price::Book::resolve`].

pub mod file;
pub mod labels;
mod source;
mod watched;

use std::path::PathBuf;

use warpmeter_core::price::{Book, Capacity};

use crate::names::NamesOptions;

pub use source::PriceSource;

/// What the configuration says of prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceOptions {
    /// The book without the rows of the price file.
    pub book: Book,
    /// The price file.
    pub file: Option<PathBuf>,
    /// The file of the node's labels.
    pub node_labels: Option<PathBuf>,
    /// How the API server is asked for the node's labels, if it is.
    pub api: Option<NamesOptions>,
    /// The instance type; it goes before the label.
    pub instance_type: Option<String>,
    /// How the node is paid for; it goes before the labels.
    pub capacity: Option<Capacity>,
}

impl Default for PriceOptions {
    fn default() -> Self {
        Self {
            book: Book { currency: "USD".into(), ..Book::default() },
            file: None,
            node_labels: None,
            api: None,
            instance_type: None,
            capacity: None,
        }
    }
}

impl PriceOptions {
    /// Whether prices can change while the daemon runs.
    pub fn can_change(&self) -> bool {
        self.file.is_some() || self.node_labels.is_some() || self.api.is_some()
    }
}

#[cfg(test)]
mod tests;
