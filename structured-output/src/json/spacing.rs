//! White space as the options ask for it.

use super::schema::in_pattern;
use super::text::Spacing;
use crate::error::CompileError;
use crate::lexical::search::{DEAD, nearest_end};
use crate::lexical::{EPSILON, ExprId, Fuel, Lexicon, Stop};
use crate::options::{JsonSchemaOptions, Whitespace};
use crate::regex::{self, Ast, Dialect, RegexError, RegexLimits, Spelling, Translator};

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
    /// Too few steps or too little memory; within, [`CompileError::InvalidOption`] where a pattern or separator is
    /// malformed or could be more than white space.
    pub(crate) fn spacing_of(
        &mut self,
        options: &JsonSchemaOptions,
        limits: RegexLimits,
        fuel: &mut Fuel,
    ) -> Result<Result<Spacing, CompileError>, Stop> {
        let whitespace = match whitespace_of(options) {
            Ok(whitespace) => whitespace,
            Err(error) => return Ok(Err(error)),
        };
        let spacing = match &options.whitespace_pattern {
            None => Ok(self.spacing(whitespace)),
            Some(pattern) => match self.blanks(pattern, limits) {
                Ok(blanks) => self.proven(pattern, blanks, fuel)?,
                Err(error) => Err(invalid_pattern(in_pattern(pattern, &error))),
            },
        };
        Ok(spacing.and_then(|spacing| self.separated(spacing, options)))
    }

    /// The same with what is around the text and with separators of its own, if the options have some.
    fn separated(
        &mut self,
        mut spacing: Spacing,
        options: &JsonSchemaOptions,
    ) -> Result<Spacing, CompileError> {
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

    /// The language of a pattern as far as it is JSON's white space, and what it matches beyond that of Unicode.
    fn blanks(&mut self, pattern: &str, limits: RegexLimits) -> Result<[ExprId; 2], RegexError> {
        let ast = regex::parse(pattern, Dialect::Common, limits)?;
        let mut translate = |ast: Ast| {
            let language = Translator::new(ast, Spelling::Utf8).run(self, usize::MAX)?;
            Ok(language.unwrap_or(EPSILON))
        };
        // `\s` is more than JSON's white space, of which that part is meant. What is no white space at all is a mistake.
        let own = translate(ast.within(&JSON_BLANKS))?;
        let all = translate(ast)?;
        let space = self.code_points(SPACES.iter().copied());
        let spaces = self.star(space);
        let others = self.not(spaces);
        Ok([own, self.and(&[all, others])])
    }

    /// White space by a pattern, if it matches some of JSON's and nothing else.
    fn proven(
        &mut self,
        pattern: &str,
        blanks: [ExprId; 2],
        fuel: &mut Fuel,
    ) -> Result<Result<Spacing, CompileError>, Stop> {
        let ends = fuel.all_within(MAX_STEPS, |part| {
            let [own, others] = blanks.map(|language| nearest_end(self, language, part));
            Ok((own?, others?))
        })?;
        Ok(match ends {
            None => Err(invalid_pattern(format!("`{pattern}` takes too many steps"))),
            Some((own, DEAD)) if own != DEAD => Ok(self.padded_by(blanks[0])),
            Some(_) => Err(invalid_pattern(format!(
                "`{pattern}` matches something else than JSON white space (space, tab, line ends)"
            ))),
        })
    }
}

/// The white space that the options name, and that of indented text.
fn whitespace_of(options: &JsonSchemaOptions) -> Result<Whitespace, CompileError> {
    let invalid = |message: String| CompileError::InvalidOption {
        option: "indent".to_owned(),
        message,
    };
    match (
        options.indent,
        options.whitespace,
        &options.whitespace_pattern,
    ) {
        (None, whitespace, _) => Ok(whitespace),
        (Some(width), Whitespace::Usual, None) if width <= MAX_INDENT => Ok(Whitespace::Spaced),
        (Some(width), Whitespace::Usual, None) => Err(invalid(format!(
            "expected a whole number from 0 to {MAX_INDENT}, not `{width}`"
        ))),
        (Some(_), ..) => Err(invalid(
            "says what white space there is: leave `whitespace` and `whitespace_pattern` out"
                .to_owned(),
        )),
    }
}

fn invalid_pattern(message: String) -> CompileError {
    CompileError::InvalidOption {
        option: "whitespace_pattern".to_owned(),
        message,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexical::Lack;
    use crate::options::Limits;

    /// The proof takes of the compilation's memory and says so where there is too little.
    #[test]
    fn a_pattern_of_white_space_has_the_memory_of_its_compilation() {
        let options = JsonSchemaOptions {
            whitespace_pattern: Some(r"([ \t]{0,40}\n){0,40}".to_owned()),
            ..JsonSchemaOptions::default()
        };
        let spacing = |more| {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let mut fuel = Fuel::new(10 * MAX_STEPS);
            fuel.limit_bytes(lexicon.memory_bytes() + more);
            let spacing = lexicon.spacing_of(&options, Limits::default().regex(), &mut fuel);
            spacing.map(|spacing| spacing.is_ok())
        };
        assert_eq!(spacing(1 << 30), Ok(true));
        assert_eq!(spacing(1 << 10), Err(Stop::Bytes(Lack::States)));
    }
}
