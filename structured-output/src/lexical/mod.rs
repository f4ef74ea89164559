//! Layer 1: regular languages over bytes, as hash-consed expressions that are their own automaton.
//!
//! An expression ([`ExprId`]) *is* a state: its derivative by a byte is the expression for what may
//! follow that byte. Equal expressions have equal ids, whichever grammar they came from, so what is
//! known of a state (its derivatives, how far it is from an end, its token mask) is known once.
//!
//! | file | idea |
//! |---|---|
//! | `byte_set` | a set of bytes |
//! | `arena` | expressions, interned |
//! | `build` | constructors that bring equal languages to equal expressions |
//! | `derivative` | rows: the derivative by every byte, bytes grouped by class |
//! | `completion` | can a state still end, and in how few bytes |
//! | `search` | the nearest end in a graph that is made as it is walked |
//! | `residue` | decimals that are multiples of a number, by arithmetic |
//! | `marks` | lexemes that differ in their mark only |
//! | `counts` | counts within counts |
//! | `texts` | which languages hold runs of characters |
//! | `saturate` | counters cut to what one token can tell apart |
//! | `unicode` | sets of code points as UTF-8 |
//!
//! Nothing here recurses: expressions may be as deep as the input that made them.

mod arena;
mod build;
mod byte_set;
mod choice_tree;
mod completion;
mod counts;
mod derivative;
mod lasting;
mod marks;
mod residue;
mod saturate;
pub(crate) mod search;
mod texts;
mod unicode;

pub(crate) use arena::{
    ANY, EMPTY, EPSILON, ExprId, Fuel, Lexicon, MANY_MARKS, NO_MARK, OutOfFuel, TURNING_BYTES,
    UNBOUNDED,
};
pub(crate) use build::{Characters, Less};
pub(crate) use byte_set::ByteSet;
pub(crate) use choice_tree::ChoiceTree;
pub(crate) use counts::product;
pub(crate) use derivative::RowRef;
pub(crate) use residue::{MAX_PLACES, Part, Residue};
