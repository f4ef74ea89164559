//! Arrays and objects as frames of the pushdown machine.

use super::formula::{FALSE, FormulaId};
use super::live::DEAD;
use super::member::Members;
use super::node::Kinds;
use super::object::{ObjectAt, ObjectId};
use super::programs::{ArrayId, GoalsId, OutcomesId, Programs};
use super::seen::{NOTHING_SEEN, SeenId};
use super::shape::Spellings;
use super::style::StyleId;
use super::unique::last_item;
use super::value::unquote;
use crate::lexical::{EMPTY, EPSILON, ExprId, Fuel, Lexicon, OutOfFuel};
use crate::options::PropertyOrder;
use crate::pushdown::{Action, Expansion};

/// A place between the values of a JSON text. What it stands for is all that may come until the
/// frame is done.
///
/// A value is to meet one of several *goals*, disjoint nodes, where what follows depends on which:
/// then the frame below is `Pending`, and when the value is over, it is replaced by the outcome of
/// the goal that was met. Mostly there is one goal, and what follows is just below.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Frame {
    /// After the text.
    End { style: StyleId },
    /// Before the text.
    Root { goals: GoalsId, style: StyleId },
    /// After the colon of a member.
    Colon { goals: GoalsId, style: StyleId },
    /// Before a value, after white space.
    Value { goals: GoalsId, style: StyleId },
    /// Within an array.
    Array {
        array: ArrayId,
        place: Place,
        style: StyleId,
    },
    /// Within an object.
    Object {
        object: ObjectId,
        place: Place,
        /// See `ObjectAt`.
        done: u32,
        seen: SeenId,
        /// Of a plain object with a bound on its members: their number, as far as it matters.
        count: u32,
        style: StyleId,
    },
    /// Below a value with several goals: what follows each.
    Pending { outcomes: OutcomesId },
}

impl Frame {
    /// Whether it is a place in an array.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self, Self::Array { .. })
    }
}

/// Where in an array or object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// After the opening bracket and white space.
    Start,
    /// After an item whose text is to be added to the formula's sets.
    Item,
    /// After an item or member.
    Next,
    /// After the comma and white space.
    Comma,
}

/// Marks of lexemes: the same in every frame, so that lexemes are the same too. Those of goals
/// other than the first are from [`FIRST_GOAL`] on.
const SCALAR: u16 = 0;
const OPEN_ARRAY: u16 = 1;
const OPEN_OBJECT: u16 = 2;
const CLOSE: u16 = 3;
/// Another item or member follows.
const COMMA: u16 = 4;
/// That of an object's first name; those of the others follow, then those of the classes of keys.
pub(super) const FIRST_KEY: u16 = 5;
const FIRST_GOAL: u16 = 60_000;
/// The most goals that a value may have.
pub(super) const MAX_GOALS: usize = 2000;

fn scalar_mark(goal: usize) -> u16 {
    match goal {
        0 => SCALAR,
        _ => FIRST_GOAL + 2 * goal as u16,
    }
}

fn close_mark(goal: usize) -> u16 {
    match goal {
        0 => CLOSE,
        _ => FIRST_GOAL + 2 * goal as u16 + 1,
    }
}

/// The goal of a mark that ends a scalar, or else of one that closes.
fn goal_of(mark: u16) -> u16 {
    mark.saturating_sub(FIRST_GOAL) / 2
}

fn is_scalar(mark: u16) -> bool {
    mark == SCALAR || (mark >= FIRST_GOAL && mark.is_multiple_of(2))
}

impl Programs {
    /// Bytes of a short text of a frame that meets a goal; [`DEAD`] where there is none.
    pub(crate) fn frame_cost(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        goal: u32,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        match *frame {
            Frame::End { .. } | Frame::Pending { .. } => Ok(0),
            Frame::Root { goals, .. } | Frame::Colon { goals, .. } | Frame::Value { goals, .. } => {
                let node = self.goals.get(goals.0)[goal as usize];
                self.cost(lexicon, node, fuel)
            }
            Frame::Array { array, place, .. } => {
                let formula = self.arrays.get(array.0)[goal as usize];
                let cost = match place {
                    Place::Item => self.array_cost_with_item(lexicon, formula, fuel)?,
                    _ => self.array_cost(lexicon, formula, fuel)?,
                };
                Ok(without_comma(cost, place))
            }
            Frame::Object {
                object,
                place,
                count,
                ..
            } => {
                let at = self.at(frame);
                let cost = match self.plain[object.0 as usize].clone() {
                    Some(plain) => {
                        let members =
                            self.plain_members_to_end(lexicon, at, &plain, count, fuel)?;
                        match members {
                            Some(members) => self.cost_of_members(lexicon, &members, fuel)?,
                            None => DEAD,
                        }
                    }
                    None => {
                        let formula = self.object(object).rest[goal as usize];
                        self.object_cost(lexicon, at, formula, fuel)?
                    }
                };
                Ok(without_comma(cost, place))
            }
        }
    }

    /// How many goals a frame has.
    pub(crate) fn num_goals(&self, frame: &Frame) -> u32 {
        let goals = match *frame {
            Frame::Root { goals, .. } | Frame::Colon { goals, .. } | Frame::Value { goals, .. } => {
                self.goals.get(goals.0).len()
            }
            Frame::Array { array, .. } => self.arrays.get(array.0).len(),
            Frame::Object { object, .. } => self.object(object).rest.len(),
            Frame::End { .. } | Frame::Pending { .. } => 1,
        };
        goals as u32
    }

    /// What follows where a value below which a frame lies has met a goal: the frame itself, or
    /// the goal's outcome.
    pub(crate) fn outcome(&self, frame: Frame, goal: u32) -> Frame {
        match frame {
            Frame::Pending { outcomes } => {
                let frames = self.outcomes.get(outcomes.0);
                frames.get(goal as usize).copied().unwrap_or(frame)
            }
            _ => frame,
        }
    }

    /// Whether the text within a frame is that of an item of an array of distinct items.
    pub(crate) fn is_within_item(&self, frame: &Frame) -> bool {
        match *frame {
            Frame::End { style }
            | Frame::Root { style, .. }
            | Frame::Colon { style, .. }
            | Frame::Value { style, .. }
            | Frame::Array { style, .. }
            | Frame::Object { style, .. } => self.style(style).is_item,
            Frame::Pending { .. } => false,
        }
    }

    /// How far the object of a frame is.
    pub(super) fn at(&self, frame: &Frame) -> ObjectAt {
        let Frame::Object {
            object,
            done,
            seen,
            style,
            ..
        } = *frame
        else {
            return ObjectAt {
                plan: super::object::PlanId(0),
                order: PropertyOrder::Schema,
                done: 0,
                seen: NOTHING_SEEN,
            };
        };
        ObjectAt {
            plan: self.object(object).plan,
            order: self.style(style).order,
            done,
            seen,
        }
    }

    /// The lexemes of a frame.
    pub(crate) fn expand(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        fuel: &mut Fuel,
    ) -> Result<Expansion, OutOfFuel> {
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
                    Some(_) if is_after_one(place) => self.comma(lexicon, style),
                    Some(items) => self.value(lexicon, items.goals, style, fuel)?,
                    None => EMPTY,
                };
                let close = self.close(lexicon, b"]", &rest);
                Expansion {
                    entry: self.or_close(lexicon, style, place, another, close),
                    keeps_key: false,
                    keeps_item: keeps_item || (has_unique && !is_after_one(place)),
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
                let another = if is_after_one(place) {
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
    ) -> Result<bool, OutOfFuel> {
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
    ) -> Result<ExprId, OutOfFuel> {
        let Frame::Object { style, .. } = *frame else {
            return Ok(EMPTY);
        };
        let colon = self.style(style).spacing.colon;
        let at = self.at(frame);
        let num_names = self.plan(at.plan).num_names();
        let mut ways = Vec::with_capacity(keys.len());
        for &key in keys {
            fuel.burn(1)?;
            if key < num_names {
                ways.push(self.key_to_colon(lexicon, at.plan, key, colon, fuel)?);
            } else {
                let class = (key - num_names) as usize;
                let language = self.keys_of_class(lexicon, at.plan, class, at.seen, fuel)?;
                let end = lexicon.marked(colon, FIRST_KEY + key as u16);
                let way = lexicon.concat(language, end);
                ways.push(lexicon.derivative(way, b'"', fuel)?);
            }
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
            Place::Start => lexicon.or(&[another, close]),
            Place::Item | Place::Next => {
                let close = lexicon.concat(self.style(style).spacing.inner, close);
                lexicon.or(&[another, close])
            }
        }
    }

    /// The closing bracket, if a goal is met with it.
    fn close(&self, lexicon: &mut Lexicon, bracket: &[u8], rest: &[FormulaId]) -> ExprId {
        let mut goals = (0..rest.len()).filter(|&goal| self.logic.facts(rest[goal]).closes);
        // Goals are disjoint: at most one is met.
        match goals.next() {
            Some(goal) => {
                let bracket = lexicon.literal(bracket);
                lexicon.marked(bracket, close_mark(goal))
            }
            None => EMPTY,
        }
    }

    /// A value's first lexeme; an opening bracket takes the white space after it along.
    fn value(
        &mut self,
        lexicon: &mut Lexicon,
        goals: GoalsId,
        style: StyleId,
        fuel: &mut Fuel,
    ) -> Result<ExprId, OutOfFuel> {
        let inner = self.style(style).spacing.inner;
        if let Some(&known) = self.value_lexemes.get(&(goals, inner)) {
            return Ok(known);
        }
        let nodes = self.goals.get(goals.0).clone();
        if nodes.len() > MAX_GOALS {
            return Err(fuel.exhaust());
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

    /// What follows a mark of a frame.
    pub(crate) fn follow(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<Action, OutOfFuel> {
        let verdict = |goal: u16| Action::Verdict(u32::from(goal));
        Ok(match *frame {
            Frame::End { .. } | Frame::Pending { .. } => verdict(0),
            Frame::Root { goals, style } | Frame::Colon { goals, style } => {
                Action::Replace(vec![Frame::Value { goals, style }])
            }
            Frame::Value { goals, style } => {
                if is_scalar(mark) {
                    verdict(goal_of(mark))
                } else {
                    Action::Replace(vec![self.opened(lexicon, goals, mark, style, fuel)?])
                }
            }
            Frame::Array { .. } | Frame::Object { .. } if mark == COMMA => {
                Action::Replace(vec![self.after_comma(*frame)])
            }
            Frame::Array { array, style, .. } => {
                let items = match mark {
                    OPEN_ARRAY | OPEN_OBJECT => self.items(lexicon, array, fuel)?,
                    _ if is_scalar(mark) => self.items(lexicon, array, fuel)?,
                    _ => None,
                };
                let Some(items) = items else {
                    return Ok(verdict(goal_of(mark)));
                };
                let next = |programs: &Self, array: ArrayId| {
                    let rest = programs.arrays.get(array.0);
                    let unique = rest.iter().any(|&id| programs.logic.facts(id).has_unique);
                    Frame::Array {
                        array,
                        place: if unique { Place::Item } else { Place::Next },
                        style,
                    }
                };
                if is_scalar(mark) {
                    let rest = items.rest.get(usize::from(goal_of(mark)));
                    Action::Replace(rest.map(|&rest| next(self, rest)).into_iter().collect())
                } else {
                    let frames: Vec<Frame> =
                        items.rest.iter().map(|&rest| next(self, rest)).collect();
                    let below = self.joined(frames);
                    let formulas = self.arrays.get(array.0);
                    let unique = formulas.iter().any(|&id| self.logic.facts(id).has_unique);
                    let inner = if unique {
                        self.item_style(style)
                    } else {
                        style
                    };
                    let value = self.opened(lexicon, items.goals, mark, inner, fuel)?;
                    Action::Replace(vec![below, value])
                }
            }
            Frame::Object { .. } => {
                if mark == CLOSE || mark >= FIRST_GOAL {
                    return Ok(verdict(goal_of(mark)));
                }
                let key = u32::from(mark - FIRST_KEY);
                let at = self.at(frame);
                let num_names = self.plan(at.plan).num_names();
                let Some(member) = self.member(lexicon, frame, key, fuel)? else {
                    return Ok(verdict(0));
                };
                let Members { goals, next, style } = member;
                let below = self.joined(next);
                let value = match self.style(style).spacing.after_colon {
                    EPSILON => Frame::Value { goals, style },
                    _ => Frame::Colon { goals, style },
                };
                if key < num_names {
                    Action::Replace(vec![below, value])
                } else {
                    Action::Member { next: below, value }
                }
            }
        })
    }

    /// Whether a lexeme's mark says that another item or member follows.
    pub(crate) fn is_comma(mark: u16) -> bool {
        mark == COMMA
    }

    /// An array or object after the comma; any other frame as it is.
    pub(crate) fn after_comma(&self, mut frame: Frame) -> Frame {
        if let Frame::Array { place, .. } | Frame::Object { place, .. } = &mut frame {
            *place = Place::Comma;
        }
        frame
    }

    /// Whether a frame is one after a comma: then another item or member is to come, and
    /// [`Programs::frame_cost`] has no answer.
    pub(crate) fn is_after_comma(&self, frame: &Frame) -> bool {
        matches!(
            frame,
            Frame::Array {
                place: Place::Comma,
                ..
            } | Frame::Object {
                place: Place::Comma,
                ..
            }
        )
    }

    /// The frame below a value with those outcomes.
    fn joined(&mut self, frames: Vec<Frame>) -> Frame {
        match frames[..] {
            [only] => only,
            _ => Frame::Pending {
                outcomes: self.outcomes_id(frames.into()),
            },
        }
    }

    /// The frame after an opening bracket.
    fn opened(
        &mut self,
        lexicon: &mut Lexicon,
        goals: GoalsId,
        mark: u16,
        style: StyleId,
        fuel: &mut Fuel,
    ) -> Result<Frame, OutOfFuel> {
        let nodes = self.goals.get(goals.0).clone();
        let mut rest = Vec::with_capacity(nodes.len());
        for &node in &nodes {
            let shape = self.shape(lexicon, node, fuel)?;
            rest.push(if mark == OPEN_ARRAY {
                let cost = self.array_cost(lexicon, shape.array, fuel)?;
                if cost == DEAD { FALSE } else { shape.array }
            } else if shape.object == FALSE {
                FALSE
            } else {
                let at = self.object_start(lexicon, &[shape.object], fuel)?;
                let cost = self.object_cost(lexicon, at, shape.object, fuel)?;
                if cost == DEAD { FALSE } else { shape.object }
            });
        }
        if mark == OPEN_ARRAY {
            let array = self.array_of(rest.into());
            return Ok(Frame::Array {
                array,
                place: Place::Start,
                style,
            });
        }
        let plan = self.plan_of(lexicon, &rest, fuel)?;
        let object = self.object_of(plan, rest.into());
        Ok(Frame::Object {
            object,
            place: Place::Start,
            done: 0,
            seen: NOTHING_SEEN,
            count: 0,
            style,
        })
    }

    /// A style, within an item of an array of distinct items.
    fn item_style(&mut self, style: StyleId) -> StyleId {
        let mut style = self.style(style);
        style.is_item = true;
        StyleId(self.styles.intern(style, 0).0)
    }

    /// The frame after a member with a key of its own, from the text of the key's lexeme: white
    /// space, perhaps a comma, the key in quotes, white space, a colon.
    pub(crate) fn after_key(&mut self, next: Frame, lexeme: &[u8]) -> Frame {
        let text = String::from_utf8_lossy(lexeme);
        let quoted = text.find('"').map(|start| &text[start..]);
        let Some(Ok((key, _))) = quoted.map(unquote) else {
            return next;
        };
        self.with_key(next, &key)
    }

    fn with_key(&mut self, next: Frame, key: &str) -> Frame {
        match next {
            Frame::Object {
                object,
                place,
                done,
                seen,
                count,
                style,
            } => Frame::Object {
                object,
                place,
                done,
                seen: self.seen.with(seen, key),
                count,
                style,
            },
            Frame::Pending { outcomes } => {
                let frames = self.outcomes.get(outcomes.0).clone();
                let frames = frames
                    .iter()
                    .map(|&frame| self.with_key(frame, key))
                    .collect();
                Frame::Pending {
                    outcomes: self.outcomes_id(frames),
                }
            }
            other => other,
        }
    }

    /// Whether a frame waits for the text of the item before it.
    pub(crate) fn awaits_item(&self, frame: &Frame) -> bool {
        matches!(
            frame,
            Frame::Array {
                place: Place::Item,
                ..
            }
        )
    }

    /// The frame after an item that ends a text.
    pub(crate) fn after_item(
        &mut self,
        lexicon: &mut Lexicon,
        frame: Frame,
        text: &[u8],
        fuel: &mut Fuel,
    ) -> Result<Frame, OutOfFuel> {
        let Frame::Array { array, style, .. } = frame else {
            return Ok(frame);
        };
        fuel.burn(1 + text.len() as u64)?;
        let item = self.constant_of(lexicon, last_item(text));
        let formulas = self.arrays.get(array.0).clone();
        let mut rest = Vec::with_capacity(formulas.len());
        for &formula in &formulas {
            let formula = self.with_item(formula, item);
            let cost = self.array_cost(lexicon, formula, fuel)?;
            rest.push(if cost == DEAD { FALSE } else { formula });
        }
        Ok(Frame::Array {
            array: self.array_of(rest.into()),
            place: Place::Next,
            style,
        })
    }
}

/// Whether a comma comes before anything but the end.
fn is_after_one(place: Place) -> bool {
    matches!(place, Place::Item | Place::Next)
}

/// A cost after an item or member, as one after the opening bracket where it is that.
fn without_comma(cost: u32, place: Place) -> u32 {
    match place {
        Place::Start if cost > 1 && cost != DEAD => cost - 1,
        _ => cost,
    }
}
