//! `[dcgm]`: a neighbouring exporter of DCGM's profiling fields, and how it is read.

use std::time::Duration;

use toml::de::DeValue;

use super::reader::Section;
use super::values;
use crate::dcgm::{DcgmOptions, Endpoint};

/// Which part of the interval a period is at most.
const MOST: u32 = 3;
/// Which part it is unless it is set.
const USUAL: u32 = 6;

pub(super) fn read(section: &mut Section<'_>, options: &mut Option<DcgmOptions>) -> bool {
    let (mut url, mut period, mut timeout) = (None, None, None);
    let mut interval = Duration::from_secs(30);
    let (mut most, mut ratios) = (None, false);
    section.read(&["url", "interval", "period", "timeout", "max_bytes", "scale"], |section, key| match key {
        "url" => section.set_some(key, &mut url, endpoint),
        "interval" => section.set(key, &mut interval, long),
        "period" => section.set_some(key, &mut period, values::period),
        "timeout" => section.set_some(key, &mut timeout, values::period),
        "max_bytes" => section.set_some(key, &mut most, values::bytes),
        "scale" => section.set(key, &mut ratios, ratios_stated),
        _ => false,
    });
    section.require("url");
    let period = period.unwrap_or(interval / USUAL);
    if period > interval / MOST {
        section.refuse(
            "period",
            "wants at most a third of `interval`: a value is told from the next by looking at it twice",
        );
    }
    if timeout.is_some_and(|timeout| timeout > period) {
        section.refuse("timeout", "wants at most `period`");
    }
    if let Some(url) = url {
        let defaults = DcgmOptions::new(url);
        let timeout = timeout.unwrap_or(defaults.timeout.min(period));
        let most = most.unwrap_or(defaults.most);
        *options = Some(DcgmOptions { interval, period, timeout, most, ratios, ..defaults });
    }
    true
}

fn endpoint(value: &DeValue<'_>) -> Result<Endpoint, String> {
    Ok(Endpoint::parse(&values::text(value)?)?)
}

/// An exporter's interval. The source is asked five times a second, and cannot follow a faster one; rules take rates over
/// five minutes.
fn long(value: &DeValue<'_>) -> Result<Duration, String> {
    values::duration(value, Duration::from_secs(2), Duration::from_mins(2)).map(Duration::from_nanos)
}

/// Whether the page is stated to be in ratios.
fn ratios_stated(value: &DeValue<'_>) -> Result<bool, String> {
    let wanted = "wants \"ratio\" (DCGM's own, from 0 to 1) or \"auto\"";
    match &*values::text(value).map_err(|got| format!("{wanted}: {got}"))? {
        "ratio" => Ok(true),
        "auto" => Ok(false),
        other => Err(format!("{wanted}, got {other:?}")),
    }
}
