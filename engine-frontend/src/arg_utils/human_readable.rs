//! Numbers as people write them: `2048`, `2k`, `1.5GiB`.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// A parser, for clap, of whole numbers in `range`: digits, and a unit where one is written.
///
/// As for vLLM's flags `k`, `m`, `g` and `t` are powers of 1,000, and `K`, `M`, `G` and `T` powers of
/// 1,024. With a `B` they are units of bytes, in either case: `GB` is 1,000³, `GiB` 1,024³. A fraction
/// is taken where the number that it stands for is whole.
pub fn human_readable_int<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u128> + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        if let Some(unit) = unknown_unit(text) {
            return Err(format!("the unit {unit:?} is none of {UNITS}"));
        }
        let number = parse(text).and_then(|number| T::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| expected(&range))
    }
}

/// The units that there are.
const UNITS: &str = "k, m, g, t (powers of 1,000), K, M, G, T (of 1,024), kB, MB, GB, TB, KiB, MiB, \
                     GiB, TiB";

/// What stands behind digits and is no unit.
fn unknown_unit(text: &str) -> Option<&str> {
    let text = text.trim();
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?;
    let is_number = digits.trim().parse::<f64>().is_ok();
    (is_number && factor(unit).is_none()).then_some(unit)
}

fn expected<T>(range: &impl RangeBounds<T>) -> String
where
    T: TryFrom<u128> + PartialOrd + Display,
{
    const EXAMPLE: u128 = 20_480;
    let has_example = T::try_from(EXAMPLE).is_ok_and(|example| range.contains(&example));
    let example = match has_example {
        true => ", such as 20000, 20k (20,000) or 20K (20,480)",
        false => "",
    };
    let bounds = match (range.start_bound(), range.end_bound()) {
        (Bound::Included(low), Bound::Included(high)) => format!(" between {low} and {high}"),
        (Bound::Included(low), _) => format!(" of at least {low}"),
        _ => String::new(),
    };
    format!("must be a whole number{bounds}{example}")
}

/// The whole number that a text stands for.
fn parse(text: &str) -> Option<u128> {
    let text = text.trim();
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic() || char == ' ');
    let factor = factor(text.get(digits.len()..)?.trim())?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let number = all.parse::<u128>().ok()?.checked_mul(factor)?;
    number.is_multiple_of(scale).then(|| number / scale)
}

/// What a unit multiplies by.
fn factor(unit: &str) -> Option<u128> {
    let (letter, base) = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => return Some(1),
        bytes if bytes.ends_with("ib") => (bytes.strip_suffix("ib")?.to_owned(), 1024_u128),
        bytes if bytes.ends_with('b') => (bytes.strip_suffix('b')?.to_owned(), 1000),
        letter if unit == letter => (letter.to_owned(), 1000),
        letter => (letter.to_owned(), 1024),
    };
    let power = ["k", "m", "g", "t"]
        .iter()
        .position(|unit| *unit == letter)?;
    base.checked_pow(u32::try_from(power).ok()? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_vllm_and_of_bytes() {
        for (text, number) in [
            ("0", 0),
            ("2048", 2048),
            ("2k", 2000),
            ("2K", 2048),
            ("25.6k", 25_600),
            ("1.5K", 1536),
            ("3m", 3_000_000),
            ("1G", 1 << 30),
            ("1GB", 1_000_000_000),
            ("1 GiB", 1 << 30),
            ("1.5gib", 3 << 29),
            ("4kb", 4000),
            ("7B", 7),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "+1",
            "1.0005k",
            "1.2",
            "2 k k",
            "1e3",
            "0x10",
            "1_000",
            "2kk",
            "1i",
            ".5k",
            "99999999999999999999999999999999999999t",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_told_the_range() {
        let parse = human_readable_int(1..=65_536_u32);
        assert_eq!(parse("64K"), Ok(65_536));
        assert_eq!(
            parse("65k6"),
            Err(
                "must be a whole number between 1 and 65536, such as 20000, 20k (20,000) or 20K \
                 (20,480)"
                    .to_owned()
            )
        );
        assert!(parse("65537").is_err());
        assert_eq!(
            parse("1XB").unwrap_err(),
            "the unit \"XB\" is none of k, m, g, t (powers of 1,000), K, M, G, T (of 1,024), kB, MB, \
             GB, TB, KiB, MiB, GiB, TiB"
        );
        let small = human_readable_int(1_u32..=1024);
        assert_eq!(
            small("2k").unwrap_err(),
            "must be a whole number between 1 and 1024"
        );
        let from = human_readable_int(1_u64..);
        assert_eq!(
            from("0").unwrap_err(),
            "must be a whole number of at least 1, such as 20000, 20k (20,000) or 20K (20,480)"
        );
        assert_eq!(from("1GB"), Ok(1_000_000_000));
    }
}
