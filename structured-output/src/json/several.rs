//! What follows a value that meets several goals: what may follow any of them.

use super::action::Action;
use super::formula::FormulaId;
use super::frame::Frame;
use super::mark::{goal_of, is_scalar};
use super::programs::{OutcomesId, Programs};
use crate::bound::Bound;
use crate::held::allocated;
use crate::lexical::{Fuel, Lexicon, Stop};

/// What the goals are told apart by: the outcomes that wait below a value, or the array whose next item
/// it is.
pub(super) type Goals = (Waiting, Box<[u16]>);

/// What waits for the end of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    Outcomes(OutcomesId),
    Array(Frame),
}

impl Programs {
    /// The frame that takes the place of one whose lexeme was a scalar and ended with several marks: that
    /// of an array whose item it was. `None` where the frame below is what changes.
    pub(crate) fn joint_item(
        &mut self,
        lexicon: &mut Lexicon,
        frame: Frame,
        marks: &[u16],
        fuel: &mut Fuel,
    ) -> Result<Option<Frame>, Stop> {
        let is_item = marks.first().is_some_and(|&mark| is_scalar(mark));
        if !is_item || !frame.is_array() {
            return Ok(None);
        }
        let goals: Goals = (
            Waiting::Array(frame),
            marks.iter().map(|&mark| goal_of(mark)).collect(),
        );
        if let Some(&known) = self.joint_frames.get(&goals) {
            return Ok(Some(known));
        }
        let mut frames = Vec::with_capacity(marks.len());
        for &mark in marks {
            if let Action::Replace([Some(next), None]) = self.follow(lexicon, &frame, mark, fuel)? {
                frames.push(next);
            }
        }
        self.joint_frame(lexicon, goals, frame, frames, fuel)
            .map(Some)
    }

    /// The frame below a value that meets several goals, when it is over.
    pub(crate) fn joint_outcome(
        &mut self,
        lexicon: &mut Lexicon,
        frame: Frame,
        marks: &[u16],
        fuel: &mut Fuel,
    ) -> Result<Frame, Stop> {
        let Frame::Pending { outcomes } = frame else {
            return Ok(frame);
        };
        let met: Box<[u16]> = marks.iter().map(|&mark| goal_of(mark)).collect();
        let goals: Goals = (Waiting::Outcomes(outcomes), met);
        if let Some(&known) = self.joint_frames.get(&goals) {
            return Ok(known);
        }
        let frames = self.outcomes.get(outcomes.0);
        let frames = goals
            .1
            .iter()
            .filter_map(|&goal| frames.get(usize::from(goal)).copied())
            .collect();
        self.joint_frame(lexicon, goals, frame, frames, fuel)
    }

    /// What may follow where one of some frames does, which are of one array or object.
    fn joint_frame(
        &mut self,
        lexicon: &mut Lexicon,
        goals: Goals,
        otherwise: Frame,
        frames: Vec<Frame>,
        fuel: &mut Fuel,
    ) -> Result<Frame, Stop> {
        // By goal of the array or object itself, what remains in each of the frames.
        let mut rests: Vec<Vec<FormulaId>> = Vec::new();
        let mut joint = otherwise;
        for &frame in &frames {
            let rest = match frame {
                Frame::Object { object, .. } => &self.object(object).rest,
                Frame::Array { array, .. } => self.arrays.get(array.0),
                _ => continue,
            };
            fuel.burn(1 + rest.len() as u64)?;
            rests.resize(rest.len(), Vec::new());
            for (all, rest) in rests.iter_mut().zip(rest) {
                all.push(*rest);
            }
            joint = frame;
        }
        let at = self.at(&joint);
        let mut all_rests = Vec::with_capacity(rests.len());
        for all in rests {
            // The cheapest first: what the whole is taken to need is what its first operand does.
            let mut by_cost = Vec::with_capacity(all.len());
            for rest in Self::each_once(all.into_iter()) {
                let cost = match joint {
                    Frame::Array { .. } => self.array_cost(lexicon, rest, fuel)?,
                    _ => self.object_cost(lexicon, at, rest, fuel)?,
                };
                by_cost.push((cost, rest));
            }
            by_cost.sort_by_key(|&(cost, _)| cost);
            let all: Vec<FormulaId> = by_cost.into_iter().map(|(_, rest)| rest).collect();
            all_rests.push(self.logic.any(&all));
        }
        if self.logic.take_too_deep() {
            return Err(fuel.exhaust(Bound::Conditions));
        }
        match &mut joint {
            Frame::Object { object, .. } => {
                let plan = self.object(*object).plan;
                *object = self.object_of(plan, all_rests.into());
            }
            Frame::Array { array, .. } => *array = self.array_of(all_rests.into()),
            _ => {}
        }
        self.charge(lexicon.memory_bytes(), fuel)?;
        self.bytes += allocated(size_of_val(&*goals.1));
        self.joint_frames.insert(goals, joint);
        Ok(joint)
    }
}
