//! From a syntax tree to an expression, operands first.

use hashbrown::HashMap;

use super::alternatives::{check_size, followed, merged, run_of};
use super::assertion::{self, Item, Sequence};
use super::local;
use super::repeat;
use super::spelling::Spelling;
use super::syntax::{Ast, NodeId, NodeKind, RegexError};
use crate::lexical::{EPSILON, ExprId, Lexicon, UNBOUNDED};

/// A language with bounds on the length of its strings in characters; `max_chars` is `None` where
/// there is no upper bound.
#[derive(Clone, Copy)]
pub(super) struct Language {
    pub(super) expr: ExprId,
    pub(super) min_chars: u32,
    pub(super) max_chars: Option<u32>,
}

impl Language {
    /// The empty string.
    pub(super) const NOTHING: Self = Self {
        expr: EPSILON,
        min_chars: 0,
        max_chars: Some(0),
    };

    /// This, then another.
    pub(super) fn then(self, lexicon: &mut Lexicon, rest: Self) -> Self {
        let lengths = self.max_chars.zip(rest.max_chars);
        Self {
            expr: lexicon.concat(self.expr, rest.expr),
            min_chars: self.min_chars.saturating_add(rest.min_chars),
            max_chars: lengths.and_then(|(a, b)| a.checked_add(b)),
        }
    }
}

/// A subtree's meaning.
enum Value {
    /// A language that holds wherever it stands.
    Free(Language),
    /// Alternatives that look at what is around them.
    Looking(Vec<Sequence>),
}

/// A translation that can pause between nodes, so that a lock on the lexicon is never held long.
pub(crate) struct Translator {
    ast: Ast,
    spelling: Spelling,
    values: Vec<Value>,
    /// Languages of the classes met so far.
    classes: HashMap<Vec<(char, char)>, ExprId>,
}

impl Translator {
    /// A translation to strings as they are spelled somewhere.
    pub(crate) fn new(ast: Ast, spelling: Spelling) -> Self {
        Self {
            ast,
            spelling,
            values: Vec::new(),
            classes: HashMap::new(),
        }
    }

    /// Translates up to `max_nodes` more nodes; the pattern's language once all are.
    pub(crate) fn run(
        &mut self,
        lexicon: &mut Lexicon,
        max_nodes: usize,
    ) -> Result<Option<ExprId>, RegexError> {
        let ast = std::mem::take(&mut self.ast);
        let start = self.values.len();
        let mut outcome = Ok(());
        for node in start..ast.nodes.len().min(start.saturating_add(max_nodes)) {
            match self.value_of(lexicon, &ast, node) {
                Ok(value) => self.values.push(value),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.ast = ast;
        outcome?;
        if self.values.len() < self.ast.nodes.len() {
            return Ok(None);
        }
        match self.values.last() {
            Some(Value::Free(language)) => Ok(Some(language.expr)),
            Some(Value::Looking(sequences)) => {
                // The whole pattern: nothing lies around it.
                let sequences = sequences.clone();
                Ok(Some(assertion::resolve(lexicon, sequences)?))
            }
            None => Ok(Some(EPSILON)),
        }
    }

    fn value_of(
        &mut self,
        lexicon: &mut Lexicon,
        ast: &Ast,
        node: NodeId,
    ) -> Result<Value, RegexError> {
        let offset = ast.nodes[node].offset;
        let value = match &ast.nodes[node].kind {
            NodeKind::Class(class) => {
                let ranges: Vec<(char, char)> = class
                    .iter()
                    .map(|range| (range.start(), range.end()))
                    .collect();
                let expr = match self.classes.get(&ranges) {
                    Some(&expr) => expr,
                    None => {
                        let expr = self.spelling.chars(lexicon, &ranges);
                        self.classes.insert(ranges, expr);
                        expr
                    }
                };
                Value::Free(Language {
                    expr,
                    min_chars: 1,
                    max_chars: Some(1),
                })
            }
            NodeKind::Concat(items) => self.concat(lexicon, items, offset)?,
            NodeKind::Alternate(items) => self.alternate(lexicon, items, offset)?,
            &NodeKind::Repeat { inner, min, max } => {
                self.repeat(lexicon, inner, min, max, offset)?
            }
            &NodeKind::Look {
                ahead,
                negated,
                inner,
            } => {
                let sequences = self.sequences(inner);
                Value::Looking(assertion::look(
                    lexicon,
                    self.spelling,
                    sequences,
                    ahead,
                    negated,
                    offset,
                )?)
            }
            NodeKind::WordBoundary { negated, word } => {
                let ranges = word.iter().map(|range| (range.start(), range.end()));
                let ranges: Vec<(char, char)> = ranges.collect();
                let word = self.spelling.chars(lexicon, &ranges);
                Value::Looking(assertion::word_boundary(
                    lexicon,
                    self.spelling,
                    word,
                    *negated,
                    offset,
                ))
            }
            &NodeKind::Start { of_line } => {
                let item = assertion::start(lexicon, self.spelling, of_line, offset);
                Value::Looking(vec![vec![item]])
            }
            &NodeKind::End(of) => {
                let item = assertion::end(lexicon, self.spelling, of);
                Value::Looking(vec![vec![item]])
            }
        };
        Ok(value)
    }

    /// A value as alternatives.
    fn sequences(&self, node: NodeId) -> Vec<Sequence> {
        match &self.values[node] {
            Value::Free(language) => vec![vec![Item::Language(*language)]],
            Value::Looking(sequences) => sequences.clone(),
        }
    }

    /// Languages one after the other.
    fn languages(&self, lexicon: &mut Lexicon, items: &[NodeId]) -> Sequence {
        let languages = items.iter().filter_map(|&item| match self.values[item] {
            Value::Free(language) => Some(language),
            Value::Looking(_) => None,
        });
        run_of(lexicon, &languages.collect::<Vec<_>>())
    }

    fn concat(
        &mut self,
        lexicon: &mut Lexicon,
        items: &[NodeId],
        offset: usize,
    ) -> Result<Value, RegexError> {
        let mut free = Some(Language::NOTHING);
        for &item in items.iter().rev() {
            free = match (&self.values[item], free) {
                (Value::Free(first), Some(rest)) => Some(first.then(lexicon, rest)),
                _ => None,
            };
        }
        if let Some(language) = free {
            return Ok(Value::Free(language));
        }
        let mut sequences: Vec<Sequence> = vec![Vec::new()];
        let is_free = |item: &NodeId| matches!(self.values[*item], Value::Free(_));
        for run in items.chunk_by(|a, b| is_free(a) && is_free(b)) {
            let tails = match run {
                [only] => self.sequences(*only),
                _ => vec![self.languages(lexicon, run)],
            };
            sequences = followed(sequences, &tails, offset)?;
        }
        Ok(settled(lexicon, sequences))
    }

    fn alternate(
        &mut self,
        lexicon: &mut Lexicon,
        items: &[NodeId],
        offset: usize,
    ) -> Result<Value, RegexError> {
        let mut exprs = Vec::with_capacity(items.len());
        let (mut min_chars, mut max_chars) = (u32::MAX, Some(0));
        for &item in items {
            if let Value::Free(language) = &self.values[item] {
                exprs.push(language.expr);
                min_chars = min_chars.min(language.min_chars);
                let lengths = max_chars.zip(language.max_chars);
                max_chars = lengths.map(|(a, b): (u32, u32)| a.max(b));
            }
        }
        let free = Language {
            expr: lexicon.or(&exprs),
            min_chars,
            max_chars,
        };
        if exprs.len() == items.len() {
            return Ok(Value::Free(free));
        }
        let mut sequences = vec![vec![Item::Language(free)]];
        for &item in items {
            if let Value::Looking(inner) = &self.values[item] {
                sequences.extend_from_slice(inner);
            }
        }
        let sequences = merged(lexicon, sequences);
        check_size(&sequences, offset)?;
        Ok(Value::Looking(sequences))
    }

    fn repeat(
        &mut self,
        lexicon: &mut Lexicon,
        inner: NodeId,
        min: u32,
        max: u32,
        offset: usize,
    ) -> Result<Value, RegexError> {
        let sequences = match &self.values[inner] {
            &Value::Free(language) => {
                let max_chars = match (language.max_chars, max) {
                    (Some(0), _) => Some(0),
                    (_, UNBOUNDED) => None,
                    (longest, times) => longest.and_then(|chars| chars.checked_mul(times)),
                };
                return Ok(Value::Free(Language {
                    expr: lexicon.repeat(language.expr, min, max),
                    min_chars: language.min_chars.saturating_mul(min),
                    max_chars,
                }));
            }
            Value::Looking(sequences) => sequences.clone(),
        };
        // What writes nothing need not be repeated.
        let writes = sequences.iter().flatten().any(Item::is_text);
        let max = if writes { max } else { max.min(1) };
        if max == UNBOUNDED {
            if let Some(sequences) =
                repeat::unbounded(lexicon, self.spelling, &sequences, min, offset)
            {
                check_size(&sequences, offset)?;
                return Ok(Value::Looking(sequences));
            }
            return Err(RegexError::new(
                offset,
                "an assertion (`^`, `$`, `\\b`, look-around) inside a repetition without bound \
                 can't be enforced where it looks further than the text next to it: move it out \
                 of the repetition",
            ));
        }
        // Spelled out: x{m,n} is m times x, and up to n - m times more.
        let mut result: Vec<Sequence> = Vec::new();
        let mut powers: Vec<Sequence> = vec![Vec::new()];
        for times in 0..=max {
            if times >= min.min(max) {
                result.extend_from_slice(&powers);
                check_size(&result, offset)?;
            }
            powers = followed(powers, &sequences, offset)?;
        }
        Ok(Value::Looking(result))
    }
}

/// Alternatives, without the assertions that are decided next to them; a language where none is
/// left.
fn settled(lexicon: &mut Lexicon, sequences: Vec<Sequence>) -> Value {
    let mut left = Vec::with_capacity(sequences.len());
    let (mut exprs, mut min_chars, mut max_chars) = (Vec::new(), u32::MAX, Some(0_u32));
    for sequence in sequences {
        let Some(sequence) = local::settle(lexicon, sequence) else {
            continue;
        };
        if sequence.iter().all(Item::is_language) {
            let text = local::joined(lexicon, &sequence);
            exprs.push(text.expr);
            min_chars = min_chars.min(text.min_chars);
            max_chars = max_chars
                .zip(text.max_chars)
                .map(|(longest, length)| longest.max(length));
        }
        left.push(sequence);
    }
    if exprs.len() < left.len() {
        return Value::Looking(left);
    }
    Value::Free(Language {
        expr: lexicon.or(&exprs),
        min_chars: if exprs.is_empty() { 0 } else { min_chars },
        max_chars,
    })
}
