//! What follows a frame's lexeme, by the mark that ended it.

use super::action::Action;
use super::formula::FALSE;
use super::frame::{Frame, Place};
use super::live::DEAD;
use super::mark::{COMMA, FIRST_KEY, OPEN_ARRAY, OPEN_OBJECT, goal_of, is_close, is_scalar};
use super::member::Members;
use super::programs::{ArrayId, GoalsId, Programs};
use super::seen::NOTHING_SEEN;
use super::style::StyleId;
use super::unique::last_item;
use super::value::unquote;
use crate::lexical::{EPSILON, Fuel, Lexicon, Stop};

impl Programs {
    /// What follows a mark of a frame.
    pub(crate) fn follow(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<Action, Stop> {
        let verdict = |goal: u16| Action::Verdict(u32::from(goal));
        Ok(match *frame {
            Frame::End { .. } | Frame::Pending { .. } => verdict(0),
            Frame::Root { goals, style } | Frame::Colon { goals, style } => {
                Action::replace(Frame::Value { goals, style })
            }
            Frame::Value { goals, style } => {
                if is_scalar(mark) {
                    verdict(goal_of(mark))
                } else {
                    Action::replace(self.opened(lexicon, goals, mark, style, fuel)?)
                }
            }
            Frame::Array { .. } | Frame::Object { .. } if mark == COMMA => {
                Action::replace(self.after_comma(*frame))
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
                    Action::Replace([rest.map(|&rest| next(self, rest)), None])
                } else {
                    let frames: Vec<Frame> =
                        items.rest.iter().map(|&rest| next(self, rest)).collect();
                    let below = self.joined(frames);
                    let formulas = self.arrays.get(array.0);
                    let unique = formulas.iter().any(|&id| self.logic.facts(id).has_unique);
                    let inside = self.inside(lexicon, style);
                    let inner = if unique {
                        self.item_style(inside)
                    } else {
                        inside
                    };
                    let value = self.opened(lexicon, items.goals, mark, inner, fuel)?;
                    Action::Replace([Some(below), Some(value)])
                }
            }
            Frame::Object { .. } => {
                if is_close(mark) {
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
                let style = self.inside(lexicon, style);
                let value = match self.style(style).spacing.after_colon {
                    EPSILON => Frame::Value { goals, style },
                    _ => Frame::Colon { goals, style },
                };
                if key < num_names {
                    Action::Replace([Some(below), Some(value)])
                } else {
                    Action::Member { next: below, value }
                }
            }
        })
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
    ) -> Result<Frame, Stop> {
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

    /// The style of the values in an array or object of a style.
    fn inside(&mut self, lexicon: &mut Lexicon, style: StyleId) -> StyleId {
        let own = self.style(style);
        match own.indent {
            Some(_) => StyleId(self.styles.intern(own.inside(lexicon), 0).0),
            None => style,
        }
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

    /// The frame after an item that ends a text.
    pub(crate) fn after_item(
        &mut self,
        lexicon: &mut Lexicon,
        frame: Frame,
        text: &[u8],
        fuel: &mut Fuel,
    ) -> Result<Frame, Stop> {
        let Frame::Array { array, style, .. } = frame else {
            return Ok(frame);
        };
        fuel.burn(1 + text.len() as u64)?;
        let item = self.constant_of(lexicon, last_item(text), fuel)?;
        let formulas = self.arrays.get(array.0).clone();
        let mut rest = Vec::with_capacity(formulas.len());
        for &formula in &formulas {
            let formula = self.with_item(formula, item, fuel)?;
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
