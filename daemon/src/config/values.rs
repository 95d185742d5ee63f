//! Values of the configuration. Each parser's error says what would be right.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;
use warpmeter_core::price::{BuiltIn, Capacity, Date, Price, micros};

use super::Level;
use crate::bpf::Enabled;

type Parsed<T> = Result<T, String>;

fn string<'v>(value: &'v DeValue<'_>, wanted: &str) -> Parsed<&'v str> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(format!("wants {wanted}, got {}", other.type_str())),
    }
}

pub(super) fn text(value: &DeValue<'_>) -> Parsed<String> {
    string(value, "a text").map(str::to_owned)
}

pub(super) fn boolean(value: &DeValue<'_>) -> Parsed<bool> {
    match value {
        DeValue::Boolean(value) => Ok(*value),
        other => Err(format!("wants true or false, got {}", other.type_str())),
    }
}

pub(super) fn address(value: &DeValue<'_>) -> Parsed<SocketAddr> {
    let wanted = "an address and port such as \"0.0.0.0:9408\" or \"[::]:9408\"";
    let text = string(value, wanted)?;
    text.parse().map_err(|error| format!("wants {wanted}, got {text:?} ({error})"))
}

pub(super) fn path(value: &DeValue<'_>) -> Parsed<PathBuf> {
    let wanted = "an absolute path";
    let path = PathBuf::from(string(value, wanted)?);
    if path.is_absolute() { Ok(path) } else { Err(format!("wants {wanted}, got \"{}\"", path.display())) }
}

/// An API server's address, which may hold no secret: it is shown wherever something is wrong with it.
pub(super) fn server(value: &DeValue<'_>) -> Parsed<String> {
    let wanted = "https://HOST[:PORT], or http:// with a loopback host, without user and password";
    let text = string(value, wanted)?;
    let scheme = text.starts_with("https://") || text.starts_with("http://");
    if scheme && !text.contains('@') { Ok(text.to_owned()) } else { Err(format!("wants {wanted}")) }
}

/// An absolute path, or none for an empty text.
pub(super) fn optional_path(value: &DeValue<'_>) -> Parsed<Option<PathBuf>> {
    match value {
        DeValue::String(text) if text.is_empty() => Ok(None),
        other => path(other).map(Some),
    }
}

pub(super) fn paths(value: &DeValue<'_>) -> Parsed<Vec<PathBuf>> {
    match value {
        DeValue::Array(values) if !values.is_empty() => {
            values.iter().map(|value| path(value.get_ref())).collect()
        }
        DeValue::Array(_) => Err("wants at least one absolute path, got an empty list".to_owned()),
        other => Err(format!("wants a list of absolute paths, got {}", other.type_str())),
    }
}

pub(super) fn texts(value: &DeValue<'_>) -> Parsed<Vec<String>> {
    match value {
        DeValue::Array(values) => values.iter().map(|value| text(value.get_ref())).collect(),
        other => Err(format!("wants a list of texts, got {}", other.type_str())),
    }
}

/// Who says which pod holds which device, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodsSource {
    Auto,
    Kubelet,
    File,
    None,
}

impl PodsSource {
    /// As it is written.
    pub(super) const fn written(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kubelet => "kubelet",
            Self::File => "file",
            Self::None => "none",
        }
    }
}

pub(super) fn pods_source(value: &DeValue<'_>) -> Parsed<PodsSource> {
    let wanted = "\"auto\", \"kubelet\", \"file\" or \"none\"";
    match string(value, wanted)? {
        "auto" => Ok(PodsSource::Auto),
        "kubelet" => Ok(PodsSource::Kubelet),
        "file" => Ok(PodsSource::File),
        "none" => Ok(PodsSource::None),
        other => Err(format!("wants {wanted}, got {other:?}")),
    }
}

/// A time from a tenth of a second to an hour.
pub(super) fn period(value: &DeValue<'_>) -> Parsed<Duration> {
    duration(value, Duration::from_millis(100), Duration::from_secs(3600)).map(Duration::from_nanos)
}

/// A duration in nanoseconds.
pub(super) fn duration(value: &DeValue<'_>, least: Duration, most: Duration) -> Parsed<u64> {
    let wanted = format!(
        "a duration from {} to {} such as \"1s\" or \"250ms\"",
        humantime::format_duration(least),
        humantime::format_duration(most)
    );
    let text = string(value, &wanted)?;
    let parsed =
        humantime::parse_duration(text).map_err(|error| format!("wants {wanted}, got {text:?} ({error})"))?;
    if parsed < least || parsed > most {
        return Err(format!("wants {wanted}, got {text:?}"));
    }
    u64::try_from(parsed.as_nanos()).map_err(|error| error.to_string())
}

pub(super) fn level(value: &DeValue<'_>) -> Parsed<Level> {
    let wanted = "\"minimal\", \"standard\" or \"full\"";
    match string(value, wanted)? {
        "minimal" => Ok(Level::Minimal),
        "standard" => Ok(Level::Standard),
        "full" => Ok(Level::Full),
        other => Err(format!("wants {wanted}, got {other:?}")),
    }
}

pub(super) fn enabled(value: &DeValue<'_>) -> Parsed<Enabled> {
    let wanted = "wants true, false, \"auto\" or \"proc\"";
    match value {
        DeValue::Boolean(true) => Ok(Enabled::Yes),
        DeValue::Boolean(false) => Ok(Enabled::No),
        DeValue::String(text) if text == "auto" => Ok(Enabled::Auto),
        DeValue::String(text) if text == "proc" => Ok(Enabled::Proc),
        DeValue::String(text) => Err(format!("{wanted}, got {text:?}")),
        other => Err(format!("{wanted}, got {}", other.type_str())),
    }
}

pub(super) fn currency(value: &DeValue<'_>) -> Parsed<String> {
    let wanted = "an ISO 4217 code of three capital letters such as \"USD\"";
    let text = string(value, wanted)?;
    if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        Ok(text.to_owned())
    } else {
        Err(format!("wants {wanted}, got {text:?}"))
    }
}

/// Whether a key can be a word of a product name.
pub(super) fn is_model(key: &str) -> bool {
    key.bytes().any(|byte| byte.is_ascii_digit())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" -_.".contains(&byte))
}

/// A price, exact to a millionth.
pub(super) fn price(value: &DeValue<'_>) -> Parsed<Price> {
    millionths(value, &format!("a price from 0 to {} such as 2.95", Price::HIGHEST), 0..=Price::HIGHEST.0)
        .map(Price)
}

/// A part of something in millionths: from 0 to less than 1.
pub(super) fn part(value: &DeValue<'_>) -> Parsed<u32> {
    let part = millionths(value, "a part from 0 to less than 1 such as 0.15", 0..=999_999)?;
    u32::try_from(part).map_err(|error| error.to_string())
}

/// An amount of money in millionths.
pub(super) fn amount(value: &DeValue<'_>) -> Parsed<u64> {
    millionths(value, "an amount from 0 to 1000000000 such as 30000", 0..=1_000_000_000_000_000)
}

/// A rate in millionths of its unit: of any size that a GPU can have, and never 0.
pub(super) fn rate(value: &DeValue<'_>) -> Parsed<u64> {
    millionths(value, "a number above 0 and up to 1000000 such as 3350", 1..=1_000_000_000_000)
}

/// A number of years in millionths.
pub(super) fn years(value: &DeValue<'_>) -> Parsed<u64> {
    millionths(value, "a number of years from 0.1 to 100 such as 4", 100_000..=100_000_000)
}

/// A whole number of bytes, from 64 KiB to 256 MiB.
pub(super) fn bytes(value: &DeValue<'_>) -> Parsed<u64> {
    let wanted = "a number of bytes from 65536 to 268435456";
    let millionths = millionths(value, wanted, 65_536_000_000..=268_435_456_000_000)?;
    if millionths % 1_000_000 == 0 { Ok(millionths / 1_000_000) } else { Err(format!("wants {wanted}")) }
}

/// Millionths of a number, without a detour through floating point.
fn millionths(value: &DeValue<'_>, wanted: &str, range: RangeInclusive<u64>) -> Parsed<u64> {
    let text = match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        DeValue::Float(float) => float.as_str(),
        // As Helm writes what is set on its command line.
        DeValue::String(text) => text,
        other => return Err(format!("wants {wanted}, got {}", other.type_str())),
    };
    let micros = micros(&text.replace('_', "")).filter(|micros| range.contains(micros));
    micros.ok_or_else(|| format!("wants {wanted}, with at most six decimals, got {text}"))
}

/// A day, as a text or in TOML's own form.
pub(super) fn date(value: &DeValue<'_>) -> Parsed<Date> {
    let wanted = "a date such as \"2026-11-01\"";
    let text = match value {
        DeValue::Datetime(date) => date.to_string(),
        other => string(other, wanted)?.to_owned(),
    };
    text.parse().map_err(|_no_date| format!("wants {wanted}, got {text:?}"))
}

/// A text that is shown in metrics.
pub(super) fn label(value: &DeValue<'_>) -> Parsed<String> {
    let wanted = "a text of 1 to 128 bytes that can be shown";
    let text = string(value, wanted)?;
    let valid = !text.trim().is_empty() && text.len() <= 128 && !text.chars().any(char::is_control);
    if valid { Ok(text.to_owned()) } else { Err(format!("wants {wanted}")) }
}

pub(super) fn capacity(value: &DeValue<'_>) -> Parsed<Capacity> {
    let wanted = "\"on-demand\", \"spot\" or \"reserved\"";
    let text = string(value, wanted)?;
    Capacity::parse(text).ok_or_else(|| format!("wants {wanted}, got {text:?}"))
}

pub(super) fn built_in(value: &DeValue<'_>) -> Parsed<BuiltIn> {
    let wanted = "\"off\", \"instances\" or \"models\"";
    match string(value, wanted)? {
        "off" => Ok(BuiltIn::Off),
        "instances" => Ok(BuiltIn::Instances),
        "models" => Ok(BuiltIn::Models),
        other => Err(format!("wants {wanted}, got {other:?}")),
    }
}
