//! Strings under a constraint: by length, by pattern, by both.
//!
//! A pattern speaks of decoded characters, a mask of bytes. Each class of characters becomes the
//! language of its spellings under the constrained spelling, so the pattern's expression is over
//! spelled strings from the start and needs no intersection with them.

use crate::lexical::{ByteSet, Chars, EPSILON, ExprId, Lexicon};
use crate::regex::{self, Dialect, RegexError, RegexLimits, Spelling, Translator};

/// Characters with a short escape, and its letter.
const SHORT_ESCAPES: [(char, u8); 8] = [
    ('"', b'"'),
    ('\\', b'\\'),
    ('/', b'/'),
    ('\x08', b'b'),
    ('\x0c', b'f'),
    ('\n', b'n'),
    ('\r', b'r'),
    ('\t', b't'),
];

impl Lexicon {
    /// A character of a set as it may be spelled under a constraint: literally, by its short escape,
    /// or as `\\uXXXX` where it has neither; with [`any_escapes`](Self::any_escapes), in every way. `ranges` are
    /// ascending and apart.
    pub(crate) fn json_char_of(&mut self, ranges: &[(char, char)]) -> ExprId {
        if self.any_escapes() && ranges == [('\0', char::MAX)] {
            return self.json_char();
        }
        let has = |char| {
            ranges
                .iter()
                .any(|&(low, high)| low <= char && char <= high)
        };
        let mut plain = Vec::with_capacity(ranges.len() + 2);
        for &(low, high) in ranges {
            // What needs no escape lies in three ranges.
            for (first, last) in [(' ', '!'), ('#', '['), (']', char::MAX)] {
                let (low, high) = (low.max(first), high.min(last));
                if low <= high {
                    plain.push((low, high));
                }
            }
        }
        let mut ways = vec![self.code_points(plain.into_iter())];
        let letters = SHORT_ESCAPES.iter().filter(|&&(char, _)| has(char));
        let letters = self.class(letters.map(|&(_, letter)| letter).collect());
        let backslash = self.literal(b"\\");
        ways.push(self.concat(backslash, letters));
        if self.any_escapes() {
            ways.push(self.json_long_escape_of(ranges));
            return self.or(&ways);
        }
        for (prefix, row) in [(b"\\u000", 0), (b"\\u001", 16_u8)] {
            let mut digits = ByteSet::EMPTY;
            for low in 0..16 {
                let char = char::from(row + low);
                if has(char) && !SHORT_ESCAPES.iter().any(|&(short, _)| short == char) {
                    let digit = b"0123456789abcdef"[usize::from(low)];
                    digits.insert(digit);
                    digits.insert(digit.to_ascii_uppercase());
                }
            }
            let prefix = self.literal(prefix);
            let digits = self.class(digits);
            ways.push(self.concat(prefix, digits));
        }
        self.or(&ways)
    }

    /// Strings of `min..=max` code points; `max` may be `UNBOUNDED`.
    pub(crate) fn json_string_length(&mut self, min: u32, max: u32) -> ExprId {
        let char = self.json_constrained_char();
        let body = self.repeat(char, min, max);
        self.json_quoted(body)
    }

    /// Strings in which a pattern of ECMA-262 is found.
    ///
    /// # Errors
    /// Where the pattern is no ECMA-262, nor of the dialect of `compile_regex`, or is not regular.
    #[cfg(test)]
    pub(crate) fn json_string_pattern(
        &mut self,
        pattern: &str,
        limits: &RegexLimits,
    ) -> Result<ExprId, RegexError> {
        self.json_string_pattern_of_length(pattern, Chars::ANY, limits)
    }

    /// Strings of some length in which a pattern of ECMA-262 is found: the same as the
    /// intersection of the two, but made without one where the pattern allows it.
    ///
    /// # Errors
    /// See [`Self::json_string_pattern`].
    pub(crate) fn json_string_pattern_of_length(
        &mut self,
        pattern: &str,
        length: Chars,
        limits: &RegexLimits,
    ) -> Result<ExprId, RegexError> {
        let ecma = regex::parse(pattern, Dialect::Ecma, *limits);
        let ast = ecma.or_else(|error| {
            // The error is about ECMA-262: that is what is asked for.
            regex::parse(pattern, Dialect::Common, *limits).map_err(|_| error)
        })?;
        let (ast, fits) = ast.search(length);
        let mut translator = Translator::new(ast, Spelling::JsonString);
        let mut body = translator.run(self, usize::MAX)?.unwrap_or(EPSILON);
        if !fits {
            let char = self.json_constrained_char();
            body = self.sized(body, char, length.min, length.max);
        }
        Ok(self.json_quoted(body))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{accepts, live_after, shared};
    use super::*;
    use crate::lexical::UNBOUNDED;

    const LIMITS: RegexLimits = RegexLimits {
        max_nodes: 50_000,
        max_nesting: 512,
        max_repetition: i32::MAX as u32,
    };

    fn lexicon() -> Lexicon {
        Lexicon::new(Vec::new(), 8)
    }

    /// A string as `json.dumps` would write it.
    fn spelled(text: &str) -> String {
        serde_json::to_string(text).unwrap()
    }

    #[track_caller]
    fn check(pattern: &str, good: &[&str], bad: &[&str]) {
        let mut l = lexicon();
        let expr = l.json_string_pattern(pattern, &LIMITS).unwrap();
        for text in good {
            assert!(
                accepts(&mut l, expr, spelled(text).as_bytes()),
                "{pattern} {text:?}"
            );
        }
        for text in bad {
            assert!(
                !accepts(&mut l, expr, spelled(text).as_bytes()),
                "{pattern} {text:?}"
            );
        }
    }

    #[test]
    fn what_ecma_262_writes() {
        check("^\\d$", &["7"], &["٧", "77", ""]);
        check("^\\w\\W$", &["a-", "_é"], &["éa", "aa"]);
        check(
            "^\\s$",
            &[" ", "\u{feff}", "\u{2029}", "\t"],
            &["\u{200b}", "a", "\u{85}"],
        );
        check(
            "^.$",
            &["a", "😀", "\u{85}"],
            &["\n", "\r", "\u{2028}", "", "ab"],
        );
        check("^[^]$", &["a", "\n", "😀"], &["", "ab"]);
        check("^a[]$", &[], &["a", ""]);
        check(
            "^\\cA\\x41\\u0042\\u{1f600}\\ud83d\\ude00$",
            &["\u{1}AB😀😀"],
            &["\u{1}AB😀"],
        );
        check("^\\/\\-\\_[\\]\\-a]{2}$", &["/-_]-", "/-_a]"], &["/-_aaa"]);
        check(
            "^a{$|^b{,2}$|^x{2}y{1,}z{0,1}$",
            &["a{", "b{,2}", "xxyyz"],
            &["a", "bb", "xy"],
        );
        check("^[\\w.-]+[a-\\d]$", &["a.-a", "b-", "c5"], &["a b", "-b"]);
        check(
            "^(?<year>\\d{4})-(?:a+?|b??)$",
            &["2024-aa", "2024-"],
            &["24-a"],
        );
        check(
            "^\\p{Lu}\\p{Script=Greek}\\P{L}$",
            &["Aλ1"],
            &["aλ1", "Aλx"],
        );
        check("[[&&]", &["[", "&"], &["a"]);
        // Where it is no ECMA-262, the dialect of Rust and Python.
        check("\\A[a-c]\\Z", &["b"], &["ab", "b\n"]);
        check("(?i)^abc$", &["aBC"], &["ab"]);
    }

    #[test]
    fn a_pattern_is_found_anywhere() {
        check("a", &["a", "xax", "\n\"a\\"], &["", "b", "\n"]);
        check("^a", &["a", "ab"], &["", "ba"]);
        check("a$", &["a", "ba"], &["ab", "a\n"]);
        check("^a|b$", &["ax", "xb"], &["xa", "bx"]);
        check("a+b*", &["a", "xaby"], &["b"]);
        check("", &["", "x"], &[]);
        // The letters of escapes are no text.
        check("n", &["n"], &["\n", "\u{1}"]);
        check("^(?!n)", &["\n", "m"], &["n", "nn"]);
        check("(?<=n)x", &["nx"], &["\nx", "x"]);
        check("\\bn", &["n", " n", "\nn"], &["\n", "an"]);
        check("^((?!no).)*$", &["", "n o", "\"n"], &["no", "xnox"]);
        check(
            "^(?=.*\\d)(?=.*[a-z]).{2,4}$",
            &["a1", "1xa"],
            &["a", "aa", "12", "abcd1"],
        );
        check("^(a|b(?=c))c$", &["ac", "bc"], &["b", "c"]);
        check(
            "^([^,]+(,|$)){3,}$",
            &["a,b,c", "a,b,c,", "a,b,c,d"],
            &["a,b", "a,b,", "a,,c"],
        );
        check("^((^x|y)-?)*$", &["", "xy", "x-yy-", "y"], &["yx", "x-x"]);
        check(
            "^(x|^y|z$)+$",
            &["x", "yxz", "yz", "xx"],
            &["", "xy", "zx", "yy"],
        );
        check("^foo\\b.*$", &["foo", "foo!"], &["food"]);
    }

    #[test]
    fn each_spelling_of_a_character_counts() {
        let mut l = lexicon();
        let expr = l
            .json_string_pattern("^[/\\n\\u0001\\u001fé]$", &LIMITS)
            .unwrap();
        for good in [
            r#""/""#,
            r#""\/""#,
            r#""\n""#,
            r#""\u0001""#,
            r#""\u001F""#,
            r#""\u001f""#,
            "\"é\"",
        ] {
            assert!(accepts(&mut l, expr, good.as_bytes()), "{good}");
        }
        for bad in [
            r#""\u002f""#,
            r#""\u000a""#,
            "\"\n\"",
            "\"\u{1}\"",
            r#""\u00e9""#,
            "/",
        ] {
            assert!(!accepts(&mut l, expr, bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn what_is_refused() {
        let mut l = lexicon();
        for bad in [
            "(a)\\1",
            "(?<n>a)\\k<n>",
            "(",
            "[b-a]",
            "\\ud83d",
            "[a",
            "\\p{Nope}",
        ] {
            assert!(l.json_string_pattern(bad, &LIMITS).is_err(), "{bad}");
        }
    }

    #[test]
    fn common_patterns_need_no_intersection() {
        let mut l = lexicon();
        let length = |min, max| Chars { min, max };
        for (pattern, chars) in [
            ("^[a-z]+$", length(0, 9)),
            ("^[a-zA-Z_][a-zA-Z0-9_]*$", length(2, 64)),
            ("^\\d{4}-\\d{2}$", length(1, 100)),
            ("^x-", length(3, 20)),
            ("^(a|bc)?$", length(0, 2)),
            ("^([a-z][0-9])+-$", length(2, 10)),
            ("^(\\d\\d){3,}$", length(5, UNBOUNDED)),
            (".+", Chars::ANY),
            ("a", Chars::ANY),
            ("^a|b$", Chars::ANY),
            ("^(\\S+\\s+){0,99}\\S+$", Chars::ANY),
        ] {
            let expr = l
                .json_string_pattern_of_length(pattern, chars, &LIMITS)
                .unwrap();
            assert!(l.is_exact(expr), "{pattern}");
        }
        let odd = l
            .json_string_pattern_of_length("^(ab)*$", length(3, 3), &LIMITS)
            .unwrap();
        assert_eq!(odd, crate::lexical::EMPTY);
        let chars = length(1, 1);
        let upto = l
            .json_string_pattern_of_length("^[ab]*$", chars, &LIMITS)
            .unwrap();
        assert_eq!(Ok(upto), l.json_string_pattern("^[ab]$", &LIMITS));
        let all = l.json_string_length(0, UNBOUNDED);
        for pattern in ["", ".*", "^", "[^]*", "^a*", "(x?)$"] {
            assert_eq!(
                l.json_string_pattern(pattern, &LIMITS),
                Ok(all),
                "{pattern}"
            );
        }
    }

    /// Every pattern of real schemas compiles, but for the one with a back-reference.
    #[test]
    fn patterns_of_real_schemas() {
        let Some(folder) = shared("maskbench") else {
            return;
        };
        let mut patterns = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let Ok(file) = serde_json::from_str::<serde_json::Value>(&text) else {
                continue;
            };
            let mut pending = vec![&file["schema"]];
            while let Some(value) = pending.pop() {
                patterns.extend(value["pattern"].as_str().map(str::to_owned));
                if let Some(keys) = value["patternProperties"].as_object() {
                    patterns.extend(keys.keys().cloned());
                }
                match value {
                    serde_json::Value::Object(members) => pending.extend(members.values()),
                    serde_json::Value::Array(items) => pending.extend(items),
                    _ => {}
                }
            }
        }
        assert!(patterns.len() > 1800, "{}", patterns.len());
        let mut l = lexicon();
        let refused: Vec<&String> = patterns
            .iter()
            .filter(|pattern| l.json_string_pattern(pattern, &LIMITS).is_err())
            .collect();
        assert_eq!(refused, [r"^\s*<([A-Za-z]+).+?(\/>|\/\1>)\s*$"]);
        assert!(l.len() < 60_000, "{}", l.len());
    }

    /// Patterns with assertions, which may be such as can't be enforced.
    fn patterns() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "a", "b", "n", "/", "[ab]", "[^a]", "\\n", "é", ".", "\"", "\\\\", "\\t", "^", "$",
            "\\b", "\\B", "\\w", "\\S", "[^]", "\\u0001", "[^\\n\"]",
        ]);
        let leaf = leaf.prop_map(str::to_owned);
        leaf.prop_recursive(4, 24, 4, |inner| {
            let repeat =
                prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 1..3)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (
                    inner.clone(),
                    prop::sample::select(vec!["(?=", "(?!", "(?<=", "(?<!"])
                )
                    .prop_map(|(inner, look)| format!("{look}{inner})")),
                (inner, repeat).prop_map(|(inner, repeat)| format!("(?:{inner}){repeat}")),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_pattern_means_what_ecma_262_says(
            pattern in patterns(),
            texts in prop::collection::vec("[abn/é\n\"\\\\\t\u{1}]{0,6}", 16),
            (min, max) in (0_u32..4, 0_u32..6),
        ) {
            let mut l = lexicon();
            let Ok(free) = l.json_string_pattern(&pattern, &LIMITS) else {
                return Err(TestCaseError::reject("an assertion that can't be enforced"));
            };
            let length = Chars { min, max };
            let within = l.json_string_pattern_of_length(&pattern, length, &LIMITS).unwrap();
            let regex = regress::Regex::with_flags(&pattern, "u").unwrap();
            for text in texts {
                let written = spelled(&text);
                let found = regex.find(&text).is_some();
                prop_assert_eq!(accepts(&mut l, free, written.as_bytes()), found, "{}", text);
                let good = found && (min..=max).contains(&(text.chars().count() as u32));
                prop_assert_eq!(accepts(&mut l, within, written.as_bytes()), good, "{}", text);
                prop_assert!(!good || live_after(&mut l, within, &written.as_bytes()[..written.len() / 2]));
            }
        }
    }
}
