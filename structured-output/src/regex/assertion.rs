//! Assertions as intersections and complements.
//!
//! A pattern with assertions is alternatives of sequences of items: languages, and assertions
//! between them. Looking ahead intersects what follows: `(?=A) K` is `A Σ* & K`, and `(?!A) K` is
//! `~(A Σ*) & K`. Looking behind intersects what comes before: `L (?<=B)` is `L & Σ* B`, where `L`
//! is all the text before, or a part of it that is at least as long as anything in `B`. `^`, `$` and
//! `\b` look one character behind or ahead.
//!
//! What lies next to an assertion and is long enough decides it (`local`), wherever they stand.
//!
//! What a look-ahead begins with may look behind in turn: `(?=(?<=B)A)` is `(?<=B)(?=A)`, and `(?!(?<=B)A)`
//! is `(?<!B)` or `(?!A)`. A look-ahead at the start of a sequence holds of all of it, so whatever comes
//! behind it there may look back to the start.
//!
//! Where else a look-behind would have to reach over a look-ahead there is no such form, and the pattern
//! is refused. One that reaches a single character is always resolved: what lies between is empty,
//! and the two change places, or it is at least as long.

use super::local;
use super::spelling::Spelling;
use super::syntax::{EndOf, RegexError};
use super::translate::Language;
use crate::lexical::{ANY, EMPTY, EPSILON, ExprId, Lexicon, UNBOUNDED};

/// The most cases that look-behinds over look-aheads may be told apart into.
const MAX_CASES: usize = 1024;

/// The most look-behinds that a negated look-ahead's alternatives may begin with.
const MAX_BEHINDS: usize = 6;

/// Alternatives are sequences of items.
pub(super) type Sequence = Vec<Item>;

/// A part of a sequence.
#[derive(Clone, Copy)]
pub(super) enum Item {
    Language(Language),
    /// What follows, to the end of the text, is in the language; whether it is depends on its
    /// first `reach` characters only, where there are as many (`None`: on all of it).
    Ahead {
        text: ExprId,
        reach: Option<u32>,
        /// Of `(?!A)` with texts of one length only, `A`.
        denied: Option<Language>,
    },
    /// What comes before, from the start of the text, is in the language; whether it is depends on
    /// the last `reach` characters only (`None`: on all of it).
    Behind {
        text: ExprId,
        reach: Option<u32>,
        offset: usize,
    },
    /// `((?!A)x){min,}` over single characters `x`: at each of them, what follows to the end of
    /// the text is not in `refused`. `any` is every text.
    Guarded {
        body: ExprId,
        refused: ExprId,
        /// `A`, where it has texts of one length only.
        denied: Option<Language>,
        any: ExprId,
        min: u32,
        offset: usize,
    },
}

impl Item {
    /// Whether it stands for text without looking around.
    pub(super) fn is_language(&self) -> bool {
        matches!(self, Item::Language(_))
    }

    /// Whether it stands for text, and isn't an assertion alone.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Item::Language(_) | Item::Guarded { .. })
    }
}

/// `(?=)`, `(?!)`, `(?<=)` or `(?<!)` around alternatives, as alternatives.
pub(super) fn look(
    lexicon: &mut Lexicon,
    spelling: Spelling,
    mut sequences: Vec<Sequence>,
    ahead: bool,
    negated: bool,
    offset: usize,
) -> Result<Vec<Sequence>, RegexError> {
    let looks_out = |item: &Item| matches!(item, Item::Ahead { .. } | Item::Guarded { .. });
    if !ahead && sequences.iter().flatten().any(looks_out) {
        return Err(unresolved(offset));
    }
    let any = Item::Language(Language {
        // What follows is spelled by the pattern's rest; what comes before is read from here.
        expr: if ahead { ANY } else { spelling.any(lexicon) },
        min_chars: 0,
        max_chars: None,
    });
    let mut lengths = sequences.iter().map(|sequence| {
        sequence.iter().try_fold(0_u32, |sum, item| match item {
            Item::Language(language) => sum.checked_add(language.max_chars?),
            Item::Ahead { reach, .. } if ahead => sum.checked_add((*reach)?),
            Item::Behind { .. } if ahead => Some(sum),
            // `^` and its like within a look-behind see further than its text.
            _ => None,
        })
    });
    let reach = lengths.try_fold(0_u32, |longest, length| Some(longest.max(length?)));
    let denied = if ahead && negated {
        of_one_length(lexicon, &sequences)
    } else {
        None
    };
    for sequence in &mut sequences {
        let at = if ahead { sequence.len() } else { 0 };
        sequence.insert(at, any);
    }
    if !ahead {
        let inner = resolve(lexicon, sequences)?;
        let text = if negated { lexicon.not(inner) } else { inner };
        return Ok(vec![vec![Item::Behind {
            text,
            reach,
            offset,
        }]]);
    }
    let ahead = |text: ExprId| Item::Ahead {
        text,
        reach,
        denied,
    };
    let mut free = Vec::new();
    let mut after: Vec<(Behind, Vec<ExprId>)> = Vec::new();
    for Case { behind, text } in cases_of(lexicon, sequences, false)? {
        let Some(behind) = behind else {
            free.push(text);
            continue;
        };
        match after.iter_mut().find(|(of, _)| of.text == behind.text) {
            Some((of, texts)) => {
                of.reach = of.reach.zip(behind.reach).map(|(a, b)| a.max(b));
                texts.push(text);
            }
            None => after.push((behind, vec![text])),
        }
    }
    let free = lexicon.or(&free);
    let after: Vec<(Behind, ExprId)> = after
        .into_iter()
        .map(|(behind, texts)| (behind, lexicon.or(&texts)))
        .collect();
    if !negated {
        let mut alternatives = Vec::with_capacity(after.len() + 1);
        if free != EMPTY || after.is_empty() {
            alternatives.push(vec![ahead(free)]);
        }
        let after = after.into_iter();
        alternatives.extend(after.map(|(behind, text)| vec![behind.item(offset), ahead(text)]));
        return Ok(alternatives);
    }
    if after.len() > MAX_BEHINDS {
        return Err(unresolved(offset));
    }
    // Of each case one of the two doesn't hold.
    let mut alternatives = Vec::with_capacity(1 << after.len());
    for choice in 0..1_u32 << after.len() {
        let (mut sequence, mut refused) = (Vec::new(), vec![free]);
        for (index, (behind, text)) in after.iter().enumerate() {
            if choice >> index & 1 == 0 {
                refused.push(*text);
            } else {
                let text = lexicon.not(behind.text);
                sequence.push(Behind { text, ..*behind }.item(offset));
            }
        }
        let refused = lexicon.or(&refused);
        if refused != EMPTY || sequence.is_empty() {
            sequence.push(ahead(lexicon.not(refused)));
        }
        alternatives.push(sequence);
    }
    Ok(alternatives)
}

/// The language of alternatives without assertions, where all their texts are equally long.
fn of_one_length(lexicon: &mut Lexicon, sequences: &[Sequence]) -> Option<Language> {
    let mut exprs = Vec::with_capacity(sequences.len());
    let mut length = None;
    for sequence in sequences {
        let mut whole = Language::NOTHING;
        for item in sequence.iter().rev() {
            let Item::Language(language) = item else {
                return None;
            };
            whole = language.then(lexicon, whole);
        }
        let max = whole.max_chars.filter(|&max| max == whole.min_chars)?;
        if *length.get_or_insert(max) != max {
            return None;
        }
        exprs.push(whole.expr);
    }
    let length = length?;
    Some(Language {
        expr: lexicon.or(&exprs),
        min_chars: length,
        max_chars: Some(length),
    })
}

/// `^`: nothing before, or with `(?m)` a line end.
pub(super) fn start(
    lexicon: &mut Lexicon,
    spelling: Spelling,
    of_line: bool,
    offset: usize,
) -> Item {
    let mut text = EPSILON;
    if of_line {
        let line_end = spelling.chars(lexicon, &[('\n', '\n')]);
        let any = spelling.any(lexicon);
        let after = lexicon.concat(any, line_end);
        text = lexicon.or(&[text, after]);
    }
    Item::Behind {
        text,
        reach: Some(1),
        offset,
    }
}

/// `$`: nothing after, or with `(?m)` a line end, or in Python a line end that is the last character.
pub(super) fn end(lexicon: &mut Lexicon, spelling: Spelling, of: EndOf) -> Item {
    let mut text = EPSILON;
    if of != EndOf::Text {
        let mut more = spelling.chars(lexicon, &[('\n', '\n')]);
        if of == EndOf::Line {
            more = lexicon.concat(more, ANY);
        }
        text = lexicon.or(&[text, more]);
    }
    Item::Ahead {
        text,
        reach: Some(if of == EndOf::LastLine { 2 } else { 1 }),
        denied: None,
    }
}

/// `\b` or `\B` over one word character: on one side of it a word character, on the other none.
pub(super) fn word_boundary(
    lexicon: &mut Lexicon,
    spelling: Spelling,
    word: ExprId,
    negated: bool,
    offset: usize,
) -> Vec<Sequence> {
    let any = spelling.any(lexicon);
    let ends = lexicon.concat(any, word);
    let starts = lexicon.concat(word, ANY);
    let mut side = |text: ExprId, inside: bool| if inside { text } else { lexicon.not(text) };
    [true, false]
        .into_iter()
        .map(|before| {
            let after = before == negated;
            vec![
                Item::Behind {
                    text: side(ends, before),
                    reach: Some(1),
                    offset,
                },
                Item::Ahead {
                    text: side(starts, after),
                    reach: Some(1),
                    denied: None,
                },
            ]
        })
        .collect()
}

/// What must come before a place, as [`Item::Behind`] has it.
#[derive(Clone, Copy)]
struct Behind {
    text: ExprId,
    reach: Option<u32>,
}

impl Behind {
    fn item(self, offset: usize) -> Item {
        let Self { text, reach } = self;
        Item::Behind {
            text,
            reach,
            offset,
        }
    }
}

/// An alternative whose assertions are resolved.
struct Case {
    /// What comes before its start; never where that is the text's.
    behind: Option<Behind>,
    text: ExprId,
}

/// The language of alternatives that start at the start of the text and end at its end.
pub(super) fn resolve(
    lexicon: &mut Lexicon,
    sequences: Vec<Sequence>,
) -> Result<ExprId, RegexError> {
    let cases = cases_of(lexicon, sequences, true)?;
    let exprs: Vec<ExprId> = cases.iter().map(|case| case.text).collect();
    Ok(lexicon.or(&exprs))
}

/// A sequence of which the start may be taken off: what holds there.
struct Open {
    behind: Option<Behind>,
    ahead: Vec<ExprId>,
    rest: Sequence,
}

/// Alternatives that end at the end of the text, resolved.
fn cases_of(
    lexicon: &mut Lexicon,
    sequences: Vec<Sequence>,
    at_text_start: bool,
) -> Result<Vec<Case>, RegexError> {
    let open = |rest: Sequence| Open {
        behind: None,
        ahead: Vec::new(),
        rest,
    };
    let mut pending: Vec<Open> = sequences.into_iter().map(open).collect();
    let mut resolved = Vec::new();
    let mut cases = 0;
    while let Some(mut open) = pending.pop() {
        open.take_start(lexicon, at_text_start);
        let sequence = &mut open.rest;
        let behind = sequence
            .iter()
            .position(|item| matches!(item, Item::Behind { .. }));
        let Some(at) = behind else {
            let mut texts = open.ahead;
            texts.push(resolve_ahead(lexicon, &open.rest)?);
            resolved.push(Case {
                behind: open.behind,
                text: lexicon.and(&texts),
            });
            continue;
        };
        let item = sequence.remove(at);
        let Item::Behind {
            text,
            reach,
            offset,
        } = item
        else {
            continue;
        };
        cases += 1;
        if cases > MAX_CASES {
            return Err(unresolved(offset));
        }
        // The languages just before it, back to the start or to a look-ahead.
        let from = sequence[..at]
            .iter()
            .rposition(|item| !item.is_language())
            .map_or(0, |ahead| ahead + 1);
        let mut before = Language::NOTHING;
        for item in sequence[from..at].iter().rev() {
            if let Item::Language(language) = item {
                before = language.then(lexicon, before);
            }
        }
        let is_enough = reach.is_some_and(|reach| before.min_chars >= reach);
        if is_enough || (from == 0 && at_text_start) {
            before.expr = lexicon.and(&[before.expr, text]);
            sequence.splice(from..at, [Item::Language(before)]);
            pending.push(open);
            continue;
        }
        let can_move = before.max_chars == Some(0) || reach == Some(1);
        let after_text = from > 0 && sequence[from - 1].is_text();
        if !can_move || after_text {
            return Err(unresolved(offset));
        }
        if lexicon.is_nullable(before.expr) {
            let mut empty = sequence.clone();
            empty.drain(from..at);
            empty.insert(from.saturating_sub(1), item);
            pending.push(Open {
                rest: empty,
                ahead: open.ahead.clone(),
                behind: open.behind,
            });
        }
        if before.max_chars != Some(0) {
            let something = lexicon.not(EPSILON);
            before.expr = lexicon.and(&[before.expr, something, text]);
            before.min_chars = before.min_chars.max(1);
            let rest = &mut open.rest;
            rest.splice(from..at, [Item::Language(before)]);
            pending.push(open);
        }
    }
    Ok(resolved)
}

impl Open {
    /// Takes off what looks around at the start, as far as nothing is written before it.
    fn take_start(&mut self, lexicon: &mut Lexicon, at_text_start: bool) {
        let writes_nothing = |item: &Item| match item {
            Item::Language(language) => language.expr == EPSILON || language.max_chars == Some(0),
            _ => false,
        };
        let mut at = 0;
        while let Some(item) = self.rest.get(at) {
            match *item {
                Item::Ahead { text, .. } => self.ahead.push(text),
                Item::Behind { text, reach, .. } if !at_text_start => {
                    let both = match self.behind {
                        Some(behind) => Behind {
                            text: lexicon.and(&[behind.text, text]),
                            reach: behind.reach.zip(reach).map(|(a, b)| a.max(b)),
                        },
                        None => Behind { text, reach },
                    };
                    self.behind = Some(both);
                }
                _ if writes_nothing(item) => {
                    at += 1;
                    continue;
                }
                _ => break,
            }
            self.rest.remove(at);
        }
    }
}

fn unresolved(offset: usize) -> RegexError {
    RegexError::new(
        offset,
        "this assertion looks over another one in a way that can't be enforced: \
         write the pattern without it, let it look at one character only, or put all that it \
         looks at next to it",
    )
}

fn unstopped(offset: usize) -> RegexError {
    RegexError::new(
        offset,
        "a repetition that may not hold some text of several characters, such as `(?:(?!end).)*`, \
         can't be enforced before another text: end it with that text, as in `(?:(?!end).)*end`, \
         and let all alternatives in the look-ahead be equally long",
    )
}

/// A sequence without look-behind, from its end to its start.
fn resolve_ahead(lexicon: &mut Lexicon, sequence: &[Item]) -> Result<ExprId, RegexError> {
    let mut rest = EPSILON;
    for item in sequence.iter().rev() {
        rest = match *item {
            Item::Language(language) => lexicon.concat(language.expr, rest),
            Item::Ahead { text, .. } | Item::Behind { text, .. } => lexicon.and(&[text, rest]),
            // At the end of the text: no place but the end is followed by what is refused.
            Item::Guarded {
                body,
                refused,
                any,
                min,
                ..
            } if rest == EPSILON => {
                let something = lexicon.not(EPSILON);
                let refused = lexicon.and(&[refused, something]);
                let reached = lexicon.concat(any, refused);
                let allowed = lexicon.not(reached);
                let text = lexicon.repeat(body, min, UNBOUNDED);
                lexicon.and(&[text, allowed])
            }
            // Before any text: the repetition need not go on.
            Item::Guarded {
                body,
                refused,
                any,
                min: min @ 0..=1,
                ..
            } if rest == any => {
                if min == 0 {
                    rest
                } else {
                    let allowed = lexicon.not(refused);
                    let text = lexicon.concat(body, rest);
                    lexicon.and(&[text, allowed])
                }
            }
            Item::Guarded { offset, .. } => {
                let mut cases = Vec::new();
                for case in lexicon.alternatives(rest) {
                    let split = local::stopped(lexicon, item, case);
                    let (until, rest) = split.ok_or_else(|| unstopped(offset))?;
                    cases.push(lexicon.concat(until, rest));
                }
                lexicon.or(&cases)
            }
        };
    }
    Ok(rest)
}
