//! When an object was created, as its API server writes it.

/// Minutes from 1970 to a time such as `2026-11-30T03:40:36Z`; nothing if it is not written so.
pub(super) fn minutes(time: &str) -> Option<i64> {
    let bytes = time.as_bytes();
    if bytes.len() < 20 || !time.is_ascii() || *bytes.last()? != b'Z' {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = &time[from..to];
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|&(at, mark)| bytes[at] != mark) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute) = (number(11, 13)?, number(14, 16)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // The calendar counted from 1 March, so that the leap day comes last: 1970 began 719,468 days after 0000-03-01.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((days * 24 + hour) * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_minutes_from_1970() {
        for (time, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-02T01:02:59Z", 1502),
            ("2000-02-29T12:00:00Z", 15_863_760),
            ("2000-03-01T00:00:00.123456Z", 15_864_480),
            ("2026-11-30T03:40:36Z", 29_933_500),
        ] {
            assert_eq!(minutes(time), Some(expected), "{time}");
        }
    }

    #[test]
    fn what_is_no_such_time_is_none() {
        for time in [
            "",
            "now",
            "2026-11-30T03:40:36",
            "2026-11-30 03:40:36Z",
            "2026-13-30T03:40:36Z",
            "2026-11-30T03:40:36+01:00",
            "+026-11-30T03:40:36Z",
            "２０２６-11-30T03:40Z",
        ] {
            assert_eq!(minutes(time), None, "{time}");
        }
    }
}
