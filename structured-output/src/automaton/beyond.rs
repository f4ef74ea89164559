//! Tokens that go on after the end of JSON with what follows it in a grammar.
//!
//! As with a language, what is left of each such token after the value is a rest, and the rests are
//! known by the value's state alone, whatever follows. They are few: a token has to close all that is
//! open.

use std::sync::Arc;

use super::TokenAutomaton;
use super::memo::{Exits, LexemeMask, Part};
use crate::earley::{LanguageMask, Rests, Tokens};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::lexical::{ExprId, Fuel, MANY_MARKS, NO_MARK, OutOfFuel};
use crate::pushdown::State;

/// With more rests than these the tokens are looked at one by one.
const MOST_RESTS: usize = 8 << 10;

/// Tokens with the number of their bytes that are left after the value; `None` where it can't be told
/// without more than the state's lexemes.
type Left = Option<Vec<(u32, u32)>>;

/// A place that a walk starts from.
#[derive(Clone, Copy)]
struct Reached {
    state: State,
    /// Whether the value may be over there.
    is_over: bool,
    /// Whether that depends on a text that was left out.
    reads_text: bool,
}

impl TokenAutomaton {
    /// What tokens go on with after the value that a state is within. `None` where that depends on the
    /// text of a key or an item, where the value may go on with what may follow it, and where it is
    /// much.
    pub(super) fn rests_beyond(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LanguageMask>>, OutOfFuel> {
        if let Some(known) = self.grammars.memo.beyond.get(&state) {
            return Ok(known.clone());
        }
        let left = match self.writes_any_text && !state.has_text() {
            true => {
                self.machine.start_recording();
                self.machine.skip_texts(true);
                let left = self.left_beyond(state, fuel);
                self.machine.skip_texts(false);
                self.machine.stop_recording();
                left?
            }
            false => None,
        };
        let index = Arc::clone(&self.index);
        let found = left.map(|left| {
            let rests = left.iter().map(|&(id, num_bytes)| {
                let bytes = index.info().token_bytes(id);
                (id, &bytes[bytes.len() - num_bytes as usize..])
            });
            Arc::new(LanguageMask {
                number: self.grammars.memo.languages.next_number(),
                inside: Tokens::default(),
                rests: Rests::Trie(Trie::of_bytes(rests)),
            })
        });
        let memo = &mut self.grammars.memo;
        memo.bytes += found.as_ref().map_or(0, |found| found.memory_bytes());
        memo.beyond.insert(state, found.clone());
        Ok(found)
    }

    fn left_beyond(&mut self, state: State, fuel: &mut Fuel) -> Result<Left, OutOfFuel> {
        let lexeme = self.machine.lexicon.saturated(state.lexeme);
        let mut at = State { lexeme, ..state };
        let mut all = Vec::new();
        loop {
            for part in self.parts(at.lexeme, fuel)?.iter() {
                let Some(left) = self.left_by_part(part, at, fuel)? else {
                    return Ok(None);
                };
                all.extend(left);
                if all.len() > MOST_RESTS {
                    return Ok(None);
                }
            }
            // The lexeme may end before the token begins.
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => return Ok(Some(all)),
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            if self.machine.reads.text.take().is_some() || self.machine.reads.may_widen {
                return Ok(None);
            }
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
        }
    }

    /// Of the tokens that a part of a state's lexeme knows.
    fn left_by_part(
        &mut self,
        part: &Part,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Left, OutOfFuel> {
        let Part { mask, mark } = part;
        let Some(mut all) = self.left_by_exits(mask, *mark, state, fuel)? else {
            return Ok(None);
        };
        if let Some(reference) = &mask.reference {
            let Some(left) = self.left_by_exits(&reference.mask, *mark, state, fuel)? else {
                return Ok(None);
            };
            let is_kept = |(id, _): &(u32, u32)| reference.less.binary_search(id).is_err();
            all.extend(left.into_iter().filter(is_kept));
        }
        Ok(Some(all))
    }

    /// Of the tokens that leave the lexeme. `mark` stands for mark 0.
    fn left_by_exits(
        &mut self,
        part: &LexemeMask,
        mark: Option<u16>,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Left, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let mut all = Vec::new();
        for (own_mark, exits) in &part.exits {
            let mark = mark.unwrap_or(*own_mark);
            let start = self.machine.end_lexeme(state, mark, fuel)?;
            let is_over = self.machine.is_accepting(start, fuel)?;
            let reads_text = self.machine.reads.text.take().is_some();
            if self.machine.reads.may_widen || (is_over && reads_text) {
                return Ok(None);
            }
            // What follows the value may go on as the lexeme could have.
            if is_over && !self.ends_for_good(state.lexeme, mark, fuel)? {
                return Ok(None);
            }
            let start = Reached {
                state: start,
                is_over,
                reads_text,
            };
            let found = match exits {
                Exits::Suffixes(trie) => {
                    let nodes = trie.children(ROOT).collect();
                    self.left_in_trie(trie, &index, nodes, 0, start, fuel)?
                }
                Exits::Nodes(nodes) => {
                    let trie = index.byte_trie();
                    let mut left = Some(Vec::new());
                    for &node in nodes {
                        let depth = depth_of(&index, node) - 1;
                        let nodes = vec![node];
                        let more = self.left_in_trie(trie, &index, nodes, depth, start, fuel)?;
                        left = both(left, more);
                    }
                    left
                }
                Exits::After(after) => {
                    let trie = index.byte_trie();
                    let mut left = Some(Vec::new());
                    for (node, leaving) in after {
                        let nodes = trie.children(*node);
                        let nodes = nodes.filter(|&child| leaving.contains(trie.label(child)));
                        let depth = depth_of(&index, *node);
                        let nodes = nodes.collect();
                        let more = self.left_in_trie(trie, &index, nodes, depth, start, fuel)?;
                        left = both(left, more);
                    }
                    left
                }
            };
            match found {
                Some(left) if all.len() + left.len() <= MOST_RESTS => all.extend(left),
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Walks from a place by the bytes of some nodes, which lie below one at a depth.
    fn left_in_trie(
        &mut self,
        trie: &Trie,
        index: &TokenizerIndex,
        nodes: Vec<u32>,
        depth: u32,
        start: Reached,
        fuel: &mut Fuel,
    ) -> Result<Left, OutOfFuel> {
        let is_whole = std::ptr::eq(trie, index.byte_trie());
        let mut left = Vec::new();
        // Depths at which the value may be over, on the way to the node that is looked at.
        let mut over = Vec::from_iter(start.is_over.then_some(depth));
        let nodes = nodes.into_iter();
        let mut pending: Vec<(u32, u32, State, bool)> = nodes
            .map(|node| (node, depth + 1, start.state, start.reads_text))
            .collect();
        while let Some((node, depth, state, reads_text)) = pending.pop() {
            fuel.burn(1)?;
            while over.last().is_some_and(|&over| over >= depth) {
                over.pop();
            }
            let next = self.machine.step(state, trie.label(node), fuel)?;
            let Some(next) = next else {
                self.machine.reads.text = None;
                if over.is_empty() {
                    continue;
                }
                let tokens = trie.below(node);
                fuel.burn((tokens.len() * over.len()) as u64)?;
                if left.len() + tokens.len() * over.len() > MOST_RESTS {
                    return Ok(None);
                }
                let lengths = match is_whole {
                    true => None,
                    false => Some(lengths_below(trie, node, depth)),
                };
                for (at, &id) in trie.ids(tokens).iter().enumerate() {
                    let length = match &lengths {
                        None => index.info().token_bytes(id).len() as u32,
                        Some(lengths) => lengths.get(at).copied().unwrap_or_default(),
                    };
                    left.extend(over.iter().map(|over| (id, length - over)));
                }
                continue;
            };
            let is_over = self.machine.is_accepting(next, fuel)?;
            let reads_text = reads_text | self.machine.reads.text.take().is_some();
            if self.machine.reads.may_widen || (is_over && reads_text) {
                return Ok(None);
            }
            if is_over {
                over.push(depth);
            }
            let children = trie.children(node);
            pending.extend(children.map(|child| (child, depth + 1, next, reads_text)));
        }
        Ok(Some(left))
    }

    /// Whether no text with which a lexeme ends with a mark is the beginning of another one that ends so.
    fn ends_for_good(
        &mut self,
        lexeme: ExprId,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
        let lexicon = &mut self.machine.lexicon;
        for expr in lexicon.alternatives(lexeme) {
            let own = lexicon.sole_mark(expr);
            if (own == mark || own == MANY_MARKS) && !lexicon.is_prefix_free(expr, fuel)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn both(all: Left, more: Left) -> Left {
    let (mut all, more) = (all?, more?);
    all.extend(more);
    (all.len() <= MOST_RESTS).then_some(all)
}

/// How many bytes lead to a node of the trie of bytes.
fn depth_of(index: &TokenizerIndex, node: u32) -> u32 {
    let trie = index.byte_trie();
    let mut at = ROOT;
    let mut depth = 0;
    for &byte in index.text_below(node) {
        if at == node {
            break;
        }
        let Some(child) = trie.child(at, byte) else {
            break;
        };
        (at, depth) = (child, depth + 1);
    }
    depth
}

/// The lengths of the words of the tokens below a node, which has a depth, in their order.
fn lengths_below(trie: &Trie, node: u32, depth: u32) -> Vec<u32> {
    let below = trie.below(node);
    let mut lengths = vec![0; below.len()];
    let mut pending = vec![(node, depth)];
    while let Some((node, depth)) = pending.pop() {
        for own in trie.own(node) {
            lengths[(own - below.start) as usize] = depth;
        }
        pending.extend(trie.children(node).map(|child| (child, depth + 1)));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use crate::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

    /// Each mask is what each token by itself is, wherever the value may be over within a token.
    #[test]
    fn tokens_may_end_a_value_and_go_on() {
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        let texts = [
            "\"}", "\"}<", "\"}</t", "}}", "}}</t>", "}]", "]}<", "}x", "}\n", "1<", "12", "12}",
            "1}<", "\":1}<", "1]5", "15", "55", "5<", "\"<", "\"5", "a\"}<", "}</t>a", "\",\"",
            "1.5<", "ull<", "null<", "1,1]<", "\"]<", "]5", "]]<", " <", "} <", "\"b\":",
            "b\":1}<", "\\\"}<",
        ];
        vocab.extend(texts.map(|text| text.as_bytes().to_vec()));
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        let cases = [
            (r#"{"type": "string"}"#, r#""a\"b""#),
            (r#"{"type": "integer"}"#, "15"),
            (r#"{"type": ["null", "number"]}"#, "1.5"),
            (
                r#"{"properties": {"a": {"type": "string"}}, "additionalProperties": false}"#,
                r#"{"a":"b"}"#,
            ),
            (
                r#"{"additionalProperties": {"type": "integer"}}"#,
                r#"{"a": 1, "b":1}"#,
            ),
            (
                r#"{"type": "array", "uniqueItems": true, "items": {"type": "integer"}}"#,
                "[1,15]",
            ),
            (
                r#"{"type": "array", "items": {"type": "array", "items": {"enum": [1, 15]}}}"#,
                "[[1, 15]]",
            ),
            ("true", r#"{"a": [{"b":null}]}"#),
        ];
        for (schema, value) in cases {
            for after in ["</t>", "5</t>", " x", "(x | \"<\" | /[ ]*/ \"</t>\")"] {
                let after = match after.starts_with('(') {
                    true => after.to_owned(),
                    false => format!("\"{after}\""),
                };
                let lark = format!(
                    "start: (\"x\" value {after} | value \"<a\" | value \"}}x\")+\nx: \"x\"\nvalue: %json {schema}\n"
                );
                let grammar = compiler.compile_lark(&lark).unwrap();
                for begin in ["", "x"] {
                    let mut matcher = GrammarMatcher::new(&grammar);
                    for &byte in format!("{begin}{value}").as_bytes() {
                        let mask = matcher.next_token_mask().unwrap();
                        for id in 0..=eos {
                            let is_accepted = matcher.fork().accept_token(id).unwrap();
                            assert_eq!(mask.is_allowed(id), is_accepted, "{lark}: {id}");
                        }
                        assert!(matcher.accept_token(u32::from(byte)).unwrap(), "{lark}");
                    }
                    let mask = matcher.next_token_mask().unwrap();
                    for id in 0..=eos {
                        let is_accepted = matcher.fork().accept_token(id).unwrap();
                        assert_eq!(mask.is_allowed(id), is_accepted, "{lark}: {id}");
                    }
                }
            }
        }
    }
}
