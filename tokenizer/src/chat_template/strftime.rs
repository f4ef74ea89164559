//! `strftime_now`: today's date, in UTC, by C's format letters.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

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
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment in UTC, in calendar terms.
struct Calendar {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: u32,
    /// 1 to 366.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: usize,
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
}

impl Calendar {
    fn new(now: SystemTime) -> Self {
        // Before 1970 counts as 1970: no clock says so.
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let days = (seconds / 86_400) as i64;
        let second_of_day = (seconds % 86_400) as u32;

        let mut year = 1970 + days / 366;
        while days_before_year(year + 1) <= days {
            year += 1;
        }
        let mut day = days - days_before_year(year);
        let day_of_year = day + 1;
        let mut month = 1;
        for length in month_lengths(year) {
            if day < length {
                break;
            }
            day -= length;
            month += 1;
        }
        Self {
            year,
            month,
            day: day as u32 + 1,
            day_of_year,
            // 1 January 1970 was a Thursday.
            weekday: ((days + 4) % 7) as usize,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            microsecond: since.subsec_micros(),
        }
    }

    fn month_name(&self) -> &'static str {
        MONTHS.get(self.month - 1).copied().unwrap_or_default()
    }

    fn weekday_name(&self) -> &'static str {
        WEEKDAYS.get(self.weekday).copied().unwrap_or_default()
    }
}

/// Days from 1 January 1970 to 1 January of `year`.
fn days_before_year(year: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn month_lengths(year: i64) -> [i64; 12] {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let february = if is_leap { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// `now` in UTC by `format`, as Python's `datetime.strftime` writes it in the C locale.
///
/// # Errors
/// A letter that is not known, named.
pub(super) fn strftime(format: &str, now: SystemTime) -> Result<String, Error> {
    let calendar = Calendar::new(now);
    let mut output = String::with_capacity(format.len() * 2);
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            output.push(char);
            continue;
        }
        let mut letter = chars.next();
        // `%-d` is the number without a leading zero.
        let unpadded = letter == Some('-');
        if unpadded {
            letter = chars.next();
        }
        write_field(&calendar, letter, unpadded, &mut output).ok_or_else(|| {
            let letter = letter.map(String::from).unwrap_or_default();
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now: the format %{letter} is not known"),
            )
        })?;
    }
    Ok(output)
}

fn write_field(
    calendar: &Calendar,
    letter: Option<char>,
    unpadded: bool,
    output: &mut String,
) -> Option<()> {
    let hour12 = (calendar.hour + 11) % 12 + 1;
    let (number, width) = match letter? {
        'Y' => (calendar.year, 4),
        'y' => (calendar.year % 100, 2),
        'm' => (calendar.month as i64, 2),
        'd' => (calendar.day.into(), 2),
        'j' => (calendar.day_of_year, 3),
        'H' => (calendar.hour.into(), 2),
        'I' => (hour12.into(), 2),
        'M' => (calendar.minute.into(), 2),
        'S' => (calendar.second.into(), 2),
        'f' => (calendar.microsecond.into(), 6),
        'w' => (calendar.weekday as i64, 1),
        'u' => ((calendar.weekday as i64 + 6) % 7 + 1, 1),
        'e' => {
            write!(output, "{:>2}", calendar.day).ok()?;
            return Some(());
        }
        letter => {
            let text = match letter {
                'B' => calendar.month_name(),
                'b' | 'h' => calendar.month_name().get(..3)?,
                'A' => calendar.weekday_name(),
                'a' => calendar.weekday_name().get(..3)?,
                'p' if calendar.hour < 12 => "AM",
                'p' => "PM",
                'Z' => "UTC",
                'z' => "+0000",
                '%' => "%",
                'n' => "\n",
                't' => "\t",
                // Compositions of the above.
                'F' | 'D' | 'T' | 'R' | 'c' | 'x' | 'X' => {
                    let format = match letter {
                        'F' => ['Y', '-', 'm', '-', 'd'].as_slice(),
                        'D' | 'x' => &['m', '/', 'd', '/', 'y'],
                        'T' | 'X' => &['H', ':', 'M', ':', 'S'],
                        'R' => &['H', ':', 'M'],
                        _ => &['a', ' ', 'b', ' ', 'e', ' ', 'T', ' ', 'Y'],
                    };
                    for &letter in format {
                        if letter.is_ascii_alphabetic() {
                            write_field(calendar, Some(letter), false, output)?;
                        } else {
                            output.push(letter);
                        }
                    }
                    return Some(());
                }
                _ => return None,
            };
            output.push_str(text);
            return Some(());
        }
    };
    let width = if unpadded { 1 } else { width };
    write!(output, "{number:0width$}").ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, format: &str) -> String {
        strftime(format, UNIX_EPOCH + Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn equals_what_python_prints() {
        // `datetime.fromtimestamp(seconds, UTC).strftime(format)`.
        let format = "%d %B %Y|%-d %b %y|%A %a %w %u|%H:%M:%S %I %p|%j|%e|%F %T|%c|%%";
        assert_eq!(
            at(0, format),
            "01 January 1970|1 Jan 70|Thursday Thu 4 4|00:00:00 12 AM|001| 1|\
             1970-01-01 00:00:00|Thu Jan  1 00:00:00 1970|%"
        );
        assert_eq!(
            at(951_827_696, format),
            "29 February 2000|29 Feb 00|Tuesday Tue 2 2|12:34:56 12 PM|060|29|\
             2000-02-29 12:34:56|Tue Feb 29 12:34:56 2000|%"
        );
        assert_eq!(at(4_107_542_399, "%F %j %a"), "2100-02-28 059 Sun");
        assert_eq!(at(4_107_542_400, "%F %j %a"), "2100-03-01 060 Mon");
        assert_eq!(at(1_735_689_599, "%F %j %I %p"), "2024-12-31 366 11 PM");
    }

    #[test]
    fn an_unknown_letter_is_named() {
        let error = strftime("%Q", UNIX_EPOCH).unwrap_err();
        assert!(
            error.to_string().contains("the format %Q is not known"),
            "{error}"
        );
    }
}
