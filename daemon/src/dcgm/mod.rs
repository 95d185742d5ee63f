//! SM figures of GPUs before Hopper from a neighbour: an exporter of DCGM's profiling fields on this node. Off unless
//! its address is configured.
//!
//! Its page has gauges and no times. [`DcgmSource`] reads it several times in each of the exporter's intervals, and so
//! sees when a value is exchanged for the next: a value is the average from the exchange before to its own. What is
//! not exchanged is not counted, since nobody can tell a steady value from a dead one. Every byte of the page is
//! untrusted.
//!
//! ```text
//! options  where it is read and how often       follow   one device's values over time → averages with an interval
//! fetch    one page: deadline, bounds           source   which device is whose, when it is read, what is said of it
//! page     bytes → values by device             gaps     what is missing, in words
//! figures  values → figures: units, marks       scale    whether ratios are ratios, or percentages
//! ```

mod fetch;
mod figures;
mod follow;
mod gaps;
mod options;
mod page;
mod scale;
mod source;

#[cfg(test)]
mod tests;

pub use options::{DcgmOptions, Endpoint};
pub use page::{Page, parse};
pub use source::DcgmSource;
