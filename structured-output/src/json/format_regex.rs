//! The format `regex`: ECMA-262's patterns, as far as a pattern can say what a pattern is.

/// Groups within groups: brackets that match are not regular at any depth.
const MAX_DEPTH: usize = 4;

/// A pattern of patterns, with the flag `u` or without. Smaller than ECMA-262: groups are nested up
/// to [`MAX_DEPTH`] deep, one outer group at most has a name (names may not repeat), there are no back-references and no properties, counts
/// are below 100, and ranges in classes are between digits, between letters of one case, or up to a
/// code point by its escape.
pub(super) fn regex_pattern() -> String {
    let sign = r##"[ !"#%&',\-./:;<=>@_`~]"##;
    let hex = "[0-9A-Fa-f]";
    let escape = format!(
        r##"\\(?:[dDwWsStnrfv0^$\\.*+?()\[\]{{}}|/\-:;,@!"#%&'<=>`~ _]|c[A-Za-z]|x{hex}{{2}}|u(?:[0-9A-CEFa-cef]{hex}{{3}}|[Dd][0-7]{hex}{{2}}))"##
    );
    let mut ranges = Vec::new();
    for (first, last) in [('0', '9'), ('A', 'Z'), ('a', 'z')] {
        ranges.extend((first..=last).map(|low| format!("{low}-[{low}-{last}]")));
    }
    let ranges = ranges.join("|");
    // In a class a hyphen stands first or last, or makes a range.
    let member = format!(r"(?:{ranges}|[^\]\\\-]|{escape})");
    let class = format!(r"\[\^?-?(?:{member})*-?\]");
    let literal = r"[0-9A-Za-z\u{a0}-\u{d7ff}\u{e000}-\u{10ffff}]";
    // `{m,n}` with m no more than n.
    let mut counts = vec![r"(?:0|[1-9]\d?)(?:,)?".to_owned()];
    counts.extend((0..10).map(|low| format!(r"{low},(?:[{low}-9]|[1-9]\d)")));
    for tens in 1..10 {
        counts.extend((0..10).map(|ones| {
            let above = match tens {
                9 => String::new(),
                _ => format!(r"|[{}-9]\d", tens + 1),
            };
            format!("{tens}{ones},(?:{tens}[{ones}-9]{above})")
        }));
    }
    let quantifier = format!(r"(?:(?:[*+?]|\{{(?:{})\}})\??)?", counts.join("|"));
    let atom = format!(r"(?:{sign}|{literal}|{escape}|{class})");
    let assertion = r"\^|\$|\\[bB]|\|";
    let mut terms = format!("(?:{atom}{quantifier}|{assertion})*");
    for _ in 0..MAX_DEPTH {
        // A look-around takes no quantifier, a group does.
        let group = format!(r"\((?:\?(?::|<?[=!]))?{terms}\)");
        terms = format!("(?:{atom}{quantifier}|{assertion}|{group}{quantifier})*");
    }
    let name = r"[A-Za-z_$][A-Za-z0-9_$]*";
    format!(r"{terms}(?:\(\?<{name}>{terms}\){quantifier}{terms})?")
}
