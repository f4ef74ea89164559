//! JSON: values as languages, arrays and objects as frames of the pushdown machine.
//!
//! | file | idea |
//! |---|---|
//! | `value` | JSON as it is written, with numbers as text |
//! | `text` | white space, strings and numbers as languages |
//! | `node` | schemas as boolean combinations of assertions |
//! | `shape` | a node by kind: scalars as languages, arrays and objects as formulas |
//! | `formula` | boolean formulas over assertions about arrays or objects |
//! | `derive` | what a formula becomes by an item or a member |
//! | `array`, `object`, `member` | what may come next in an array or object |
//! | `unique` | arrays of distinct items |
//! | `live` | whether there is a value, and how long a short one is |
//! | `frame` | places in arrays and objects as frames of the pushdown machine |
//! | `style` | white space and the order of properties |
//! | `programs` | all of that, interned |
//! | `keyword` | keywords of JSON Schema one by one |
//! | `schema` | from JSON Schema to nodes |

mod array;
mod derive;
mod formula;
mod frame;
mod keyword;
mod live;
mod member;
#[allow(dead_code)] // Used by the front end as it lands.
mod node;
mod object;
mod programs;
mod schema;
mod shape;
mod style;
mod text;
mod unique;
mod value;

pub(crate) use frame::Frame;
pub(crate) use programs::Programs;
pub(crate) use schema::SchemaCompiler;
pub use style::PropertyOrder;
pub(crate) use style::Style;
pub use text::Whitespace;
pub(crate) use value::Value;
