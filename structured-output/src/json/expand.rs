//! What may come at a frame: its lexemes, each ended by a mark.

use super::action::Expansion;
use super::formula::{FALSE, FormulaId};
use super::frame::{Frame, Place};
use super::live::DEAD;
use super::mark::{
    CLOSE, COMMA, FIRST_KEY, OPEN_ARRAY, OPEN_OBJECT, SCALAR, close_mark, scalar_mark,
};
use super::node::Kinds;
use super::object::ObjectId;
use super::programs::{GoalsId, Programs};
use super::shape::Spellings;
use super::style::StyleId;
use crate::bound::Bound;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, Stop};

impl Programs {
    /// The lexemes of a frame.
    pub(crate) fn expand(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        fuel: &mut Fuel,
    ) -> Result<Expansion, Stop> {
        let keeps_item = self.is_within_item(frame);
        let plain = |entry| Expansion {
            entry,
            keeps_key: false,
            keeps_item,
        };
        Ok(match *frame {
            Frame::End { style } => plain(self.style(style).spacing.outer),
            Frame::Pending { .. } => plain(EMPTY),
            Frame::Root { goals, style } => {
                // Where there is no value, white space leads nowhere.
                let value = self.value(lexicon, goals, style, fuel)?;
                let outer = self.style(style).spacing.outer;
                plain(match lexicon.is_live(value, fuel)? {
                    true => lexicon.marked(outer, SCALAR),
                    false => EMPTY,
                })
            }
            Frame::Colon { style, .. } => {
                plain(lexicon.marked(self.style(style).spacing.after_colon, SCALAR))
            }
            Frame::Value { goals, style } => plain(self.value(lexicon, goals, style, fuel)?),
            Frame::Array {
                array,
                place,
                style,
            } => {
                let rest = self.arrays.get(array.0).clone();
                let has_unique = rest.iter().any(|&id| self.logic.facts(id).has_unique);
                let items = self.items(lexicon, array, fuel)?;
                let another = match &items {
                    Some(_) if place.is_after_one() => self.comma(lexicon, style),
                    Some(items) => self.value(lexicon, items.goals, style, fuel)?,
                    None => EMPTY,
                };
                let close = self.close(lexicon, b"]", &rest);
                Expansion {
                    entry: self.or_close(lexicon, style, place, another, close),
                    keeps_key: false,
                    keeps_item: keeps_item || (has_unique && !place.is_after_one()),
                }
            }
            Frame::Object {
                object,
                place,
                count,
                style,
                ..
            } => {
                let mut keeps_key = false;
                let another = if place.is_after_one() {
                    match self.has_next_key(lexicon, frame, fuel)? {
                        true => self.comma(lexicon, style),
                        false => EMPTY,
                    }
                } else {
                    let keys = self.next_keys(lexicon, frame, usize::MAX, fuel)?;
                    let num_names = self.plan(self.at(frame).plan).num_names();
                    keeps_key = keys.iter().any(|&key| key >= num_names);
                    self.keys(lexicon, frame, &keys, fuel)?
                };
                let close = if self.plain[object.0 as usize].is_none() {
                    let rest = self.object(object).rest.clone();
                    self.close(lexicon, b"}", &rest)
                } else if self.object_closes(frame, object, count) {
                    let bracket = lexicon.literal(b"}");
                    lexicon.marked(bracket, CLOSE)
                } else {
                    EMPTY
                };
                Expansion {
                    entry: self.or_close(lexicon, style, place, another, close),
                    keeps_key,
                    keeps_item,
                }
            }
        })
    }

    /// Whether there is a key that may come next in an object.
    fn has_next_key(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let num_names = self.plan(self.at(frame).plan).num_names();
        match self.next_keys(lexicon, frame, 1, fuel)?.first() {
            None => return Ok(false),
            Some(&key) if key < num_names => return Ok(true),
            Some(_) => {}
        }
        // All keys of a class may be there already.
        let keys = self.next_keys(lexicon, frame, usize::MAX, fuel)?;
        let keys = self.keys(lexicon, frame, &keys, fuel)?;
        lexicon.is_live(keys, fuel)
    }

    /// Some keys of an object, each with white space and the colon. All begin with a quote, so that
    /// what is made anew for each set of keys is what follows it.
    fn keys(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        keys: &[u32],
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        let Frame::Object { style, .. } = *frame else {
            return Ok(EMPTY);
        };
        let colon = self.style(style).spacing.colon;
        let at = self.at(frame);
        let num_names = self.plan(at.plan).num_names();
        let (names, classes) = keys.split_at(keys.partition_point(|&key| key < num_names));
        let mut ways = self.keys_to_colon(lexicon, at.plan, names, colon, fuel)?;
        for &key in classes {
            fuel.burn(1)?;
            let class = (key - num_names) as usize;
            let language = self.keys_of_class(lexicon, at.plan, class, at.seen, fuel)?;
            let end = lexicon.marked(colon, FIRST_KEY + key as u16);
            let way = lexicon.concat(language, end);
            ways.push(lexicon.derivative(way, b'"', fuel)?);
        }
        let quote = lexicon.byte(b'"');
        let ways = lexicon.or(&ways);
        Ok(lexicon.concat(quote, ways))
    }

    /// Whether an object may end where a frame is.
    pub(super) fn object_closes(&self, frame: &Frame, object: ObjectId, count: u32) -> bool {
        let Some(plain) = &self.plain[object.0 as usize] else {
            let rest = &self.object(object).rest;
            return rest.iter().any(|&id| self.logic.facts(id).closes);
        };
        let at = self.at(frame);
        let names = 0..self.plan(at.plan).num_names();
        let mut required = names.filter(|&name| plain.required[name as usize]);
        !required.any(|name| self.is_open(at, name)) && count >= plain.min
    }

    /// The comma between items or members, with its white space: a lexeme of its own, so that it is
    /// the same whatever follows.
    fn comma(&self, lexicon: &mut Lexicon, style: StyleId) -> ExprId {
        lexicon.marked(self.style(style).spacing.comma, COMMA)
    }

    /// What comes within brackets: another item or member, or the closing bracket where that may be.
    fn or_close(
        &self,
        lexicon: &mut Lexicon,
        style: StyleId,
        place: Place,
        another: ExprId,
        close: ExprId,
    ) -> ExprId {
        match place {
            Place::Comma => another,
            Place::Start => {
                let another = lexicon.concat(self.style(style).spacing.first, another);
                lexicon.or(&[another, close])
            }
            Place::Item | Place::Next => {
                let close = lexicon.concat(self.style(style).spacing.close, close);
                lexicon.or(&[another, close])
            }
        }
    }

    /// The closing bracket, if a goal is met with it: with the marks of all that are.
    fn close(&self, lexicon: &mut Lexicon, bracket: &[u8], rest: &[FormulaId]) -> ExprId {
        let goals = (0..rest.len()).filter(|&goal| self.logic.facts(rest[goal]).closes);
        let marks: Vec<ExprId> = goals.map(|goal| lexicon.mark(close_mark(goal))).collect();
        if marks.is_empty() {
            return EMPTY;
        }
        let bracket = lexicon.literal(bracket);
        let marks = lexicon.or(&marks);
        lexicon.concat(bracket, marks)
    }

    /// A value's first lexeme; an opening bracket takes the white space after it along.
    fn value(
        &mut self,
        lexicon: &mut Lexicon,
        goals: GoalsId,
        style: StyleId,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        let inner = self.style(style).spacing.inner;
        if let Some(&known) = self.value_lexemes.get(&(goals, inner)) {
            return Ok(known);
        }
        let nodes = self.goals.get(goals.0).clone();
        if nodes.len() > Bound::Goals.max() {
            return Err(fuel.exhaust(Bound::Goals));
        }
        let texts = self.texts(lexicon);
        let mut ways = Vec::new();
        let (mut has_array, mut has_object) = (false, false);
        for (goal, &node) in nodes.iter().enumerate() {
            let shape = self.shape(lexicon, node, fuel)?;
            let mut scalars = Vec::new();
            let words = [Kinds::NULL, Kinds::FALSE, Kinds::TRUE]
                .into_iter()
                .zip(texts.words);
            scalars.extend(
                words
                    .filter(|word| shape.words & word.0.0 != 0)
                    .map(|word| word.1),
            );
            for (spellings, free) in [(shape.number, texts.number), (shape.string, texts.string)] {
                match spellings {
                    Spellings::Free => scalars.push(free),
                    Spellings::Only(language) => {
                        if lexicon.is_live(language, fuel)? {
                            scalars.push(language);
                        }
                    }
                }
            }
            let scalars = lexicon.or(&scalars);
            ways.push(lexicon.marked(scalars, scalar_mark(goal)));
            has_array |= self.array_cost(lexicon, shape.array, fuel)? != DEAD;
            if shape.object != FALSE && !has_object {
                let at = self.object_start(lexicon, &[shape.object], fuel)?;
                has_object = self.object_cost(lexicon, at, shape.object, fuel)? != DEAD;
            }
        }
        let brackets = [
            (has_array, b"[", OPEN_ARRAY),
            (has_object, b"{", OPEN_OBJECT),
        ];
        for (_, bracket, mark) in brackets.iter().filter(|bracket| bracket.0) {
            let bracket = lexicon.literal(*bracket);
            let bracket = lexicon.concat(bracket, inner);
            ways.push(lexicon.marked(bracket, *mark));
        }
        let lexeme = lexicon.or(&ways);
        self.value_lexemes.insert((goals, inner), lexeme);
        Ok(lexeme)
    }
}
