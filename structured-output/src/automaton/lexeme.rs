//! What a lexeme allows by itself, whatever follows it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::TokenAutomaton;
use super::memo::{Exits, LexemeMask, Part, Parts};
use crate::index::{TokenizerIndex, Trie};
use crate::lexical::{ByteSet, ExprId, Fuel, Lasting, MANY_MARKS, NO_MARK, Others, Stop};
use crate::mask::beside::resting_state;
use crate::mask::walk::{Exit, Labelled, Visitor, walk};
use crate::mask::{MAX_SPARSE, Mask, clear_bits, set_bits};

/// More alternatives with marks of their own than this are not kept apart.
const MAX_NAMES: usize = 1024;

/// More alternatives than this are not worth to be told apart.
const MAX_PARTS: usize = 48;

/// So many parts that are known are a step.
const PARTS_A_STEP: u64 = 8;

/// A state from which at least so many bytes lead on has a large part of the vocabulary before it.
const MANY_BYTES: usize = 20;

/// A state that so many ASCII characters last in, and all others, is one of text.
const MOST_BYTES: usize = 80;

/// Few tokens have so many characters.
const MOST_CHARS: u32 = 16;

/// Up to so many exits are kept as nodes; more are worth to be grouped by what they go on with.
const FEW_EXITS: usize = 48;

impl TokenAutomaton {
    /// What a lexeme allows by itself, as parts that lexemes have in common: each alternative that
    /// many bytes begin, such as the body of a string or an object's other keys; each further one,
    /// such as the rest of a name, as long as they are few; and all others together.
    pub(super) fn parts(&mut self, lexeme: ExprId, fuel: &mut Fuel) -> Result<Parts, Stop> {
        if let Some(known) = self.masks.lexeme(lexeme) {
            return Ok(known);
        }
        let mut parts = Vec::new();
        let mut others = Vec::new();
        let lexicon = &mut self.machine.lexicon;
        // Names by their marks come again and again, each time some of them.
        let alternatives = lexicon.marked_alternatives(lexeme, MAX_NAMES);
        fuel.burn(alternatives.len() as u64 / PARTS_A_STEP)?;
        let is_named = self.machine.lexicon.sole_mark(lexeme) == MANY_MARKS;
        let few = alternatives.len() <= if is_named { MAX_NAMES } else { MAX_PARTS };
        for expr in alternatives {
            let is_one = self.machine.lexicon.sole_mark(expr) != MANY_MARKS;
            let apart =
                (few && is_one) || (parts.len() < MAX_PARTS && self.has_many_bytes(expr, fuel)?);
            if apart {
                parts.push(self.part(expr, fuel)?);
            } else {
                others.push(expr);
            }
        }
        if !others.is_empty() {
            let rest = self.machine.lexicon.or(&others);
            parts.push(self.part(rest, fuel)?);
        }
        Ok(self.masks.insert_lexeme(lexeme, parts))
    }

    /// A part of a lexeme, known by what it is with mark 0 in place of its own.
    fn part(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Part, Stop> {
        let lexicon = &mut self.machine.lexicon;
        let mark = match lexicon.sole_mark(expr) {
            NO_MARK | MANY_MARKS => None,
            mark => Some(mark),
        };
        let known_as = lexicon.with_first_mark(expr);
        let mask = self.lexeme_mask(known_as, fuel)?;
        Ok(Part { mask, mark })
    }

    /// Whether many bytes can come first.
    pub(super) fn has_many_bytes(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        if let Some((bytes, _)) = self.machine.lexicon.first_class(expr) {
            return Ok(bytes.len() >= MANY_BYTES);
        }
        let derivatives = self.machine.lexicon.derivatives(expr, fuel)?;
        let num_bytes: usize = derivatives.iter().map(|(bytes, _)| bytes.len()).sum();
        Ok(num_bytes >= MANY_BYTES)
    }

    /// What one part of a lexeme allows by itself.
    pub(super) fn lexeme_mask(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<LexemeMask>, Stop> {
        if let Some(known) = self.masks.part(expr) {
            return Ok(known);
        }
        if let Some(less) = self.part_without_texts(expr, fuel)? {
            self.masks.share_part(expr, &less);
            return Ok(less);
        }
        let mut found = None;
        if self.has_many_bytes(expr, fuel)? {
            if let Some(mask) = self.part_of_characters(expr, fuel)? {
                return Ok(mask);
            }
            if self.is_text(expr, fuel)? {
                // Little of the trie of bytes has to be walked.
                found = Some(self.fine_part(expr, fuel)?);
            }
            if found.is_none() {
                found = self.coarse_part(expr, fuel)?;
            }
            if found.is_none()
                && let Some(rest) = resting_state(&mut self.machine.lexicon, expr, fuel)?
            {
                let reference = self.lexeme_mask(rest, fuel)?;
                if reference.reference.is_none() {
                    found = Some(self.part_beside(expr, rest, reference, fuel)?);
                }
            }
        }
        let mask = match found {
            Some(mask) => mask,
            None => self.fine_part(expr, fuel)?,
        };
        Ok(self.masks.insert_part(expr, mask))
    }

    /// Whether a state goes on with nearly any characters, as many as a token has.
    fn is_text(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        let is_most = |of: &Lasting| of.others != Others::Some && of.bytes.len() >= MOST_BYTES;
        let lasting = self.machine.lexicon.lasting(expr, fuel)?;
        if is_most(&lasting) {
            return Ok(true);
        }
        let enduring = self.machine.lexicon.enduring(expr, fuel)?;
        Ok(is_most(&enduring.over) && enduring.num_chars >= MOST_CHARS)
    }

    /// By a coarse trie and that of the tokens that it leaves out; `None` where no alphabet fits.
    fn coarse_part(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Option<LexemeMask>, Stop> {
        let index = Arc::clone(&self.index);
        // A walk that fails may have seen much of its trie before.
        let fits = self.machine.lexicon.fitting_alphabets(expr, fuel)?;
        let table = &mut self.walk_table;
        for coarse in Labelled::of_coarse(&index).filter(|coarse| coarse.is_among(fits)) {
            let mut plain = Found::default();
            let lexicon = &mut self.machine.lexicon;
            if !walk(lexicon, coarse, expr, table, fuel, &mut plain)? {
                continue;
            }
            let mut escaped = Found::default();
            let escapes = Labelled::of_bytes(index.escape_trie());
            walk(lexicon, escapes, expr, table, fuel, &mut escaped)?;
            let walks = [(coarse.trie, &plain), (escapes.trie, &escaped)];
            return Ok(Some(self.part_of_walks(&walks, fuel)?));
        }
        Ok(None)
    }

    /// By the trie of bytes.
    fn fine_part(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<LexemeMask, Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let labelled = Labelled::of_bytes(trie);
        let mut found = Found::default();
        let (lexicon, table) = (&mut self.machine.lexicon, &mut self.walk_table);
        walk(lexicon, labelled, expr, table, fuel, &mut found)?;
        self.part_of_walks(&[(trie, &found)], fuel)
    }

    /// A part by what a walk through the trie of bytes found, or walks through a coarse one and that of
    /// the tokens that it leaves out.
    pub(super) fn part_of_walks(
        &mut self,
        walks: &[(&Trie, &Found)],
        fuel: &mut Fuel,
    ) -> Result<LexemeMask, Stop> {
        let index = Arc::clone(&self.index);
        let exits = match walks {
            [(_, found)] => exits_of(&index, &found.exits, fuel)?,
            _ => {
                let mut exits = Suffixes::default();
                for (trie, found) in walks {
                    exits.add(&index, trie, &found.exits, fuel)?;
                }
                exits.finish()
            }
        };
        Ok(LexemeMask {
            number: self.masks.next_number(),
            reference: None,
            inside: mask_of(&index, walks),
            exits,
        })
    }
}

/// What a walk found.
#[derive(Default)]
pub(super) struct Found {
    /// Ascending, adjacent ones joined.
    inside: Vec<Range<u32>>,
    count: usize,
    exits: Vec<Exit>,
}

impl Visitor for Found {
    fn reached(&mut self, tokens: Range<u32>) {
        self.count += tokens.len();
        match self.inside.last_mut() {
            Some(last) if last.end == tokens.start => last.end = tokens.end,
            _ => self.inside.push(tokens),
        }
    }

    fn exit(&mut self, exit: Exit) {
        self.exits.push(exit);
    }
}

/// The mask of what walks through tries found that together have all text tokens.
fn mask_of(index: &TokenizerIndex, walks: &[(&Trie, &Found)]) -> Mask {
    let inside = |(trie, found): &(&'_ Trie, &'_ Found)| -> Vec<u32> {
        let ids = found
            .inside
            .iter()
            .flat_map(|range| trie.ids(range.clone()));
        ids.copied().collect()
    };
    let count: usize = walks.iter().map(|(_, found)| found.count).sum();
    if count <= MAX_SPARSE {
        return Mask::from_ids(walks.iter().flat_map(inside).collect());
    }
    // Set what is allowed or clear what isn't, whichever is less.
    let mut words;
    if count <= index.num_text_tokens() / 2 {
        words = vec![0; index.text_tokens().len()];
        for (trie, found) in walks {
            for range in &found.inside {
                set_bits(&mut words, trie.ids(range.clone()));
            }
        }
    } else {
        words = index.text_tokens().to_vec();
        for (trie, found) in walks {
            let mut start = 0;
            for range in &found.inside {
                clear_bits(&mut words, trie.ids(start..range.start));
                start = range.end;
            }
            let all = trie.tokens().len() as u32;
            clear_bits(&mut words, trie.ids(start..all));
        }
    }
    Mask::from_words(words, count)
}

/// Exits from a walk through the trie of bytes, by their marks.
pub(super) fn exits_of(
    index: &TokenizerIndex,
    exits: &[Exit],
    fuel: &mut Fuel,
) -> Result<Vec<(u16, Exits)>, Stop> {
    if exits.len() > FEW_EXITS {
        if let Some(after) = exits_after(index.byte_trie(), exits) {
            return Ok(after);
        }
        let mut suffixes = Suffixes::default();
        suffixes.add(index, index.byte_trie(), exits, fuel)?;
        return Ok(suffixes.finish());
    }
    let mut by_mark: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    for exit in exits {
        by_mark.entry(exit.mark).or_default().push(exit.node);
    }
    let nodes = by_mark.into_iter();
    Ok(nodes
        .map(|(mark, nodes)| (mark, Exits::Nodes(nodes.into())))
        .collect())
}

/// Exits by their marks and the nodes after whose texts they leave; `None` where these are many.
fn exits_after(trie: &Trie, exits: &[Exit]) -> Option<Vec<(u16, Exits)>> {
    let mut by_mark: BTreeMap<u16, Vec<(u32, ByteSet)>> = BTreeMap::new();
    let mut num_nodes = 0;
    for exit in exits {
        let nodes = by_mark.entry(exit.mark).or_default();
        let label = trie.label(exit.node);
        match nodes.last_mut() {
            Some((node, leaving)) if *node == exit.parent => leaving.insert(label),
            _ if num_nodes == FEW_EXITS => return None,
            _ => {
                num_nodes += 1;
                nodes.push((exit.parent, ByteSet::single(label)));
            }
        }
    }
    let nodes = by_mark.into_iter();
    Some(
        nodes
            .map(|(mark, nodes)| (mark, Exits::After(nodes.into())))
            .collect(),
    )
}

/// Tokens by mark, with what they go on with after the lexeme.
#[derive(Default)]
struct Suffixes<'a> {
    by_mark: BTreeMap<u16, Vec<(u32, &'a [u8])>>,
}

impl<'a> Suffixes<'a> {
    fn add(
        &mut self,
        index: &'a TokenizerIndex,
        trie: &Trie,
        exits: &[Exit],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for &Exit {
            node, depth, mark, ..
        } in exits
        {
            let of_mark = self.by_mark.entry(mark).or_default();
            let ids = trie.ids(trie.below(node));
            fuel.burn(ids.len() as u64)?;
            for &id in ids {
                of_mark.push((id, &index.info().token_bytes(id)[depth as usize..]));
            }
        }
        Ok(())
    }

    fn finish(self) -> Vec<(u16, Exits)> {
        let suffixes = self.by_mark.into_iter();
        suffixes
            .map(|(mark, list)| (mark, Exits::Suffixes(Trie::of_bytes(list.into_iter()))))
            .collect()
    }
}
