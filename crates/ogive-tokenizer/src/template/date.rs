//! A date and time, and the directives of `strftime` that chat templates use.
//!
//! Hugging Face's `strftime_now` prints local time. Knowing the local zone needs a time zone database; we print UTC
//! where the caller gives no time, and callers who know their zone give one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time on some wall, as `strftime_now` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    /// The year, 1 to 9999.
    pub year: u16,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 59.
    pub second: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl DateTime {
    /// A date and time, or `None` where the calendar has no such day or the clock no such time.
    #[must_use]
    pub fn new(year: u16, month: u8, day: u8, hour: u8, minute: u8, second: u8) -> Option<Self> {
        let value = Self { year, month, day, hour, minute, second };
        let valid = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=value.days_in_month()).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        valid.then_some(value)
    }

    /// The system's clock, in UTC.
    #[must_use]
    pub fn now_utc() -> Self {
        Self::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs())
    }

    /// Seconds since 1970-01-01 00:00:00 UTC; times after the year 9999 are cut to its last second.
    #[must_use]
    pub fn from_unix(seconds: u64) -> Self {
        const LAST: u64 = 253_402_300_799;
        let seconds = seconds.min(LAST);
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        let mut value = Self { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0 };
        while days >= 365 + u64::from(value.is_leap()) {
            days -= 365 + u64::from(value.is_leap());
            value.year += 1;
        }
        while days >= u64::from(value.days_in_month()) {
            days -= u64::from(value.days_in_month());
            value.month += 1;
        }
        // Each of these is below its type's bound by the divisions above.
        let small = |n: u64| u8::try_from(n).unwrap_or(0);
        value.day = 1 + small(days);
        (value.hour, value.minute, value.second) =
            (small(rest / 3600), small(rest / 60 % 60), small(rest % 60));
        value
    }

    /// Reads `2025-01-15`, `2025-01-15T12:34` or `2025-01-15 12:34:56`, each with an optional `Z`.
    #[must_use]
    pub fn parse_iso(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
        let number = |part: Option<&str>, width: usize| -> Option<u16> {
            part.filter(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
        };
        let byte = |part: Option<&str>| u8::try_from(number(part, 2)?).ok();
        let mut date = date.split('-');
        let mut time = time.split(':');
        let year = number(date.next(), 4)?;
        let (month, day) = (byte(date.next())?, byte(date.next())?);
        let (hour, minute) = (byte(time.next())?, byte(time.next())?);
        let second = time.next().map_or(Some(0), |s| byte(Some(s)))?;
        if date.next().is_some() || time.next().is_some() {
            return None;
        }
        Self::new(year, month, day, hour, minute, second)
    }

    fn is_leap(&self) -> bool {
        self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400))
    }

    fn days_in_month(&self) -> u8 {
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if self.is_leap() => 29,
            2 => 28,
            _ => 31,
        }
    }

    /// Days from January the first, counted from one.
    fn day_of_year(&self) -> u16 {
        let before = (1..self.month).map(|month| u16::from(Self { month, ..*self }.days_in_month()));
        before.sum::<u16>() + u16::from(self.day)
    }

    /// Monday is 0. Counts days since 0001-01-01, a Monday in the Gregorian calendar reckoned backwards.
    fn weekday(&self) -> usize {
        let years = u32::from(self.year) - 1;
        let days = years * 365 + years / 4 - years / 100 + years / 400 + u32::from(self.day_of_year()) - 1;
        usize::try_from(days % 7).unwrap_or(0)
    }

    /// C's `strftime` for its common directives, in English.
    ///
    /// # Errors
    /// An unknown directive, named.
    pub fn strftime(&self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = format.chars();
        let month = MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or("");
        let day = DAYS.get(self.weekday()).copied().unwrap_or("");
        let hour12 = if self.hour.is_multiple_of(12) { 12 } else { self.hour % 12 };
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            // glibc's flag for a number without its leading zeros.
            let bare = directive == Some('-');
            if bare {
                directive = chars.next();
            }
            let pad = |number: u16, width: usize| {
                if bare { number.to_string() } else { format!("{number:0width$}") }
            };
            out.push_str(&match directive {
                Some('Y') => format!("{:04}", self.year),
                Some('y') => pad(self.year % 100, 2),
                Some('m') => pad(self.month.into(), 2),
                Some('d') => pad(self.day.into(), 2),
                Some('e') => {
                    if bare {
                        self.day.to_string()
                    } else {
                        format!("{:2}", self.day)
                    }
                }
                Some('H') => pad(self.hour.into(), 2),
                Some('I') => pad(hour12.into(), 2),
                Some('M') => pad(self.minute.into(), 2),
                Some('S') => pad(self.second.into(), 2),
                Some('f') => "000000".into(),
                Some('j') => pad(self.day_of_year(), 3),
                Some('B') => month.into(),
                Some('b' | 'h') => month.get(..3).unwrap_or("").into(),
                Some('A') => day.into(),
                Some('a') => day.get(..3).unwrap_or("").into(),
                Some('p') => if self.hour < 12 { "AM" } else { "PM" }.into(),
                Some('u') => (self.weekday() + 1).to_string(),
                Some('w') => ((self.weekday() + 1) % 7).to_string(),
                Some('F') => self.strftime("%Y-%m-%d")?,
                Some('T') => self.strftime("%H:%M:%S")?,
                Some('R') => self.strftime("%H:%M")?,
                Some('D') => self.strftime("%m/%d/%y")?,
                // A date without a zone prints none, as Python's does.
                Some('z' | 'Z') => String::new(),
                Some('n') => "\n".into(),
                Some('t') => "\t".into(),
                Some('%') => "%".into(),
                Some(other) => return Err(format!("directive %{other} is not known")),
                None => return Err("format ends within a directive".into()),
            });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_python_does() {
        let date = DateTime::parse_iso("2025-01-05T12:34:56").unwrap();
        let cases = [
            ("%d %b %Y", "05 Jan 2025"),
            ("%Y-%m-%d", "2025-01-05"),
            ("%B %-d, %Y", "January 5, 2025"),
            ("%A %a %j %I:%M:%S %p %e%%", "Sunday Sun 005 12:34:56 PM  5%"),
            ("%u %w %F %T %y", "7 0 2025-01-05 12:34:56 25"),
        ];
        for (format, expected) in cases {
            assert_eq!(date.strftime(format).unwrap(), expected);
        }
        assert!(date.strftime("%Q").unwrap_err().contains("%Q"));
        assert!(date.strftime("%").is_err());
    }

    #[test]
    fn unix_time_and_iso_agree() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29"),
            (1_736_944_496, "2025-01-15 12:34:56"),
        ];
        for (seconds, text) in cases {
            assert_eq!(DateTime::from_unix(seconds), DateTime::parse_iso(text).unwrap());
        }
        assert_eq!(DateTime::from_unix(u64::MAX).year, 9999);
        for bad in
            ["2025-02-29", "2025-13-01", "2025-1-1", "x", "2025-01-01T25:00", "2025-01-01T00:00:00:00", ""]
        {
            assert_eq!(DateTime::parse_iso(bad), None, "{bad}");
        }
    }
}
