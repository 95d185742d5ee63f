//! Decimal texts as integers, without a detour through floating point.

/// Millionths of a plain decimal number; nothing if it has an exponent, a sign but `+`, or more than six decimals.
pub fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = parts(text)?;
    if fraction.len() > 6 {
        return None;
    }
    join(whole, fraction)
}

/// The same, with further decimals rounded to the nearest millionth, halves up: averages have many.
pub fn rounded_micros(text: &str) -> Option<u64> {
    let (whole, fraction) = parts(text)?;
    let up = fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    join(whole, fraction.get(..6).unwrap_or(fraction))?.checked_add(u64::from(up))
}

/// The digits before the point, and those after it without zeros at the end.
fn parts(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let valid = !whole.is_empty() && digits(whole) && digits(fraction);
    valid.then_some((whole, fraction.trim_end_matches('0')))
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
        ] {
            assert_eq!((micros(text), rounded_micros(text)), (Some(value), Some(value)), "{text}");
        }
        for text in ["", ".", ".5", "-1", "1e3", "0x10", "nan", "1,5", "1 ", "99999999999999999999"] {
            assert_eq!((micros(text), rounded_micros(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn more_than_six_decimals_are_refused_or_rounded() {
        for (text, value) in [("0.0000005", 1), ("0.00000049999", 0), ("1.9999999", 2_000_000)] {
            assert_eq!((micros(text), rounded_micros(text)), (None, Some(value)), "{text}");
        }
    }
}
