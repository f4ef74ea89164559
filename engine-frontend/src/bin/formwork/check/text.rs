//! `--text`: how far a text fits, drawn.

use std::fmt::Write as _;
use std::process::ExitCode;

use engine_frontend::TextFit;
use structured_output::CompiledGrammar;

/// Characters of a line that are shown before the place at which a text stops fitting, at most, and behind it.
const SHOWN_CHARS: usize = 60;

/// Holds a text against a grammar and says in a report how far it fits. A line end at its end, which editors
/// write, is left out where it doesn't fit.
pub(super) fn hold_against(
    grammar: &CompiledGrammar,
    text: &str,
    report: &mut String,
) -> anyhow::Result<ExitCode> {
    let mut fit = TextFit::of(grammar, text)?;
    let mut text = text;
    if !fit.is_complete
        && let Some(without) = text.strip_suffix('\n')
    {
        text = without.strip_suffix('\r').unwrap_or(without);
        fit = TextFit::of(grammar, text)?;
    }
    let expected = fit.expected.join(", ");
    if fit.is_complete {
        writeln!(report, "text      fits, and is whole")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (line, column) = place_of(text, fit.accepted_bytes);
    match fit.is_prefix {
        true => writeln!(
            report,
            "text      breaks off at line {line}, column {column}"
        )?,
        false => writeln!(
            report,
            "text      stops fitting at line {line}, column {column}"
        )?,
    }
    report.push_str(&drawn(text, fit.accepted_bytes));
    writeln!(report, "expected  {expected}")?;
    Ok(ExitCode::FAILURE)
}

/// Line and column in characters, from 1, of a place in a text.
fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    (before.matches('\n').count() + 1, column + 1)
}

/// The line of a place, and below it a caret at the place. Of a long line its part around the place, and in
/// place of characters that a terminal obeys a sign.
fn drawn(text: &str, at: usize) -> String {
    let (before, behind) = text.split_at_checked(at).unwrap_or((text, ""));
    let before = before.rsplit('\n').next().unwrap_or_default();
    let behind = behind.split('\n').next().unwrap_or_default();
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let num_before = before.chars().count();
    let num_left_out = num_before.saturating_sub(SHOWN_CHARS);
    let ellipsis = if num_left_out > 0 { "..." } else { "" };
    let before: String = before.chars().skip(num_left_out).map(shown).collect();
    let behind: String = behind.chars().take(SHOWN_CHARS).map(shown).collect();
    let indent = " ".repeat(ellipsis.len() + before.chars().count());
    format!("          {ellipsis}{before}{behind}\n          {indent}^\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::byte_compiler;

    fn report(text: &str) -> String {
        let grammar = byte_compiler().unwrap();
        let grammar = grammar.compile_regex("(a|é|\\n)+[0-9]").unwrap();
        let mut report = String::new();
        hold_against(&grammar, text, &mut report).unwrap();
        report
    }

    #[test]
    fn a_caret_stands_where_a_text_stops_fitting() {
        assert_eq!(
            report("aé\naéaxa\na1"),
            "text      stops fitting at line 2, column 4\n\
             \u{20}         aéaxa\n\
             \u{20}            ^\n\
             expected  a digit, \"a\", a character beyond ASCII, a line break\n"
        );
        assert!(report("a1\n").contains("fits, and is whole"));
        assert!(
            report("a").starts_with(
                "text      breaks off at line 1, column 2\n          a\n           ^\n"
            )
        );
        let long = format!("{}b{}", "a".repeat(100), "c".repeat(100));
        let drawn = report(&long);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[1].trim_start().len(), 3 + 2 * SHOWN_CHARS);
        assert_eq!(lines[2].find('^'), Some(10 + 3 + SHOWN_CHARS));
        assert!(report("a\u{1b}").contains('\u{fffd}'));
    }
}
