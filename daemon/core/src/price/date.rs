//! A day, without a clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A day of the Gregorian calendar from 1970 to 9999, written `2026-07-20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// A text that is not a day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date from 1970-01-01 on such as \"2026-07-20\"")]
pub struct NoDate(String);

impl Date {
    /// A day, or nothing if there is no such day.
    pub const fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => 0,
        };
        if year < 1970 || year > 9999 || day == 0 || day > days {
            return None;
        }
        Some(Self { year, month, day })
    }

    /// Days from 1970-01-01.
    pub fn days(self) -> u32 {
        // Years begin in March here, so that the leap day is the last of one; months then have 153 days in five.
        let (year, month) = match self.month {
            1 | 2 => (u32::from(self.year) - 1, u32::from(self.month) + 9),
            month => (u32::from(self.year), u32::from(month) - 3),
        };
        let before = year * 365 + year / 4 - year / 100 + year / 400;
        // 719,468 days lie between the first of March of the year 0 and 1970-01-01.
        before + (153 * month + 2) / 5 + u32::from(self.day) - 1 - 719_468
    }

    /// Whole days from this one to the instant `wall` nanoseconds after 1970; 0 if that is before.
    pub fn age(self, wall: u64) -> u64 {
        (wall / 86_400_000_000_000).saturating_sub(u64::from(self.days()))
    }
}

impl FromStr for Date {
    type Err = NoDate;

    fn from_str(text: &str) -> Result<Self, NoDate> {
        let number = |range, digits: usize| {
            let part: &str = text.get(range)?;
            (part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit())).then_some(part)
        };
        let parse = || {
            let separated = text.len() == 10 && text.get(4..5)? == "-" && text.get(7..8)? == "-";
            let [year, month, day] = [number(0..4, 4)?, number(5..7, 2)?, number(8..10, 2)?];
            separated.then_some(())?;
            Self::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
        };
        parse().ok_or_else(|| NoDate(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl TryFrom<String> for Date {
    type Error = NoDate;

    fn try_from(text: String) -> Result<Self, NoDate> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970_through_leap_years() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-03-01", 59),
            ("2000-02-29", 11_016),
            ("2000-03-01", 11_017),
            ("2026-07-20", 20_654),
            ("2100-03-01", 47_541),
            ("9999-12-31", 2_932_896),
        ] {
            let date: Date = text.parse().unwrap();
            assert_eq!((date.days(), date.to_string().as_str()), (days, text));
        }
    }

    #[test]
    fn every_day_is_one_after_the_day_before() {
        let mut last = None;
        for (year, month, day) in
            (1970..2110).flat_map(|y| (1..13).flat_map(move |m| (0..33).map(move |d| (y, m, d))))
        {
            let Some(date) = Date::new(year, month, day) else { continue };
            assert_eq!(date.days(), last.map_or(0, |last| last + 1), "{date}");
            last = Some(date.days());
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2026-7-20",
            "2026-02-29",
            "1969-12-31",
            "2026-13-01",
            "2026-00-10",
            "20260720",
            "é026-07-20",
            "2026-07-20T",
        ] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_age_is_in_whole_days_and_never_negative() {
        let date: Date = "1970-01-03".parse().unwrap();
        let day = 86_400_000_000_000;
        assert_eq!([0, 2 * day, 3 * day - 1, 3 * day].map(|wall| date.age(wall)), [0, 0, 0, 1]);
    }
}
