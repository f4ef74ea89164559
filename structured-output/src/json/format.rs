//! `format` as languages: the formats of draft 2020-12.
//!
//! Each is written as a pattern over decoded characters, close to the grammar of its RFC. Where a
//! format is not regular, or its automaton would be too large, the language is smaller than the
//! format, never larger: see [`Lexicon::json_string_format`].

use std::fmt::Write;

use super::format_regex::regex_pattern;
use crate::lexical::{Chars, ExprId, Lexicon, UNBOUNDED};
use crate::regex::{self, Ast, Dialect, RegexLimits};

/// Patterns of this file are within these.
const LIMITS: RegexLimits = RegexLimits {
    max_nodes: 50_000,
    max_nesting: 64,
    max_repetition: 1024,
};

/// Formats with a length that are remembered.
const MAX_KNOWN: usize = 256;

const HEX: &str = "[0-9A-Fa-f]";
const PERCENT: &str = "%[0-9A-Fa-f]{2}";
const OCTET: &str = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)";
/// RFC 3986's unreserved and sub-delims, for within a class; without `-`, which stands last.
const URI_CHARS: &str = r"A-Za-z0-9._~!$&'()*+,;=";
/// RFC 3987's ucschar, for within a class.
const UCSCHAR: &str = concat!(
    r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}\u{10000}-\u{1fffd}\u{20000}-\u{2fffd}",
    r"\u{30000}-\u{3fffd}\u{40000}-\u{4fffd}\u{50000}-\u{5fffd}\u{60000}-\u{6fffd}",
    r"\u{70000}-\u{7fffd}\u{80000}-\u{8fffd}\u{90000}-\u{9fffd}\u{a0000}-\u{afffd}",
    r"\u{b0000}-\u{bfffd}\u{c0000}-\u{cfffd}\u{d0000}-\u{dfffd}\u{e1000}-\u{efffd}",
);
/// RFC 3987's iprivate, for within a class.
const IPRIVATE: &str = r"\u{e000}-\u{f8ff}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}";
const POINTER: &str = "(?:/(?:[^/~]|~[01])*)*";

impl Lexicon {
    /// Strings of a format; `None` where the name is not one of draft 2020-12.
    ///
    /// Smaller than their formats are, each for a reason:
    /// - `time`, `date-time`: a leap second only beside offsets of whole quarters of an hour;
    /// - `hostname`, `idn-hostname`: no labels with hyphens in the third and fourth place, among them
    ///   `xn--`, whose Punycode is not regular;
    /// - `email`, `idn-email`: no address literal but IPv4 and IPv6; a local part that has escapes or
    ///   signs beyond ASCII has fewer characters than RFC 5321's 64 octets hold;
    /// - `idn-hostname`: labels of few scripts, each written left to right, of limited length;
    /// - `regex`: groups nested up to four deep, no back-references, counts below 100, one name.
    #[cfg(test)]
    pub(crate) fn json_string_format(&mut self, name: &str) -> Option<ExprId> {
        self.json_string_format_of_length(name, Chars::ANY)
    }

    /// Strings of a format and a length.
    pub(crate) fn json_string_format_of_length(
        &mut self,
        name: &str,
        length: Chars,
    ) -> Option<ExprId> {
        let key = (name.to_owned(), length);
        if let Some(&known) = self.formats.get(&key) {
            return Some(known);
        }
        let (pattern, max) = pattern_of(name)?;
        let length = Chars {
            max: length.max.min(max),
            ..length
        };
        let whole = format!("^(?:{pattern})$");
        let expr = self.json_string_pattern_of_length(&whole, length, &LIMITS);
        let expr = expr.ok()?;
        if self.formats.len() < MAX_KNOWN {
            self.formats.insert(key, expr);
        }
        Some(expr)
    }
}

/// A format's pattern of the whole text as it stands, without JSON's escapes, and the most characters that it may have
/// ([`UNBOUNDED`] where there is no bound); `None` where the name is not one of draft 2020-12.
pub(crate) fn format_pattern(name: &str) -> Option<(Ast, u32)> {
    let (pattern, max) = pattern_of(name)?;
    let ast = regex::parse(&format!("^(?:{pattern})$"), Dialect::Ecma, LIMITS).ok()?;
    Some((ast.search(Chars::ANY).0, max))
}

/// A format's pattern of the whole text, and the most characters that it may have.
fn pattern_of(name: &str) -> Option<(String, u32)> {
    let pattern = match name {
        "date-time" => format!("(?:{})[Tt](?:{})", date(), time()),
        "date" => date(),
        "time" => time(),
        "duration" => duration(),
        "email" => email(false),
        "idn-email" => email(true),
        "hostname" => return Some((host_name(), 253)),
        "idn-hostname" => return Some((idn_host_name(), 253)),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "uri" => format!("{}{}", uri_scheme(), uri_rest(false, false)),
        "uri-reference" => uri_reference(false),
        "iri" => format!("{}{}", uri_scheme(), uri_rest(true, false)),
        "iri-reference" => uri_reference(true),
        "uuid" => format!("{HEX}{{8}}-(?:{HEX}{{4}}-){{3}}{HEX}{{12}}"),
        "uri-template" => uri_template(),
        "json-pointer" => POINTER.to_owned(),
        "relative-json-pointer" => format!(r"(?:0|[1-9]\d*)(?:#|{POINTER})"),
        "regex" => regex_pattern(),
        _ => return None,
    };
    Some((pattern, UNBOUNDED))
}

/// RFC 3339's full-date, with the lengths of months and leap years.
fn date() -> String {
    let leap_year = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
    let day = r"(?:0[1-9]|1\d|2[0-8]";
    format!(
        r"\d{{4}}-(?:(?:0[13578]|1[02])-{day}|29|3[01])|(?:0[469]|11)-{day}|29|30)|02-{day}))|{leap_year}-02-29"
    )
}

/// RFC 3339's full-time.
fn time() -> String {
    let fraction = r"(?:\.\d+)?";
    let mut pattern = format!(
        r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d{fraction}(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
    );
    // A leap second is at 23:59:60 in UTC, which is what the offset makes of it.
    const DAY: u32 = 24 * 60;
    for east in (0..DAY).step_by(15) {
        let (local, west) = ((DAY - 1 + east) % DAY, (DAY - east) % DAY);
        let zulu = if east == 0 { "[Zz]|" } else { "" };
        let clock = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let (local, east, west) = (clock(local), clock(east), clock(west));
        // Writing to a string does not fail.
        let _ = write!(pattern, r"|{local}:60{fraction}(?:{zulu}\+{east}|-{west})");
    }
    pattern
}

/// RFC 3339's appendix A.
fn duration() -> String {
    let time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)";
    let date = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)";
    format!(r"P(?:\d+W|{date}(?:{time})?|{time})")
}

/// RFC 5321's Mailbox, and RFC 6531's with `international`.
fn email(international: bool) -> String {
    let more = if international {
        r"\u{80}-\u{10ffff}"
    } else {
        ""
    };
    let atom = format!(r"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{more}-]+");
    // RFC 5321's limit on the local part, 64 octets, the quotes among them. What may take more than
    // one octet is counted as the most that it takes.
    let (short, num_escaped) = if international {
        ("|[^@]{1,16}", 15)
    } else {
        ("", 31)
    };
    let within_limit = format!("(?=(?:[!-?A-~]{{1,64}}{short})@)");
    let plain = r"[ !#-\[\]-~]";
    let quoted =
        format!(r#""(?:{plain}{{0,62}}|(?:[ !#-\[\]-~{more}]|\\[ -~]){{0,{num_escaped}}})""#);
    let label = if international {
        format!("[A-Za-z0-9{more}](?:[A-Za-z0-9{more}-]{{0,61}}[A-Za-z0-9{more}])?")
    } else {
        "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?".to_owned()
    };
    let (ipv4, ipv6) = (ipv4(), ipv6());
    format!(
        r"(?:{within_limit}{atom}(?:\.{atom})*|{quoted})@(?:(?:{label})(?:\.(?:{label}))*|\[(?:{ipv4}|[Ii][Pp][Vv]6:(?:{ipv6}))\])"
    )
}

/// A label of a host name (RFC 1123): letters, digits, and hyphens within, 63 at most. Not with
/// hyphens in the third and fourth place, which RFC 5890 reserves: `xn--` is one of them.
fn label() -> String {
    const ALNUM: &str = "[A-Za-z0-9]";
    const ANY: &str = "[A-Za-z0-9-]";
    // After the third character, and after a fourth that follows a hyphen.
    let tail = |count: u32| format!("(?:{ANY}{{0,{count}}}{ALNUM})?");
    let (long, after_hyphen) = (tail(59), tail(58));
    format!("{ALNUM}(?:{ALNUM}|{ANY}(?:{ALNUM}{long}|-{ALNUM}{after_hyphen}))?")
}

fn host_name() -> String {
    let label = label();
    format!(r"(?:{label})(?:\.(?:{label}))*")
}

/// Host names of [`label`]s, and names of up to three labels that may be RFC 5890's U-labels.
///
/// A U-label here is of one script that is written left to right, in lower case, without marks and
/// without the signs whose neighbours RFC 5892 asks about, but for the middle dots and the keraia.
/// At most nine letters: as Punycode they take six digits each or less, so a label stays within 63
/// characters, and three labels within 253.
fn idn_host_name() -> String {
    let scripts = [
        "[a-z0-9ß-öø-ÿ]|l·l",
        "[0-9]|\u{375}?[ά-ώ]",
        "[0-9а-џ]",
        "[0-9가-힣]",
        "[0-9a-z一-鿋]",
        "[0-9ぁ-ゖァ-ヺー一-鿋]",
    ];
    let label = label();
    let mut labels = label.clone();
    for letters in scripts {
        let _ = write!(labels, "|(?:{letters}){{1,9}}");
    }
    labels.push_str("|・[ぁ-ゖァ-ヺー一-鿋]{1,8}");
    let stop = "[.。．｡]";
    format!("(?:{label})(?:{stop}(?:{label}))*|(?:{labels})(?:{stop}(?:{labels})){{0,2}}")
}

/// RFC 3986's IPv4address.
fn ipv4() -> String {
    format!(r"(?:{OCTET}\.){{3}}{OCTET}")
}

/// RFC 3986's IPv6address.
fn ipv6() -> String {
    let group = format!("{HEX}{{1,4}}");
    let low = format!("(?:{group}:{group}|{})", ipv4());
    let mut pattern = format!("(?:{group}:){{6}}{low}|::(?:{group}:){{5}}{low}");
    for before in 0..=4 {
        let after = 4 - before;
        let _ = write!(
            pattern,
            "|(?:(?:{group}:){{0,{before}}}{group})?::(?:{group}:){{{after}}}{low}"
        );
    }
    let _ = write!(
        pattern,
        "|(?:(?:{group}:){{0,5}}{group})?::{group}|(?:(?:{group}:){{0,6}}{group})?::"
    );
    pattern
}

fn uri_scheme() -> &'static str {
    "[A-Za-z][A-Za-z0-9+.-]*:"
}

/// A URI after its scheme, or without it the relative-ref of RFC 3986; of RFC 3987 with
/// `international`.
fn uri_rest(international: bool, relative: bool) -> String {
    let (more, private) = if international {
        (UCSCHAR, IPRIVATE)
    } else {
        ("", "")
    };
    let any_of = |signs: &str| format!("(?:[{URI_CHARS}{more}{signs}-]|{PERCENT})");
    let (name, user, path) = (any_of(""), any_of(":"), any_of(":@"));
    let ipv6 = ipv6();
    let host = format!(r"(?:\[(?:{ipv6}|[Vv]{HEX}+\.[{URI_CHARS}:-]+)\]|{name}*)");
    let authority = format!(r"(?:{user}*@)?{host}(?::\d*)?");
    // The first segment of a relative path must not look like a scheme.
    let first = if relative { any_of("@") } else { path.clone() };
    let query = any_of(&format!(":@/?{private}"));
    let fragment = any_of(":@/?");
    format!(
        r"(?://{authority}(?:/{path}*)*|/(?:{path}+(?:/{path}*)*)?|{first}+(?:/{path}*)*)?(?:\?{query}*)?(?:#{fragment}*)?"
    )
}

fn uri_reference(international: bool) -> String {
    format!(
        "{}{}|{}",
        uri_scheme(),
        uri_rest(international, false),
        uri_rest(international, true)
    )
}

/// RFC 6570; an apostrophe is a literal, as errata 6937 says.
fn uri_template() -> String {
    let literal = format!(r"[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{UCSCHAR}{IPRIVATE}]|{PERCENT}");
    let char = format!("(?:[A-Za-z0-9_]|{PERCENT})");
    let variable = format!(r"{char}(?:\.?{char})*(?::[1-9]\d{{0,3}}|\*)?");
    format!(r"(?:{literal}|\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\}})*")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{accepts, shared};
    use super::*;

    fn is_in(l: &mut Lexicon, format: &str, text: &str) -> bool {
        let expr = l.json_string_format(format).unwrap();
        accepts(l, expr, serde_json::to_string(text).unwrap().as_bytes())
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let mut l = Lexicon::new(Vec::new(), 8);
        for year in [0, 4, 100, 1900, 1999, 2000, 2023, 2024, 2100, 9999] {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            for month in 0..=13 {
                let days = match month {
                    2 if leap => 29,
                    2 => 28,
                    4 | 6 | 9 | 11 => 30,
                    1..=12 => 31,
                    _ => 0,
                };
                for day in [0, 1, 9, 10, 28, 29, 30, 31, 32] {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    let good = (1..=days).contains(&day);
                    assert_eq!(is_in(&mut l, "date", &text), good, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_leap_second_is_the_last_of_a_day_in_utc() {
        let mut l = Lexicon::new(Vec::new(), 8);
        for local in (0..24 * 60).step_by(7) {
            for offset in (-23 * 60..=23 * 60).step_by(15) {
                let sign = if offset < 0 { '-' } else { '+' };
                let clock = |m: i32| format!("{:02}:{:02}", m.abs() / 60, m.abs() % 60);
                let text = format!("{}:60.5{sign}{}", clock(local), clock(offset));
                let good = (local - offset).rem_euclid(24 * 60) == 24 * 60 - 1;
                assert_eq!(is_in(&mut l, "time", &text), good, "{text}");
            }
        }
        assert!(is_in(&mut l, "time", "23:59:60z") && !is_in(&mut l, "time", "24:00:00Z"));
        assert!(is_in(&mut l, "date-time", "2016-12-31t15:59:60-08:00"));
    }

    #[test]
    fn lengths_of_host_names() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let label = "a".repeat(63);
        for (name, good) in [
            (label.clone(), true),
            (format!("{label}a"), false),
            (format!("{label}.{label}.{label}.{}", "a".repeat(61)), true),
            (format!("{label}.{label}.{label}.{}", "a".repeat(62)), false),
            (format!("x{}", "n".repeat(62)), true),
            (format!("xn{}", "n".repeat(62)), false),
            ("xn-a".into(), true),
            ("xn--a".into(), false),
            ("xn-".into(), false),
            ("Xn".into(), true),
            ("x--n".into(), true),
            ("ab--c".into(), false),
            ("ab-c--d".into(), true),
            (format!("ab-{}", "c".repeat(60)), true),
            (format!("ab-{}", "c".repeat(61)), false),
            (format!("abc{}", "-".repeat(60)), false),
        ] {
            assert_eq!(is_in(&mut l, "hostname", &name), good, "{name}");
        }
    }

    #[test]
    fn local_parts_of_addresses_take_at_most_64_octets() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let atoms = |first: usize, second: usize| {
            format!("{}.{}@a.b", "x".repeat(first), "y".repeat(second))
        };
        let quoted = |count: usize| format!("\"{}\"@a", "@".repeat(count));
        let escaped = |count: usize| format!("\"{}\"@a", "\\@".repeat(count));
        for format in ["email", "idn-email"] {
            for (address, good) in [
                (atoms(32, 31), true),
                (atoms(1, 62), true),
                (atoms(32, 32), false),
                (format!("{}@a", "x".repeat(64)), true),
                (format!("{}@a", "x".repeat(65)), false),
                ("@a".to_owned(), false),
                (quoted(0), true),
                (quoted(62), true),
                (quoted(63), false),
                (escaped(15), true),
                (escaped(32), false),
            ] {
                assert_eq!(is_in(&mut l, format, &address), good, "{format} {address}");
            }
        }
        let beyond = |count: usize| format!("{}@a", "\u{1f600}".repeat(count));
        assert!(is_in(&mut l, "idn-email", &beyond(16)));
        assert!(!is_in(&mut l, "idn-email", &beyond(17)));
        assert!(!is_in(&mut l, "email", &beyond(1)));
    }

    #[test]
    fn a_slash_may_be_escaped_and_a_length_asked_for() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let uri = l.json_string_format("uri").unwrap();
        assert!(accepts(&mut l, uri, br#""http:\/\/a/b""#));
        let length = Chars { min: 0, max: 10 };
        let short = l.json_string_format_of_length("uri", length).unwrap();
        assert!(accepts(&mut l, short, br#""http:\/\/a/b""#));
        assert!(!accepts(&mut l, short, br#""http://a/bc""#));
        // A bound that the format implies changes nothing.
        let length = Chars { min: 1, max: 36 };
        let uuid = l.json_string_format("uuid");
        assert_eq!(l.json_string_format_of_length("uuid", length), uuid);
        assert_eq!(l.json_string_format("color"), None);
    }

    /// The official suite's optional tests: nothing invalid is accepted, and of what is valid only
    /// what the languages leave out is refused.
    #[test]
    fn the_format_tests_of_the_suite() {
        let Some(suite) = shared("json-schema-test-suite/draft2020-12/optional/format") else {
            return;
        };
        let mut l = Lexicon::new(Vec::new(), 8);
        let mut refused = std::collections::BTreeMap::new();
        let mut right = 0;
        for entry in std::fs::read_dir(suite).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let groups: serde_json::Value = serde_json::from_str(&text).unwrap();
            for group in groups.as_array().unwrap() {
                let format = group["schema"]["format"].as_str().unwrap_or("");
                if pattern_of(format).is_none() {
                    continue;
                }
                for test in group["tests"].as_array().unwrap() {
                    let Some(text) = test["data"].as_str() else {
                        continue;
                    };
                    match (is_in(&mut l, format, text), test["valid"] == true) {
                        (true, false) => panic!("{format} accepts {text:?}"),
                        (false, true) => *refused.entry(format.to_owned()).or_insert(0) += 1,
                        _ => right += 1,
                    }
                }
            }
        }
        let refused: Vec<(&str, i32)> = refused.iter().map(|(f, &n)| (f.as_str(), n)).collect();
        assert_eq!(
            refused,
            [("hostname", 15), ("idn-hostname", 14), ("regex", 1)]
        );
        assert!(right > 500, "{right}");
    }
}
