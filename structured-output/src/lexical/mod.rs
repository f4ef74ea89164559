//! Layer 1: regular languages over bytes, as hash-consed expressions that are their own automaton.
//!
//! An expression ([`ExprId`]) *is* a state: its derivative by a byte is the expression for what may
//! follow that byte. Equal expressions have equal ids, whichever grammar they came from, so what is
//! known of a state (its derivatives, how far it is from an end, its token mask) is known once.
//!
//! | file | idea |
//! |---|---|
//! | `byte_set` | a set of bytes |
//! | `labels`, `chars` | a set of characters, and how many characters a text has |
//! | `fuel` | steps, the measure of work |
//! | `arena` | expressions, interned |
//! | `facts` | what is known of one from its operands |
//! | `build` | constructors that bring equal languages to equal expressions |
//! | `parts` | what an expression is made of |
//! | `bounded` | characters up to a count, at the beginning |
//! | `containment` | languages that plainly hold others |
//! | `derivative` | what remains after a byte |
//! | `rows`, `row` | the derivative by every byte, bytes grouped by class: kept, and computed |
//! | `completion` | can a state still end, and in how few bytes |
//! | `search` | the nearest end in a graph that is made as it is walked |
//! | `residue` | decimals that are multiples of a number, by arithmetic |
//! | `word_automaton`, `free_text` | text among many words, by their automaton |
//! | `lasting`, `harmless`, `enduring` | texts that lead to no dead state, of any length or of some |
//! | `marks` | lexemes that differ in their mark only |
//! | `counts` | counts of counts as one, alternatives that differ in one |
//! | `nested` | counts within counts, of which one alternative holds another |
//! | `inclusion`, `factors` | alternatives that others hold, shown from their factors |
//! | `choice_tree` | a choice between strings, as a tree of what they begin with |
//! | `among` | characters that are all among others |
//! | `outdone` | alternatives at one place that differ in counts |
//! | `texts` | which languages hold runs of characters |
//! | `saturate` | counters cut to what one token can tell apart |
//! | `unicode` | sets of code points as UTF-8 |
//! | `testing` | what tests have in common |
//!
//! Nothing here recurses: expressions may be as deep as the input that made them.

mod among;
mod arena;
mod bounded;
mod build;
mod byte_set;
mod chars;
mod choice_tree;
mod completion;
mod containment;
mod counts;
mod derivative;
mod enduring;
mod factors;
mod facts;
mod free_text;
mod fuel;
mod harmless;
mod inclusion;
mod labels;
mod lasting;
mod marks;
mod nested;
mod outdone;
mod parts;
mod residue;
mod row;
mod row_scratch;
mod rows;
mod saturate;
pub(crate) mod search;
#[cfg(test)]
mod testing;
mod texts;
mod unicode;
mod word_automaton;

pub(crate) use arena::{
    ANY, EMPTY, EPSILON, ExprId, Lexicon, MANY_MARKS, NO_MARK, TURNING_BYTES, UNBOUNDED,
};
pub(crate) use bounded::BoundedHead;
pub(crate) use byte_set::ByteSet;
pub(crate) use chars::Chars;
pub(crate) use choice_tree::ChoiceTree;
pub(crate) use counts::product;
pub(crate) use free_text::{After, FreeText};
pub(crate) use fuel::{Fuel, Lack, Stop};
pub(crate) use labels::{CONTINUATION, Labels, Others, characters_from};
pub(crate) use lasting::Lasting;
pub(crate) use parts::{Characters, Less};
pub(crate) use residue::{MAX_MODULUS, MAX_PLACES, Part, Residue};
pub(crate) use rows::RowRef;
#[cfg(test)]
pub(crate) use testing::numbers_below;
pub(crate) use word_automaton::{NO_TAG, TaggedWords, WordAutomaton};
