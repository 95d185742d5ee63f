//! Decimal texts as integers, without a detour through floating point.

/// Millionths of a decimal number; nothing if it has a sign but `+`, or more than six decimals. An exponent moves the
/// point, as programs write large numbers: `5e+06`.
pub fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = &parts(text)?;
    if fraction.len() > 6 {
        return None;
    }
    join(whole, fraction)
}

/// The same, with further decimals rounded to the nearest millionth, halves up: averages have many.
pub fn rounded_micros(text: &str) -> Option<u64> {
    let (whole, fraction) = &parts(text)?;
    let up = fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    join(whole, fraction.get(..6).unwrap_or(fraction))?.checked_add(u64::from(up))
}

/// The largest exponent that is read: beyond it no amount that is meant fits.
const LARGEST_EXPONENT: i32 = 30;

/// The digits before the point, and those after it without zeros at the end.
fn parts(text: &str) -> Option<(String, String)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let valid = !whole.is_empty() && digits(whole) && digits(fraction);
    if !valid || exponent.abs() > LARGEST_EXPONENT {
        return None;
    }
    let places = usize::try_from(exponent.unsigned_abs()).ok()?;
    let (whole, fraction) = if exponent < 0 {
        let whole = format!("{whole:0>width$}", width = places + 1);
        let (before, after) = whole.split_at(whole.len() - places);
        (before.to_owned(), format!("{after}{fraction}"))
    } else {
        let fraction = format!("{fraction:0<places$}");
        let (before, after) = fraction.split_at(places);
        (format!("{whole}{before}"), after.to_owned())
    };
    Some((whole, fraction.trim_end_matches('0').to_owned()))
}

fn join(whole: &str, fraction: &str) -> Option<u64> {
    let micros: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, value) in [
            ("2.95", 2_950_000),
            ("0", 0),
            ("0.000001", 1),
            ("+1000.5", 1_000_500_000),
            ("3.0000000", 3_000_000),
            ("7.", 7_000_000),
            ("5e+06", 5_000_000_000_000),
            ("1.25E3", 1_250_000_000),
            ("1e-06", 1),
            ("1234.5e-2", 12_345_000),
            ("2.5e0", 2_500_000),
        ] {
            assert_eq!((micros(text), rounded_micros(text)), (Some(value), Some(value)), "{text}");
        }
        for text in [
            "",
            ".",
            ".5",
            "-1",
            "1e",
            "e3",
            "1e31",
            "1e-31",
            "1e3.5",
            "1e99",
            "0x10",
            "nan",
            "1,5",
            "1 ",
            "99999999999999999999",
        ] {
            assert_eq!((micros(text), rounded_micros(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn more_than_six_decimals_are_refused_or_rounded() {
        for (text, value) in [("0.0000005", 1), ("0.00000049999", 0), ("1.9999999", 2_000_000), ("15e-7", 2)]
        {
            assert_eq!((micros(text), rounded_micros(text)), (None, Some(value)), "{text}");
        }
    }
}
