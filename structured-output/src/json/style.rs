//! How a grammar's texts are written, which is no matter of values.

use super::text::{Indent, Spacing};
use crate::error::CompileError;
use crate::lexical::{EPSILON, Fuel, Lexicon, Stop};
use crate::options::{JsonSchemaOptions, PropertyOrder};
use crate::regex::RegexLimits;

/// An interned style.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StyleId(pub(super) u32);

/// How texts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Style {
    pub(super) spacing: Spacing,
    pub(super) order: PropertyOrder,
    /// Within an item of an array whose items are unique: the text is kept for its end.
    pub(super) is_item: bool,
    /// Where `spacing` depends on how deep an array or object is in others.
    pub(super) indent: Option<Indent>,
}

impl Style {
    /// The style of a grammar.
    ///
    /// # Errors
    /// Those of [`Lexicon::spacing_of`].
    pub(crate) fn new(
        lexicon: &mut Lexicon,
        options: &JsonSchemaOptions,
        limits: RegexLimits,
        fuel: &mut Fuel,
    ) -> Result<Result<Self, CompileError>, Stop> {
        let spacing = lexicon.spacing_of(options, limits, fuel)?;
        Ok(spacing.map(|spacing| {
            let style = Self {
                spacing,
                order: options.property_order,
                is_item: false,
                indent: options.indent.map(|width| Indent {
                    width,
                    depth: 0,
                    comma: spacing.comma,
                }),
            };
            style.at_depth(lexicon, 0)
        }))
    }

    /// The style of values that so many arrays and objects are around.
    fn at_depth(mut self, lexicon: &mut Lexicon, depth: u32) -> Self {
        if let Some(indent) = &mut self.indent {
            indent.depth = depth;
            self.spacing = lexicon.indented(*indent, self.spacing);
        }
        self
    }

    /// The style of the values in an array or object.
    pub(super) fn inside(self, lexicon: &mut Lexicon) -> Self {
        match self.indent {
            Some(indent) => self.at_depth(lexicon, indent.depth + 1),
            None => self,
        }
    }

    /// The same within another text, which says what may stand around the value.
    pub(crate) fn embedded(mut self) -> Self {
        self.spacing.outer = EPSILON;
        self
    }
}
