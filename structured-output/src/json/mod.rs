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
//! | `shape` | what a value may be: scalars as one language, arrays, objects |
//! | `frame` | what follows where in an array or object |
//! | `keyword` | keywords of JSON Schema one by one |
//! | `schema` | from JSON Schema to shapes |

#[allow(dead_code)] // Used by the front end as it lands.
mod decimal;
#[allow(dead_code)] // Used by the front end as it lands.
mod format;
mod format_regex;
mod frame;
mod keyword;
#[allow(dead_code)] // Used by the front end as it lands.
mod multiple;
#[allow(dead_code)] // Used by the machine and the front end as they land.
mod node;
#[allow(dead_code)] // Used by the front end as it lands.
mod number;
#[allow(dead_code)] // Used by the front end as it lands.
mod pattern;
#[allow(dead_code)] // Used by the front end as it lands.
mod range;
mod schema;
mod shape;
#[cfg(test)]
mod testing;
mod text;
mod value;

pub(crate) use frame::Frame;
pub(crate) use schema::SchemaCompiler;
pub(crate) use shape::Programs;
pub use text::Whitespace;
pub(crate) use value::Value;
