//! Values of the configuration. Each parser's error says what would be right.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;
use warpmeter_core::price::Price;

use super::Level;
use crate::bpf::Enabled;

/// The highest price that is taken for one: a million units per hour.
const HIGHEST_PRICE: u64 = 1_000_000;

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
    match value {
        DeValue::Boolean(true) => Ok(Enabled::Yes),
        DeValue::Boolean(false) => Ok(Enabled::No),
        DeValue::String(text) if text == "auto" => Ok(Enabled::Auto),
        DeValue::String(text) => Err(format!("wants true, false or \"auto\", got {text:?}")),
        other => Err(format!("wants true, false or \"auto\", got {}", other.type_str())),
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

/// A price per GPU hour, exact to a millionth.
pub(super) fn price(value: &DeValue<'_>) -> Parsed<Price> {
    let wanted = format!("a price per GPU hour from 0 to {HIGHEST_PRICE} such as 2.95");
    let text = match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        DeValue::Float(float) => float.as_str(),
        other => return Err(format!("wants {wanted}, got {}", other.type_str())),
    };
    decimal(text)
        .filter(|micros| *micros <= HIGHEST_PRICE * 1_000_000)
        .map(Price)
        .ok_or(format!("wants {wanted}, got {text}"))
}

/// Millionths of a plain decimal number, without a detour through floating point.
fn decimal(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text).replace('_', "");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let micros: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}
