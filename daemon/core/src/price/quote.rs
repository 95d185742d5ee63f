//! One figure, with where it is from.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Date, Price};

/// How a node is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    /// By the hour, at the list price.
    OnDemand,
    /// Until the provider wants it back.
    Spot,
    /// Committed to for a term.
    Reserved,
}

impl Capacity {
    /// The type as a label value and as it is configured.
    pub const fn label(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
        }
    }

    /// The type that `text` names: in any case, with or without the dash.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().replace(['-', '_', ' '], "").as_str() {
            "ondemand" => Some(Self::OnDemand),
            "spot" => Some(Self::Spot),
            "reserved" => Some(Self::Reserved),
            _ => None,
        }
    }
}

/// Which layer of the price book a figure is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A price in the configuration.
    #[default]
    Configuration,
    /// Owned hardware, by amortisation.
    Owned,
    /// The price file.
    File,
    /// The table that comes with Warpmeter.
    BuiltIn,
}

impl Origin {
    /// The layer as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Owned => "owned",
            Self::File => "file",
            Self::BuiltIn => "built_in",
        }
    }
}

/// A price, who says so, and as of when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Quote {
    /// The price.
    pub price: Price,
    /// The layer of the book that it is from.
    pub origin: Origin,
    /// Who says so, such as `contract` or `AWS us-east-1`.
    pub source: Arc<str>,
    /// The day for which it was true.
    pub as_of: Option<Date>,
    /// How the node is paid for, if the figure depends on it.
    pub capacity: Option<Capacity>,
}

/// As recordings have it: those made before quotes had a source hold the bare number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Bare(Price),
    Full {
        price: Price,
        #[serde(default)]
        origin: Origin,
        #[serde(default)]
        source: Arc<str>,
        #[serde(default)]
        as_of: Option<Date>,
        #[serde(default)]
        capacity: Option<Capacity>,
    },
}

impl From<Written> for Quote {
    fn from(written: Written) -> Self {
        match written {
            Written::Bare(price) => Self::configured(price),
            Written::Full { price, origin, source, as_of, capacity } => {
                Self { price, origin, source, as_of, capacity }
            }
        }
    }
}

impl Quote {
    /// A price of the configuration that says no more.
    pub fn configured(price: Price) -> Self {
        let source = Origin::Configuration.label().into();
        Self { price, origin: Origin::Configuration, source, as_of: None, capacity: None }
    }

    /// The same figure's origin with another price.
    #[must_use]
    pub fn at(&self, price: Price) -> Self {
        Self { price, ..self.clone() }
    }

    /// `part` of `whole` parts of the price, rounded down.
    pub fn share(&self, part: u32, whole: u32) -> Price {
        self.price.share(part.into(), whole.into())
    }

    /// The same for a node that is paid for so.
    #[must_use]
    pub fn paid(&self, capacity: Option<Capacity>) -> Self {
        Self { capacity, ..self.clone() }
    }
}

/// Where the figure is from, without the figure: `contract (configuration), spot, as of 2026-07-20`.
impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Configuration => "configuration",
            Origin::Owned => "owned hardware",
            Origin::File => "price file",
            Origin::BuiltIn => "built-in table",
        };
        if *self.source == *self.origin.label() || self.source.is_empty() {
            f.write_str(origin)?;
        } else {
            write!(f, "{} ({origin})", self.source)?;
        }
        if let Some(capacity) = self.capacity {
            write!(f, ", {}", capacity.label())?;
        }
        match self.as_of {
            Some(date) => write!(f, ", as of {date}"),
            None => f.write_str(", without a date"),
        }
    }
}
