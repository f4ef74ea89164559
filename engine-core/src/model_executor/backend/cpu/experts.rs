//! Mixtures of experts: which rows go through which expert, and the sum of what comes back.
//!
//! Rows are sorted by expert, so that each expert's weights are read once for all of its rows. A
//! token's own results are added in the order of the experts, whatever else is in the batch.

use super::activation::{Activation, for_each_row};
use super::buffer::SharedMut;
use crate::model_executor::backend::ExpertChoice;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// One of a token's experts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Choice {
    expert: u32,
    weight: f32,
}

/// Consecutive routed rows of one expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertRows {
    pub(crate) expert: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The routing of a step's rows, in memory that exists.
pub(crate) struct Routing {
    /// Experts per token of the model.
    top_k: usize,
    /// `[rows, top_k]`, by row, the experts ascending.
    choices: Vec<Choice>,
    /// `[rows, top_k]` where each choice's row stands among the routed rows.
    places: Vec<u32>,
    /// `[rows * top_k]` row of each routed row.
    rows: Vec<u32>,
    /// Per expert that has any, ascending.
    groups: Vec<ExpertRows>,
    /// `[num_experts]`
    counts: Vec<u32>,
}

impl Routing {
    /// Room for `max_rows` rows; none where the model has no experts.
    pub(crate) fn allocate(choice: Option<ExpertChoice>, max_rows: usize) -> Self {
        let (top_k, num_experts) =
            choice.map_or((0, 0), |choice| (choice.top_k, choice.num_experts));
        let routed = max_rows.saturating_mul(top_k);
        Self {
            top_k,
            choices: Vec::with_capacity(routed),
            places: Vec::with_capacity(routed),
            rows: Vec::with_capacity(routed),
            groups: Vec::with_capacity(num_experts),
            counts: Vec::with_capacity(num_experts),
        }
    }

    /// Rows that the experts compute for one of the model.
    pub(crate) fn rows_per_token(&self) -> usize {
        self.top_k.max(1)
    }

    pub(crate) fn groups(&self) -> &[ExpertRows] {
        &self.groups
    }

    /// Chooses by logits `[rows, num_experts]`.
    pub(crate) fn route(
        &mut self,
        pool: &ComputePool,
        logits: &Activation,
        choice: ExpertChoice,
    ) -> Result<(), ModelError> {
        let (rows, top_k) = (logits.rows(), choice.top_k);
        assert!(logits.width() == choice.num_experts && top_k == self.top_k);
        self.choices.clear();
        self.choices.resize(rows * top_k, Choice::default());
        let choices = SharedMut::new(&mut self.choices);
        for_each_row(pool, rows, 32 * choice.num_experts, &|row, _| {
            // SAFETY: each row's choices belong to one call.
            let choices =
                unsafe { std::slice::from_raw_parts_mut(choices.ptr(row * top_k, top_k), top_k) };
            choose(logits.row(row), choice.normalize, choices);
        })?;
        self.sort(choice.num_experts);
        Ok(())
    }

    /// Puts the rows in the order of their experts.
    fn sort(&mut self, num_experts: usize) {
        self.counts.clear();
        self.counts.resize(num_experts, 0);
        for choice in &self.choices {
            self.counts[choice.expert as usize] += 1;
        }
        self.groups.clear();
        let mut first = 0;
        for (expert, count) in self.counts.iter_mut().enumerate() {
            let group = ExpertRows {
                expert,
                first,
                count: *count as usize,
            };
            if group.count > 0 {
                self.groups.push(group);
            }
            // From here on the place of the expert's next row.
            *count = first as u32;
            first += group.count;
        }
        self.places.clear();
        self.rows.clear();
        self.rows.resize(self.choices.len(), 0);
        for (index, choice) in self.choices.iter().enumerate() {
            let place = &mut self.counts[choice.expert as usize];
            self.places.push(*place);
            self.rows[*place as usize] = (index / self.top_k) as u32;
            *place += 1;
        }
    }

    /// `out[i] = x[row of routed row i]`
    pub(crate) fn gather(
        &self,
        pool: &ComputePool,
        x: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.set_rows(self.rows.len())?;
        let (width, stride) = (out.width(), out.stride());
        assert!(x.width() == width, "widths differ");
        let to = SharedMut::new(out.as_mut_slice());
        for_each_row(pool, self.rows.len(), width, &|routed, _| {
            // SAFETY: each row of `out` belongs to one call.
            let to =
                unsafe { std::slice::from_raw_parts_mut(to.ptr(routed * stride, width), width) };
            to.copy_from_slice(x.row(self.rows[routed] as usize));
        })?;
        Ok(())
    }

    /// `out[t]` = sum of weight times routed row over the experts of `t`, ascending.
    pub(crate) fn combine(
        &self,
        pool: &ComputePool,
        routed: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let rows = self.choices.len() / self.rows_per_token();
        out.set_rows(rows)?;
        let (width, stride, top_k) = (out.width(), out.stride(), self.top_k);
        assert!(routed.width() == width && routed.rows() == self.choices.len());
        let to = SharedMut::new(out.as_mut_slice());
        for_each_row(pool, rows, width * top_k, &|row, _| {
            // SAFETY: each row of `out` belongs to one call.
            let to = unsafe { std::slice::from_raw_parts_mut(to.ptr(row * stride, width), width) };
            to.fill(0.0);
            let own = row * top_k..(row + 1) * top_k;
            for (choice, place) in self.choices[own.clone()].iter().zip(&self.places[own]) {
                for (to, from) in to.iter_mut().zip(routed.row(*place as usize)) {
                    *to += choice.weight * from;
                }
            }
        })?;
        Ok(())
    }
}

/// The likeliest experts of one row with their weights, the experts ascending. Of equals the first.
fn choose(logits: &[f32], normalize: bool, choices: &mut [Choice]) {
    for chosen in 0..choices.len() {
        let (before, rest) = choices.split_at_mut(chosen);
        let mut best: Option<(usize, f32)> = None;
        for (expert, logit) in logits.iter().enumerate() {
            let taken = before.iter().any(|choice| choice.expert as usize == expert);
            if !taken && best.is_none_or(|(_, most)| *logit > most) {
                best = Some((expert, *logit));
            }
        }
        if let (Some((expert, weight)), Some(choice)) = (best, rest.first_mut()) {
            *choice = Choice {
                expert: expert as u32,
                weight,
            };
        }
    }
    // The first one chosen has the largest logit.
    let largest = choices.first().map_or(0.0, |choice| choice.weight);
    let total: f32 = if normalize {
        choices
            .iter()
            .map(|choice| (choice.weight - largest).exp())
            .sum()
    } else {
        logits.iter().map(|logit| (logit - largest).exp()).sum()
    };
    for choice in &mut *choices {
        choice.weight = (choice.weight - largest).exp() / total;
    }
    choices.sort_unstable_by_key(|choice| choice.expert);
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tests::{Random, close, filled};
    use super::*;

    fn choose_vec(logits: &[f32], top_k: usize, normalize: bool) -> Vec<Choice> {
        let mut choices = vec![Choice::default(); top_k];
        choose(logits, normalize, &mut choices);
        choices
    }

    #[test]
    fn weights_are_the_softmax_over_all_experts_or_over_the_chosen() {
        let logits = [0.5f32, 2.0, -1.0, 2.5, 0.0];
        let all: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let parts = choose_vec(&logits, 2, false);
        assert_eq!([parts[0].expert, parts[1].expert], [1, 3]);
        close(parts[0].weight, 2f64.exp() / all, 1e-6, "part");
        let whole = choose_vec(&logits, 2, true);
        close(whole[0].weight, 1.0 / (1.0 + 0.5f64.exp()), 1e-6, "whole");
        close(whole[0].weight + whole[1].weight, 1.0, 1e-6, "sum");
    }

    #[test]
    fn ties_and_what_is_not_a_number_choose_different_experts() {
        for logits in [[1.0f32; 4], [f32::NAN; 4], [f32::NAN, 1.0, f32::NAN, 1.0]] {
            let chosen: Vec<u32> = choose_vec(&logits, 3, true)
                .iter()
                .map(|choice| choice.expert)
                .collect();
            assert!(chosen.is_sorted_by(|a, b| a < b), "{logits:?}: {chosen:?}");
        }
    }

    #[test]
    fn rows_are_gathered_by_expert_and_combined_again() {
        let pool = ComputePool::new(2).unwrap();
        let choice = ExpertChoice {
            num_experts: 7,
            top_k: 3,
            normalize: false,
        };
        let (rows, width) = (23, 19);
        let mut random = Random(5);
        let logits = filled(rows, 7, &mut random);
        let x = filled(rows, width, &mut random);
        let mut routing = Routing::allocate(Some(choice), rows);
        routing.route(&pool, &logits, choice).unwrap();
        let mut routed = Activation::allocate(rows * 3, width).unwrap();
        routing.gather(&pool, &x, &mut routed).unwrap();

        // Groups cover the routed rows in order, and each holds the rows that chose its expert.
        let mut next = 0;
        for group in routing.groups() {
            assert_eq!(group.first, next);
            next += group.count;
            let expected: Vec<usize> = (0..rows)
                .filter(|row| {
                    choose_vec(logits.row(*row), 3, false)
                        .iter()
                        .any(|choice| choice.expert as usize == group.expert)
                })
                .collect();
            let found = &routing.rows[group.first..next];
            assert!(found.iter().map(|row| *row as usize).eq(expected));
        }
        assert_eq!(next, rows * 3);

        // Expert e multiplies by e + 1.
        let stride = routed.stride();
        for group in routing.groups() {
            for row in group.first..group.first + group.count {
                for value in &mut routed.as_mut_slice()[row * stride..][..width] {
                    *value *= group.expert as f32 + 1.0;
                }
            }
        }
        let mut out = Activation::allocate(rows, width).unwrap();
        routing.combine(&pool, &routed, &mut out).unwrap();
        for row in 0..rows {
            let factor: f64 = choose_vec(logits.row(row), 3, false)
                .iter()
                .map(|choice| f64::from(choice.weight) * (f64::from(choice.expert) + 1.0))
                .sum();
            for (found, x) in out.row(row).iter().zip(x.row(row)) {
                close(*found, factor * f64::from(*x), 1e-5, "combined");
            }
        }
    }
}
