//! Decimal numbers as they are written, exactly.

use std::cmp::Ordering;

/// Digits before and after the point, each, that a number is written out to.
pub(crate) const MAX_DIGITS: usize = 1000;

/// A number as `0.digits` times ten to the power of `point`: equal numbers have equal ones, but for
/// those of an exponent that doesn't fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scientific {
    /// Never of zero.
    pub(crate) is_negative: bool,
    /// Without zeros at either end; none of zero.
    pub(crate) digits: String,
    /// `None` where the exponent doesn't fit; 0 for zero.
    pub(crate) point: Option<i64>,
}

impl Scientific {
    /// Reads a JSON number.
    ///
    /// # Errors
    /// A text that is no JSON number.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{}` is not a JSON number", shown(text));
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent),
            None => (unsigned, "0"),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let unsigned_exponent = exponent.trim_start_matches(['+', '-']);
        if unsigned_exponent.is_empty() || !unsigned_exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let digits = all.trim_start_matches('0');
        let leading = all.len() - digits.len();
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Ok(Self {
                is_negative: false,
                digits: String::new(),
                point: Some(0),
            });
        }
        let exponent: Option<i64> = exponent.parse().ok();
        let before = whole.len() as i64 - leading as i64;
        Ok(Self {
            is_negative,
            digits: digits.into(),
            point: exponent.and_then(|exponent| exponent.checked_add(before)),
        })
    }
}

/// The beginning of a number, for messages.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A decimal without sign and exponent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// Without leading zeros; `0` for none.
    whole: String,
    /// Without trailing zeros.
    fraction: String,
}

impl Default for Decimal {
    fn default() -> Self {
        Self {
            whole: "0".into(),
            fraction: String::new(),
        }
    }
}

impl Decimal {
    /// Reads a JSON number: its sign (never of zero) and its magnitude.
    ///
    /// # Errors
    /// A text that is no JSON number, or one that takes more than [`MAX_DIGITS`] digits.
    pub(crate) fn parse(text: &str) -> Result<(bool, Self), String> {
        let Scientific {
            is_negative,
            digits,
            point,
        } = Scientific::parse(text)?;
        if digits.is_empty() {
            return Ok((false, Self::default()));
        }
        let length = digits.len() as i64;
        let max = MAX_DIGITS as i64;
        let Some(point) = point.filter(|point| point.abs() <= max && length - point <= max) else {
            let shown = shown(text);
            return Err(format!(
                "`{shown}` takes more than {MAX_DIGITS} digits before or after the point"
            ));
        };
        let zeros = |count: i64| "0".repeat(count.max(0) as usize);
        let split = point.clamp(0, length) as usize;
        let (whole, fraction) = digits.split_at(split);
        let mut value = Self {
            whole: format!("{whole}{}", zeros(point - length)),
            fraction: format!("{}{fraction}", zeros(-point)),
        };
        if value.whole.is_empty() {
            value.whole.push('0');
        }
        Ok((is_negative, value))
    }

    /// Digits before the point, at least one.
    pub(crate) fn whole(&self) -> &str {
        &self.whole
    }

    /// Digits after the point, the last other than zero.
    pub(crate) fn fraction(&self) -> &str {
        &self.fraction
    }

    /// Whether it is zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.whole == "0" && self.fraction.is_empty()
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        // No leading and no trailing zeros: lengths and texts decide.
        (self.whole.len().cmp(&other.whole.len()))
            .then_with(|| self.whole.cmp(&other.whole))
            .then_with(|| self.fraction.cmp(&other.fraction))
    }
}
