//! The table of metrics: an API. A change of a name or a label needs a deprecated release between.
//!
//! One row a family, grouped by what it is about. A reader gives no series for what is not known, and never a
//! total beside its parts. Counters start at 0 when the daemon starts.

mod board;
mod device;
mod namespace;
mod own;
mod owner;
mod pod;
mod price;

use serde::{Deserialize, Serialize};
use warpmeter_core::view::View;

use crate::rows::Rows;

/// Every family, in the order of the exposition.
pub static CATALOGUE: [Group; 7] =
    [device::GROUP, board::GROUP, namespace::GROUP, pod::GROUP, owner::GROUP, price::GROUP, own::GROUP];

/// Every family, in the order of the exposition.
pub fn families() -> impl Iterator<Item = &'static Family> {
    CATALOGUE.iter().flat_map(|group| group.families)
}

/// Families about one thing.
#[derive(Debug)]
pub struct Group {
    /// A heading.
    pub title: &'static str,
    /// What holds for all of them.
    pub about: &'static str,
    /// The families.
    pub families: &'static [Family],
}

/// One metric family.
#[derive(Debug)]
pub struct Family {
    /// Its full name.
    pub name: &'static str,
    /// What it tells, in one line.
    pub help: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// From which level on it is exported.
    pub level: Level,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// Reads its series from a view.
    pub(crate) read: fn(&View, &mut Rows<'_>),
}

/// How much is exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// GPU time and its cost, identities, and the health of sources.
    Minimal,
    /// Everything that costs a handful of series per pod and device.
    #[default]
    Standard,
    /// Everything.
    Full,
}

impl Level {
    /// The level as its setting is written.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

/// What its values are, and whether they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the daemon runs.
    Counter,
    /// It rises and falls, and is gone with what it describes.
    Gauge,
    /// How many were no larger than each of some bounds (`_bucket` with `le`), how many at all (`_count`), and their
    /// sum (`_sum`). All only grow.
    Histogram,
}

impl Kind {
    /// The kind as the exposition format calls it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a value counts: base units only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds of time on one physical GPU.
    GpuSeconds,
    /// Seconds.
    Seconds,
    /// Seconds since 1970.
    Timestamp,
    /// Units of the currency in the label.
    Currency,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Floating-point operations per second.
    FlopsPerSecond,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// Hertz.
    Hertz,
    /// From 0 to 1.
    Ratio,
    /// Physical GPUs.
    Gpus,
    /// Things.
    Count,
    /// 1 for yes, 0 for no.
    Flag,
    /// Always 1: the labels tell.
    Info,
}

impl Unit {
    /// The unit as the documentation writes it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::GpuSeconds => "GPU seconds",
            Self::Seconds => "seconds",
            Self::Timestamp => "seconds since 1970",
            Self::Currency => "currency units",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::FlopsPerSecond => "operations per second",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Celsius => "°C",
            Self::Hertz => "hertz",
            Self::Ratio => "ratio 0–1",
            Self::Gpus => "GPUs",
            Self::Count => "count",
            Self::Flag => "0 or 1",
            Self::Info => "1",
        }
    }
}

type Read = fn(&View, &mut Rows<'_>);

const fn counter(
    name: &'static str,
    unit: Unit,
    level: Level,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Family {
    Family { name, help, kind: Kind::Counter, unit, level, labels, read }
}

const fn gauge(
    name: &'static str,
    unit: Unit,
    level: Level,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Family {
    Family { name, help, kind: Kind::Gauge, unit, level, labels, read }
}

const fn histogram(
    name: &'static str,
    unit: Unit,
    level: Level,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Family {
    Family { name, help, kind: Kind::Histogram, unit, level, labels, read }
}
