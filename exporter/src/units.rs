//! From exact integers to base units as floats: the only floats there are, and only for display.
//!
//! Every conversion is monotone, so a counter that never falls in the ledger never falls in the text.
#![allow(clippy::cast_precision_loss, reason = "the text format carries 64-bit floats; ledgers stay exact")]

use warpmeter_core::price::{Money, Price};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::MonoNs;
use warpmeter_core::view::View;

/// Seconds of so many nanoseconds.
pub(crate) const fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Joules of so many microjoules.
pub(crate) const fn joules(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// Watts of so many milliwatts.
pub(crate) const fn watts(milli: u64) -> f64 {
    milli as f64 / 1e3
}

/// Hertz of so many megahertz.
pub(crate) const fn hertz(mega: u64) -> f64 {
    mega as f64 * 1e6
}

/// Degrees as they are.
pub(crate) const fn celsius(degrees: i64) -> f64 {
    degrees as f64
}

/// A number of things.
pub(crate) const fn count(number: u64) -> f64 {
    number as f64
}

/// A number of things that may be beyond 64 bits.
pub(crate) const fn large(number: u128) -> f64 {
    number as f64
}

/// 1 or 0.
pub(crate) const fn flag(set: bool) -> f64 {
    if set { 1.0 } else { 0.0 }
}

/// A ratio from 0 to 1.
pub(crate) const fn ratio(ratio: Ppb) -> f64 {
    ratio.parts() as f64 / 1e9
}

/// Currency units. The divisor is exact: its odd part has 43 bits.
pub(crate) const fn money(amount: Money) -> f64 {
    amount.0 as f64 / Money::UNIT as f64
}

/// Currency units per hour.
pub(crate) const fn price(price: Price) -> f64 {
    price.0 as f64 / 1e6
}

/// Seconds from 1970 to the beginning of a day, in UTC.
pub(crate) const fn day(days: u32) -> f64 {
    days as f64 * 86_400.0
}

/// Seconds since 1970, to the millisecond: more digits than a float of that size can tell apart help nobody.
pub(crate) const fn timestamp(nanos: u64) -> f64 {
    (nanos / 1_000_000) as f64 / 1e3
}

/// Wall clock at `at`, in nanoseconds since 1970; none before the view has one.
pub(crate) fn wall(view: &View, at: MonoNs) -> Option<u64> {
    (view.wall > 0).then(|| view.wall.saturating_sub(view.at.since(at)))
}

/// The share that `part` is of `whole`, which is not 0.
pub(crate) const fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// MiB of so many bytes.
pub(crate) const fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Millijoules of so many microjoules.
pub(crate) const fn millijoules(micro: u64) -> f64 {
    micro as f64 / 1e3
}

/// How many a second, of so many in so many nanoseconds; none of no time.
pub(crate) fn per_second(number: u128, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| number as f64 / seconds(nanos))
}

/// Gigabytes (10⁹) of so many bytes.
pub(crate) const fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}
