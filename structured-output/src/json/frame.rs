//! Arrays and objects as frames of the pushdown machine: the places between the values of a text.
//!
//! What may come at a frame is made in `expand`, what follows it in `follow`.

use super::live::DEAD;
use super::mark::{COMMA, is_close};
use super::object::{ObjectAt, ObjectId};
use super::plan::PlanId;
use super::programs::{ArrayId, GoalsId, OutcomesId, Programs};
use super::seen::{NOTHING_SEEN, SeenId};
use super::style::StyleId;
use crate::lexical::{Fuel, Lexicon, Stop};
use crate::options::PropertyOrder;

/// A place between the values of a JSON text. What it stands for is all that may come until the
/// frame is done.
///
/// A value is to meet one of several *goals*, nodes, where what follows depends on which: then the
/// frame below is `Pending`, and when the value is over, it is replaced by the outcome of the goal that
/// was met. Only strings may meet several, see `joint`. Mostly there is one goal, and what follows is
/// just below.
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

    /// The bracket that it is to end with, if it is a place in an array or object.
    pub(crate) fn closing_bracket(&self) -> Option<u8> {
        match self {
            Self::Array { .. } => Some(b']'),
            Self::Object { .. } => Some(b'}'),
            _ => None,
        }
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

impl Place {
    /// Whether a comma comes before anything but the end.
    pub(super) fn is_after_one(self) -> bool {
        matches!(self, Self::Item | Self::Next)
    }
}

impl Programs {
    /// Bytes of a short text of a frame that meets a goal; [`DEAD`] where there is none.
    pub(crate) fn frame_cost(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        goal: u32,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
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
                plan: PlanId(0),
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

    /// Whether a lexeme's mark says that another item or member follows.
    pub(crate) fn is_comma(mark: u16) -> bool {
        mark == COMMA
    }

    /// Whether an object's lexeme ends with its closing bracket where it has a mark.
    pub(crate) fn is_close(mark: u16) -> bool {
        is_close(mark)
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
}

/// A cost after an item or member, as one after the opening bracket where it is that.
fn without_comma(cost: u32, place: Place) -> u32 {
    match place {
        Place::Start if cost > 1 && cost != DEAD => cost - 1,
        _ => cost,
    }
}
