//! The distinct values of a node, shortest first, as far as they are asked for.
//!
//! Whether an array of distinct items can end is mostly a question of how many values there are. So a
//! node's values are listed, each once and by one spelling: numbers as plain decimals, strings with as
//! few escapes as can be. The list goes on where it was left when more are asked for. Of arrays and
//! objects only some are listed: those that differ in the values of one way to write them, and
//! those with an item or a member more.

use hashbrown::{HashMap, HashSet};

use super::decimal::Scientific;
use super::formula::FALSE;
use super::fresh_keys::Strings;
use super::node::{Kinds, NodeId};
use super::programs::Programs;
use super::shape::{NONE, Spellings};
use super::value::{Value, unquote};
use super::words::{Rest, Words};
use crate::held::{allocated, with_room};
use crate::lexical::search::DEAD;
use crate::lexical::{ByteSet, EMPTY, ExprId, Fuel, Lexicon, Stop, UNBOUNDED};

/// Values of values are listed this deep, by recursion.
const MAX_OPEN: usize = 16;
/// Values that are listed at once where each list is made anew.
const AT_ONCE: usize = 16;
/// Nesting of the values that are listed.
const MAX_NESTING: usize = 1000;

/// A value, however it is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ValueId(u32);

/// All that is listed.
#[derive(Default)]
pub(super) struct AllValues {
    /// By node.
    lists: HashMap<NodeId, Values>,
    /// By what is the same for equal values.
    ids: HashMap<Box<[u8]>, ValueId>,
    /// Of the constants that items were found to be.
    constants: HashMap<NodeId, ValueId>,
    /// By language, the strings that were listed of it.
    pub(super) strings: HashMap<ExprId, Strings>,
    /// Nodes whose values are being listed.
    open: Vec<NodeId>,
    /// How often values were asked for from outside.
    num_runs: u64,
    /// See [`Programs::plain_spellings`].
    plain_spellings: Option<(ExprId, ExprId)>,
    pub(super) bytes: usize,
}

impl AllValues {
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + with_room(
                self.lists.len() * (size_of::<(NodeId, Values)>() + 1)
                    + self.strings.len() * (size_of::<(ExprId, Strings)>() + 1)
                    + self.ids.len() * (size_of::<(Box<[u8]>, ValueId)>() + 1)
                    + self.constants.len() * 9,
            )
    }

    /// The number of a value.
    fn id_of(&mut self, value: &Value) -> ValueId {
        let mut key = Vec::new();
        write_key(value, &mut key);
        if let Some(&known) = self.ids.get(&key[..]) {
            return known;
        }
        let id = ValueId(self.ids.len() as u32);
        self.bytes += allocated(key.len());
        self.ids.insert(key.into(), id);
        id
    }

    /// Takes note of what value a constant is.
    pub(super) fn note_constant(&mut self, constant: NodeId, value: &Value) {
        if !self.constants.contains_key(&constant) {
            let id = self.id_of(value);
            self.constants.insert(constant, id);
        }
    }

    /// The value of a constant, if that is known.
    pub(super) fn of_constant(&self, constant: NodeId) -> Option<ValueId> {
        self.constants.get(&constant).copied()
    }

    /// What was listed of a node's values.
    pub(super) fn of(&self, node: NodeId) -> &[Listed] {
        self.lists.get(&node).map_or(&[], |values| &values.found)
    }

    /// Whether a node has no values but those that were listed.
    pub(super) fn are_all(&self, node: NodeId) -> bool {
        let values = self.lists.get(&node);
        values.is_some_and(|values| matches!(values.stage, Stage::Over { all: true }))
    }
}

/// A value that is listed.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) id: ValueId,
    pub(super) text: Box<[u8]>,
}

impl Listed {
    /// Bytes that it takes in a list.
    fn held(&self) -> usize {
        with_room(size_of::<Self>() + size_of::<ValueId>() + 1) + allocated(self.text.len())
    }
}

/// The values of a node, as far as they were listed.
struct Values {
    found: Vec<Listed>,
    ids: HashSet<ValueId>,
    /// The scalars that are not listed yet.
    words: Words,
    /// The numbers and strings that may have spellings beyond the plain ones.
    others: ExprId,
    /// Arrays and objects.
    has_composites: bool,
    stage: Stage,
    /// In which run arrays and objects were last listed, and how many were asked for.
    last_run: (u64, usize),
}

/// What is listed next.
#[derive(Clone, Copy)]
enum Stage {
    /// Scalars by their plain spellings.
    Plain,
    /// Scalars of which the node has no plain spelling.
    Others,
    /// Arrays and objects.
    Composites,
    /// Nothing.
    Over {
        /// Whether there are no further values.
        all: bool,
    },
}

impl Programs {
    /// Lists so many values of a node, or as many as are found.
    pub(super) fn list_values(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let open = &self.values.open;
        let is_within = open.contains(&node) || open.len() >= MAX_OPEN;
        if is_within || self.values.of(node).len() >= count {
            return Ok(());
        }
        if open.is_empty() {
            self.values.num_runs += 1;
        }
        let mut values = match self.values.lists.remove(&node) {
            Some(values) => values,
            None => self.values_of(lexicon, node, fuel)?,
        };
        let before = values.words.memory_bytes();
        self.values.open.push(node);
        let listed = self.list_more(lexicon, node, &mut values, count, fuel);
        self.values.open.pop();
        let after = values.words.memory_bytes();
        self.values.bytes = (self.values.bytes + after).saturating_sub(before);
        if let Err(Stop::Bytes(_)) = listed {
            // There is no going on from there.
            let held = after + values.found.iter().map(Listed::held).sum::<usize>();
            self.values.bytes = self.values.bytes.saturating_sub(held);
            return listed;
        }
        self.values.lists.insert(node, values);
        listed
    }

    fn list_more(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        values: &mut Values,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        while values.found.len() < count {
            let held = self.memory_bytes();
            fuel.check_bytes(held + values.words.memory_bytes())?;
            match values.stage {
                Stage::Plain => match values.words.next(lexicon, held, fuel)? {
                    Some(text) => drop(self.add_value(values, &text)),
                    None => values.stage = Stage::Others,
                },
                Stage::Others => {
                    self.list_others(lexicon, values, count, fuel)?;
                    if values.found.len() < count {
                        values.stage = match values.has_composites {
                            true => Stage::Composites,
                            false => Stage::Over { all: true },
                        };
                    }
                }
                Stage::Composites => {
                    // In values of values the same node is asked often: once is enough.
                    let run = self.values.num_runs;
                    if values.last_run.0 == run && values.last_run.1 >= count {
                        return Ok(());
                    }
                    values.last_run = (run, count);
                    let at_once = count.max(2 * values.found.len()).max(AT_ONCE);
                    let texts = self.composites(lexicon, node, at_once, fuel)?;
                    for text in texts {
                        fuel.burn(1)?;
                        self.add_value(values, &text);
                    }
                    if values.found.len() < count {
                        // Of what is open more may be known later.
                        if self.costs.open.is_empty() && self.values.open.len() == 1 {
                            values.stage = Stage::Over { all: false };
                        }
                        return Ok(());
                    }
                }
                Stage::Over { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    /// Adds a value if it is not there yet. What it is, where it is a scalar.
    fn add_value(&mut self, values: &mut Values, text: &[u8]) -> Option<Value> {
        let value = Value::parse(&String::from_utf8_lossy(text), MAX_NESTING).ok()?;
        let id = self.values.id_of(&value);
        if values.ids.insert(id) {
            let text = text.into();
            let listed = Listed { id, text };
            self.values.bytes += listed.held();
            values.found.push(listed);
        }
        Some(value)
    }

    /// Lists numbers and strings of which the node has no plain spelling.
    fn list_others(
        &mut self,
        lexicon: &mut Lexicon,
        values: &mut Values,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if values.others == EMPTY {
            return Ok(());
        }
        let mut spellings = Vec::new();
        for listed in &values.found {
            fuel.burn(1)?;
            let text = String::from_utf8_lossy(&listed.text);
            spellings.extend(spellings_of(lexicon, &text));
        }
        let mut known = lexicon.or(&spellings);
        while values.found.len() < count {
            let not = lexicon.not(known);
            let left = lexicon.and(&[values.others, not]);
            if lexicon.distance(left, fuel)? == DEAD {
                values.others = EMPTY;
                return Ok(());
            }
            let mut text = Vec::new();
            Self::write_shortest(lexicon, left, &mut text, fuel)?;
            self.add_value(values, &text);
            let own = lexicon.literal(&text);
            let all = spellings_of(lexicon, &String::from_utf8_lossy(&text));
            known = lexicon.or(&[known, own, all.unwrap_or(EMPTY)]);
        }
        Ok(())
    }

    /// The values of a node, none of them listed yet.
    fn values_of(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Values, Stop> {
        let shape = self.shape(lexicon, node, fuel)?;
        let texts = self.texts(lexicon);
        let (plain_number, plain_string) = self.plain_spellings(lexicon);
        let mut words = Words::default();
        let kinds = [Kinds::NULL, Kinds::FALSE, Kinds::TRUE].into_iter();
        for (_, word) in kinds
            .zip(texts.words)
            .filter(|(kind, _)| shape.words & kind.0 != 0)
        {
            words.push(lexicon, Vec::new(), Rest::One(word), fuel)?;
        }
        let mut others = Vec::new();
        if shape.number != NONE {
            let plain = match shape.number {
                Spellings::Free => plain_number,
                Spellings::Only(language) => {
                    others.push(language);
                    lexicon.and(&[language, plain_number])
                }
            };
            let rest = Rest::Language(plain, ByteSet::EMPTY);
            words.push(lexicon, Vec::new(), rest, fuel)?;
        }
        if shape.string != NONE {
            let language = match shape.string {
                Spellings::Free => texts.constrained,
                Spellings::Only(language) => language,
            };
            let strings = lexicon.alternatives(language);
            fuel.burn(strings.len() as u64)?;
            let nodes = &self.logic.nodes;
            if strings.iter().all(|&one| nodes.is_single_value(one)) {
                for one in strings {
                    words.push(lexicon, Vec::new(), Rest::One(one), fuel)?;
                }
            } else {
                others.push(language);
                let plain = lexicon.and(&[language, plain_string]);
                let rest = Rest::Language(plain, ByteSet::EMPTY);
                words.push(lexicon, Vec::new(), rest, fuel)?;
            }
        }
        Ok(Values {
            found: Vec::new(),
            ids: HashSet::new(),
            words,
            others: lexicon.or(&others),
            has_composites: shape.array != FALSE || shape.object != FALSE,
            stage: Stage::Plain,
            last_run: (0, 0),
        })
    }

    /// Numbers and strings, each spelled in one way.
    fn plain_spellings(&mut self, lexicon: &mut Lexicon) -> (ExprId, ExprId) {
        if let Some(known) = self.values.plain_spellings {
            return known;
        }
        let digit = lexicon.class(ByteSet::range(b'0', b'9'));
        let digits = lexicon.repeat(digit, 0, UNBOUNDED);
        let above_zero = lexicon.class(ByteSet::range(b'1', b'9'));
        let zero = lexicon.literal(b"0");
        let point = lexicon.literal(b".");
        let fraction = lexicon.concat(digits, above_zero);
        let fraction = lexicon.concat(point, fraction);
        let below_one = lexicon.concat(zero, fraction);
        let fraction = lexicon.optional(fraction);
        let others = lexicon.concat(digits, fraction);
        let others = lexicon.concat(above_zero, others);
        let other_than_zero = lexicon.or(&[below_one, others]);
        let minus = lexicon.literal(b"-");
        let minus = lexicon.optional(minus);
        let number = lexicon.concat(minus, other_than_zero);
        let number = lexicon.or(&[zero, number]);

        let plain = [(' ', '!'), ('#', '['), (']', char::MAX)];
        let plain = lexicon.code_points(plain.into_iter());
        let short = lexicon.class(ByteSet::from_iter(*b"\"\\bfnrt"));
        let backslash = lexicon.literal(b"\\");
        let short = lexicon.concat(backslash, short);
        let first = lexicon.class(ByteSet::from_iter(*b"01"));
        let second = lexicon.class(ByteSet::from_iter(*b"0123456789abcdef"));
        let long = lexicon.concat(first, second);
        let u = lexicon.literal(b"\\u00");
        let long = lexicon.concat(u, long);
        let char = lexicon.or(&[plain, short, long]);
        let body = lexicon.star(char);
        let string = lexicon.json_quoted(body);
        *self.values.plain_spellings.insert((number, string))
    }
}

/// The spellings of a number or a string under a constraint.
fn spellings_of(lexicon: &mut Lexicon, text: &str) -> Option<ExprId> {
    match text.bytes().next()? {
        b'"' => {
            let (string, _) = unquote(text).ok()?;
            Some(lexicon.json_string(&string, false))
        }
        b'-' | b'0'..=b'9' => lexicon.json_number_value(text).ok(),
        _ => None,
    }
}

/// Writes what is the same for equal values and for no others. Recursion is bounded by the value's
/// nesting.
fn write_key(value: &Value, key: &mut Vec<u8>) {
    match value {
        Value::Null => key.push(b'n'),
        Value::Bool(flag) => key.push(if *flag { b't' } else { b'f' }),
        Value::Number(text) => match Scientific::parse(text) {
            Ok(Scientific {
                is_negative,
                digits,
                point: Some(point),
            }) => {
                let sign = if is_negative { "-" } else { "" };
                key.extend(format!("{sign}{digits}e{point}").bytes());
            }
            // Of numbers that no answer could write out, equal ones are told by their spelling.
            _ => {
                key.push(b'#');
                write_string(text, key);
            }
        },
        Value::String(text) => write_string(text, key),
        Value::Array(items) => {
            key.push(b'[');
            for item in items.iter() {
                write_key(item, key);
                key.push(b',');
            }
            key.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<&(String, Value)> = members.iter().collect();
            members.sort_unstable_by_key(|member| &member.0);
            key.push(b'{');
            for (name, value) in members {
                write_string(name, key);
                write_key(value, key);
                key.push(b',');
            }
            key.push(b'}');
        }
    }
}

/// A string with its length before it.
fn write_string(text: &str, key: &mut Vec<u8>) {
    key.extend(format!("\"{}:", text.len()).bytes());
    key.extend(text.bytes());
}
