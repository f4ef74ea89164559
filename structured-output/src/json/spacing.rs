//! White space as the options ask for it.

use super::schema::in_pattern;
use super::text::{Spacing, Whitespace};
use crate::error::CompileError;
use crate::lexical::search::{DEAD, nearest_end};
use crate::lexical::{EPSILON, ExprId, Fuel, Lexicon};
use crate::options::JsonSchemaOptions;
use crate::regex::{self, Ast, Dialect, RegexLimits, Spelling, Translator};

/// Steps for the proof that a pattern of white space matches nothing else.
const MAX_STEPS: u64 = 100_000;

/// Spaces for each level of `indent`, at most.
const MAX_INDENT: u32 = 16;

/// White space of JSON.
const JSON_BLANKS: [(char, char); 3] = [('\t', '\n'), ('\r', '\r'), (' ', ' ')];

/// White space of Unicode, and what Python takes for it.
const SPACES: [(char, char); 10] = [
    ('\t', '\r'),
    ('\x1c', ' '),
    ('\u{85}', '\u{85}'),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
];

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl Lexicon {
    /// The white space that some options ask for.
    ///
    /// # Errors
    /// [`CompileError::InvalidOption`] where a pattern or separator is malformed or could be more
    /// than white space.
    pub(crate) fn spacing_of(
        &mut self,
        options: &JsonSchemaOptions,
        limits: RegexLimits,
    ) -> Result<Spacing, CompileError> {
        let spaced = (
            options.indent,
            options.whitespace,
            &options.whitespace_pattern,
        );
        let whitespace = match spaced {
            (Some(width), Whitespace::Usual, None) if width <= MAX_INDENT => Whitespace::Spaced,
            (Some(width), Whitespace::Usual, None) => {
                return Err(CompileError::InvalidOption {
                    option: "indent".to_owned(),
                    message: format!(
                        "expected a whole number from 0 to {MAX_INDENT}, not `{width}`"
                    ),
                });
            }
            (Some(_), ..) => {
                return Err(CompileError::InvalidOption {
                    option: "indent".to_owned(),
                    message: "says what white space there is: leave `whitespace` and `whitespace_pattern` out"
                        .to_owned(),
                });
            }
            (None, whitespace, _) => whitespace,
        };
        let mut spacing = match &options.whitespace_pattern {
            None => self.spacing(whitespace),
            Some(pattern) => {
                let pad = self.blanks(pattern, limits)?;
                self.padded_by(pad)
            }
        };
        if options.indent.is_some() {
            // A line end follows it.
            spacing.comma = self.byte(b',');
        }
        if options.trimmed {
            spacing.outer = EPSILON;
        }
        if let Some((item, key)) = &options.separators {
            let (before, after) = split(item, ',')?;
            spacing.comma = self.literal(format!("{before},{after}").as_bytes());
            let (before, after) = split(key, ':')?;
            spacing.colon = self.literal(format!("{before}:").as_bytes());
            spacing.after_colon = self.literal(after.as_bytes());
        }
        Ok(spacing)
    }

    /// The language of a pattern that matches white space only, as far as it is JSON's.
    fn blanks(&mut self, pattern: &str, limits: RegexLimits) -> Result<ExprId, CompileError> {
        let invalid = |message: String| CompileError::InvalidOption {
            option: "whitespace_pattern".to_owned(),
            message,
        };
        let ast = regex::parse(pattern, Dialect::Common, limits)
            .map_err(|error| invalid(in_pattern(pattern, &error)))?;
        let translate = |lexicon: &mut Self, ast: Ast| {
            let language = Translator::new(ast, Spelling::Utf8).run(lexicon, usize::MAX);
            let language = language.map_err(|error| invalid(in_pattern(pattern, &error)))?;
            Ok(language.unwrap_or(EPSILON))
        };
        let is_empty = |lexicon: &mut Self, language: ExprId| {
            let end = nearest_end(lexicon, language, &mut Fuel::new(MAX_STEPS));
            let end = end.map_err(|_| invalid(format!("`{pattern}` takes too many steps")))?;
            Ok(end == DEAD)
        };
        // `\s` is more than JSON's white space, of which that part is meant. What is no white space at all is a mistake.
        let own = translate(self, ast.within(&JSON_BLANKS))?;
        let all = translate(self, ast)?;
        let space = self.code_points(SPACES.iter().copied());
        let spaces = self.star(space);
        let others = self.not(spaces);
        let others = self.and(&[all, others]);
        if !is_empty(self, others)? || is_empty(self, own)? {
            return Err(invalid(format!(
                "`{pattern}` matches something else than JSON white space (space, tab, line ends)"
            )));
        }
        Ok(own)
    }
}

/// What a separator has before and after its sign.
fn split(separator: &str, sign: char) -> Result<(&str, &str), CompileError> {
    separator
        .split_once(sign)
        .filter(|(before, after)| before.bytes().chain(after.bytes()).all(is_blank))
        .ok_or_else(|| CompileError::InvalidOption {
            option: "separators".to_owned(),
            message: format!("expected `{sign}` with JSON white space around, not {separator:?}"),
        })
}
