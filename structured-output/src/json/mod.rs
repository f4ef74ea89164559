//! JSON: values as languages, arrays and objects as frames of the pushdown machine.
//!
//! | file | idea |
//! |---|---|
//! | `value` | JSON as it is written, with numbers as text |
//! | `text` | white space and strings as languages |
//! | `decimal` | decimal numbers as they are written |
//! | `number`, `range`, `multiple` | numbers, between bounds and by step, as languages |
//! | `format`, `format_regex` | formats, as patterns |
//! | `pattern` | strings by length and by pattern, as languages |
//! | `node` | schemas as boolean combinations of assertions |
//! | `schema` | from JSON Schema to nodes |
//! | `shape` | a node by kind: scalars as languages, arrays and objects as formulas |
//! | `formula`, `facts` | boolean formulas over assertions about arrays or objects |
//! | `enumeration` | long enumerations, as trees of what their values begin with |
//! | `relation`, `overlap` | what one node says of another, as far as that is plain, or found in a few steps |
//! | `units` | keys that must come, or must not, and what hangs on them |
//! | `derive` | what a formula becomes by an item or a member |
//! | `ways`, `conditions` | that, told apart by the value that comes |
//! | `joint`, `several` | the same for values of which several schemas speak, told apart when they end |
//! | `telling`, `atoms` | a later member that tells assertions apart |
//! | `plan` | the keys that an object's formulas tell apart |
//! | `plain` | objects that are a plain list of properties |
//! | `object_end` | members with which an object may end |
//! | `needed`, `likely` | objects that end with the names that must come, or that their formulas ask for |
//! | `array`, `object`, `member` | what may come next in an array or object |
//! | `words`, `fresh_keys` | the texts of a language, and keys that an object doesn't have yet, shortest first |
//! | `values`, `composites` | the distinct values of a node, shortest first |
//! | `distinct` | whether enough of them are left for an array of distinct items |
//! | `unique`, `repeat` | arrays of distinct items, or of items that are not |
//! | `seen` | sets of keys that an object has |
//! | `unread`, `written` | what follows a key or an item whose text isn't known, and what is looked at to tell texts apart |
//! | `live`, `live_array` | whether there is a value, and how long a short one is |
//! | `shortest` | short texts, written out |
//! | `frame` | places in arrays and objects as frames of the pushdown machine |
//! | `mark`, `action`, `expand`, `follow` | a frame's lexemes, and what follows each |
//! | `options` | the options by their names |
//! | `style`, `spacing` | white space and the order of properties |
//! | `programs` | all of that, interned |

mod action;
mod array;
mod atoms;
mod choice_of_keys;
mod clauses;
mod composites;
mod conditions;
mod decimal;
mod derive;
mod distinct;
mod enumeration;
mod expand;
mod facts;
mod follow;
mod format;
mod format_regex;
mod formula;
mod frame;
mod fresh_keys;
mod joint;
mod likely;
mod live;
mod live_array;
mod mark;
mod member;
mod multiple;
mod needed;
mod node;
mod number;
mod object;
mod object_end;
mod options;
mod overlap;
mod pattern;
mod plain;
mod plan;
mod programs;
mod range;
mod relation;
mod repeat;
mod schema;
mod seen;
mod several;
mod shape;
mod shortest;
mod spacing;
mod style;
mod telling;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod unique;
mod units;
mod unread;
mod value;
mod values;
mod ways;
mod words;
mod written;

pub(crate) use action::{Action, Expansion};
pub(crate) use format::format_pattern;
pub(crate) use frame::Frame;
pub(crate) use node::NodeId;
pub(crate) use options::{named, one_of};
pub(crate) use programs::Programs;
pub(crate) use schema::{Part, SchemaCompiler};
pub(crate) use style::Style;
pub(crate) use unread::Unread;
pub(crate) use value::Value;
pub(crate) use written::{Scan, Written};
