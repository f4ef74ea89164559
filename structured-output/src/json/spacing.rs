//! White space as the options ask for it.

use super::schema::in_pattern;
use super::text::Spacing;
use crate::error::CompileError;
use crate::lexical::search::{DEAD, nearest_end};
use crate::lexical::{ByteSet, EPSILON, ExprId, Fuel, Lexicon};
use crate::options::JsonSchemaOptions;
use crate::regex::{self, Dialect, RegexLimits, Spelling, Translator};

/// Steps for the proof that a pattern of white space matches nothing else.
const MAX_STEPS: u64 = 100_000;

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
        let mut spacing = match &options.whitespace_pattern {
            None => self.spacing(options.whitespace),
            Some(pattern) => {
                let pad = self.blanks(pattern, limits)?;
                self.padded_by(pad)
            }
        };
        if let Some((item, key)) = &options.separators {
            let (before, after) = split(item, ',')?;
            spacing.comma = self.literal(format!("{before},{after}").as_bytes());
            let (before, after) = split(key, ':')?;
            spacing.colon = self.literal(format!("{before}:").as_bytes());
            spacing.after_colon = self.literal(after.as_bytes());
        }
        Ok(spacing)
    }

    /// The language of a pattern that matches white space only.
    fn blanks(&mut self, pattern: &str, limits: RegexLimits) -> Result<ExprId, CompileError> {
        let invalid = |message: String| CompileError::InvalidOption {
            option: "whitespace_pattern".to_owned(),
            message,
        };
        let ast = regex::parse(pattern, Dialect::Common, limits)
            .map_err(|error| invalid(in_pattern(pattern, &error)))?;
        let language = Translator::new(ast, Spelling::Utf8)
            .run(self, usize::MAX)
            .map_err(|error| invalid(in_pattern(pattern, &error)))?
            .unwrap_or(EPSILON);
        let blank = self.class(ByteSet::from_iter(*b" \t\n\r"));
        let blanks = self.star(blank);
        let others = self.not(blanks);
        let others = self.and(&[language, others]);
        match nearest_end(self, others, &mut Fuel::new(MAX_STEPS)) {
            Ok(DEAD) => Ok(language),
            Ok(_) => Err(invalid(format!(
                "`{pattern}` matches more than JSON white space (space, tab, line ends)"
            ))),
            Err(_) => Err(invalid(format!("`{pattern}` takes too many steps"))),
        }
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
