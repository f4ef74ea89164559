//! Decimal numbers as they are written, exactly.

use std::cmp::Ordering;

/// Digits before and after the point, each, that a number is written out to.
pub(crate) const MAX_DIGITS: usize = 1000;

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
        let shown: String = text.chars().take(40).collect();
        let malformed = || format!("`{shown}` is not a JSON number");
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent),
            None => (unsigned, "0"),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let significant = digits.trim_start_matches('0');
        let leading = digits.len() - significant.len();
        let significant = significant.trim_end_matches('0');
        if significant.is_empty() {
            return Ok((false, Self::default()));
        }
        let too_long =
            || format!("`{shown}` takes more than {MAX_DIGITS} digits before or after the point");
        let unsigned_exponent = exponent.trim_start_matches(['+', '-']);
        if unsigned_exponent.is_empty() || !unsigned_exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let exponent: i64 = exponent.parse().map_err(|_| too_long())?;
        // The value is 0.significant times ten to the power of `point`.
        let point = (whole.len() as i64 - leading as i64)
            .checked_add(exponent)
            .filter(|point| point.unsigned_abs() <= MAX_DIGITS as u64)
            .ok_or_else(too_long)?;
        let length = significant.len() as i64;
        if length - point > MAX_DIGITS as i64 {
            return Err(too_long());
        }
        let zeros = |count: i64| "0".repeat(count.max(0) as usize);
        let split = point.clamp(0, length) as usize;
        let (whole, fraction) = significant.split_at(split);
        let mut value = Self {
            whole: format!("{whole}{}", zeros(point - length)),
            fraction: format!("{}{fraction}", zeros(-point)),
        };
        if value.whole.is_empty() {
            value.whole.push('0');
        }
        Ok((negative, value))
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
