//! The prices of one node, as they hold from one moment on.

use serde::{Deserialize, Serialize};

use super::{Price, Quote};
use crate::words::by_words;

/// Parts in one: host shares and discounts are in millionths.
const MILLION: u64 = 1_000_000;

/// The prices of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prices {
    /// The currency of all of them, as its ISO 4217 code.
    pub currency: String,
    /// Prices of whole GPUs by words of the product name, such as `H100`.
    pub models: Vec<(String, Quote)>,
    /// The price of GPUs that no word matches.
    pub other: Option<Quote>,
    /// The price of the node, which is that of GPUs which have none of the above.
    #[serde(default)]
    pub node: Option<NodePrice>,
    /// Prices by words of the product name, of GPUs which have none of the above.
    #[serde(default)]
    pub fallback: Vec<(String, Quote)>,
    /// The price of a kilowatt-hour.
    #[serde(default)]
    pub energy: Option<Quote>,
    /// What part of a physical GPU one device of this node is, if it is less than all: numerator, denominator.
    #[serde(default)]
    pub part: Option<(u32, u32)>,
    /// Why the GPUs of this node have no price and what to set; empty if they have one.
    #[serde(default)]
    pub missing: String,
}

/// The price of a whole node, and how it is divided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodePrice {
    /// The price of the node.
    pub quote: Quote,
    /// Over how many devices it is divided; none: over those that the driver shows.
    pub gpus: Option<u32>,
    /// The part that is not the GPUs', in millionths: below a million.
    pub host_share: u32,
}

/// What a GPU's time costs, and which figure says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate<'p> {
    /// The price of the device.
    pub price: Price,
    /// The figure that it is, or is a part of.
    pub quote: &'p Quote,
    /// Whether it is the GPU's part of the node's price.
    pub of_node: bool,
}

impl Prices {
    /// The price of a GPU of which the node has `gpus`.
    ///
    /// By words: that of the longest key of which each word is a word of the product name; ties in order of name.
    /// Upper and lower case are the same. Where devices are parts of physical GPUs, a whole GPU's price is scaled;
    /// a node's price is for the parts that it has.
    pub fn of(&self, model: &str, gpus: u32) -> Option<Rate<'_>> {
        let (part, whole) = self.part.unwrap_or((1, 1));
        let scaled = |quote| Rate { price: Quote::share(quote, part, whole), quote, of_node: false };
        if let Some(quote) = by_words(&self.models, model).or(self.other.as_ref()) {
            return Some(scaled(quote));
        }
        if let Some(node) = &self.node {
            return Some(Rate { price: node.per_gpu(gpus), quote: &node.quote, of_node: true });
        }
        by_words(&self.fallback, model).map(scaled)
    }
}

impl NodePrice {
    /// The price of one of the node's GPUs, of which the driver shows `seen`, rounded down to the millionth.
    pub fn per_gpu(&self, seen: u32) -> Price {
        let gpus = self.divisor(seen);
        self.quote.price.share(MILLION.saturating_sub(self.host_share.into()), MILLION * u64::from(gpus))
    }

    /// What is left of the node's price for everything but its GPUs: their prices and this sum to it exactly.
    pub fn host(&self, seen: u32) -> Price {
        let gpus = u64::from(self.divisor(seen)) * self.per_gpu(seen).0;
        Price(self.quote.price.0 - gpus)
    }

    /// Over how many GPUs it is divided. More than were expected must not cost more than the node.
    fn divisor(&self, seen: u32) -> u32 {
        self.gpus.unwrap_or(0).max(seen).max(1)
    }
}
