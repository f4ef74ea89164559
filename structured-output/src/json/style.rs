//! How a grammar's texts are written, which is no matter of values.

use super::text::Spacing;
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
        Ok(spacing.map(|spacing| Self {
            spacing,
            order: options.property_order,
            is_item: false,
        }))
    }

    /// The same within another text, which says what may stand around the value.
    pub(crate) fn embedded(mut self) -> Self {
        self.spacing.outer = EPSILON;
        self
    }
}
