//! The requests that a core has or should have, and who of them may have killed it.
//!
//! After a death those on probation when it happened are suspects, or all that the core had where
//! nobody was on probation. They come back in halves: each half has the core for itself until every
//! one of it has brought an output, and only then come the other half, those that were cleared
//! before, and new ones. A half that kills the core is halved again; a suspect that kills it alone
//! is guilty. So a deterministic killer among n requests is found in about log2(n) deaths.
//!
//! A half that is slow, since its grammars compile or its prompts are long, must not keep everybody else
//! out: after some time the next may come while it goes on. It stays suspect until it has brought an
//! output, and if the core dies again, the time is doubled. So also a killer that takes its time is alone
//! in the core at last.
//!
//! Halves of earlier deaths that have yet to come are one from then on, since the core has died without them:
//! others wait for all of these together no longer than for one.
//!
//! Where other cores serve the same model, a request need not wait for this one: after a death all may go to
//! another core ([`InFlight::take_movable`]) but those that an earlier death made suspects too. So a killer ends
//! at most one core beside its own before it is kept where it is, and the halves find it there. A suspect that
//! comes from another core is overdue at once: nobody waits for it, and it is blamed first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use protocol::{EngineCoreOutputs, EngineCoreRequest};

/// How long a half may keep others out, at first and at most.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct InFlight {
    requests: HashMap<String, Entry>,
    next_number: u64,
    /// Who has to bring an output before anyone else is sent.
    probation: HashSet<String>,
    /// Since when.
    probation_began: Instant,
    /// How long others wait for it.
    patience: Duration,
    /// Whom others waited for as long as that: as suspect as those on probation.
    overdue: HashSet<String>,
    /// Who is on probation next.
    groups: VecDeque<Vec<String>>,
    /// How many suspects the last death had.
    last_suspects: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    /// With every token that has come.
    request: EngineCoreRequest,
    /// Order of arrival.
    number: u64,
    /// Whether the core has it.
    sent: bool,
    /// Deaths that it may have caused.
    num_suspicions: u32,
    /// Whether the prompt's logprobs have come.
    has_prompt_logprobs: bool,
}

/// A request on its way from the books of one core to another's.
#[derive(Debug)]
pub(crate) struct MovedRequest {
    entry: Entry,
    /// Whether the last death may be its fault.
    is_suspect: bool,
}

impl MovedRequest {
    /// The request, with every token that has come.
    pub(crate) fn request(&self) -> &EngineCoreRequest {
        &self.entry.request
    }
}

/// What a death means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Died {
    /// Who may have caused it, in order of arrival.
    pub(super) suspects: Vec<String>,
    /// Who did, and is forgotten.
    pub(super) failed: Vec<String>,
    /// Whether there are fewer suspects than after the last death.
    pub(super) narrowed: bool,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            requests: HashMap::new(),
            next_number: 0,
            probation: HashSet::new(),
            probation_began: Instant::now(),
            patience: FIRST_PATIENCE,
            overdue: HashSet::new(),
            groups: VecDeque::new(),
            last_suspects: None,
        }
    }
}

impl InFlight {
    /// Whether new requests may be sent at once.
    pub(super) fn is_open(&self) -> bool {
        self.probation.is_empty() && self.groups.is_empty()
    }

    /// Number of requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes a new request; `sent` says whether the core has it already.
    pub(super) fn add(&mut self, request: EngineCoreRequest, sent: bool) {
        self.insert(Entry {
            number: 0,
            sent,
            num_suspicions: 0,
            has_prompt_logprobs: false,
            request,
        });
    }

    /// Puts an entry behind the others.
    fn insert(&mut self, mut entry: Entry) {
        entry.number = self.next_number;
        self.next_number += 1;
        self.requests
            .insert(entry.request.request_id.clone(), entry);
    }

    /// Takes out the requests that another core may serve, in order of arrival: those that this core doesn't
    /// have, but for suspects of more than one death.
    pub(super) fn take_movable(&mut self) -> Vec<MovedRequest> {
        let suspects: HashSet<String> = self.groups.iter().flatten().cloned().collect();
        let may_move = |_: &String, entry: &mut Entry| !entry.sent && entry.num_suspicions <= 1;
        let mut moved: Vec<MovedRequest> = self
            .requests
            .extract_if(may_move)
            .map(|(id, entry)| MovedRequest {
                is_suspect: suspects.contains(&id),
                entry,
            })
            .collect();
        moved.sort_by_key(|moved| moved.entry.number);
        for group in &mut self.groups {
            group.retain(|id| self.requests.contains_key(id));
        }
        self.groups.retain(|group| !group.is_empty());
        moved
    }

    /// Takes requests from another core's books.
    pub(super) fn take_over(&mut self, moved: Vec<MovedRequest>) {
        for MovedRequest { entry, is_suspect } in moved {
            if is_suspect {
                self.overdue.insert(entry.request.request_id.clone());
            }
            self.insert(entry);
        }
    }

    /// Forgets everything; returns the ids of the requests, in order of arrival.
    pub(super) fn take_all(&mut self) -> Vec<String> {
        let all = std::mem::take(self).requests.into_iter();
        let mut all: Vec<(u64, String)> = all.map(|(id, entry)| (entry.number, id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Forgets requests; returns those that the core has.
    pub(super) fn abort(&mut self, request_ids: Vec<String>) -> Vec<String> {
        let mut sent = request_ids;
        sent.retain(|id| {
            self.clear(id);
            self.requests.remove(id).is_some_and(|entry| entry.sent)
        });
        sent
    }

    /// Takes what a step brought; returns whether that was anything. Takes out of it what was
    /// given out before.
    pub(super) fn note(&mut self, step: &mut EngineCoreOutputs) -> bool {
        for output in &mut step.outputs {
            if output.finish_reason.is_none() && output.new_token_ids.is_empty() {
                continue;
            }
            self.clear(&output.request_id);
            let Some(entry) = self.requests.get_mut(&output.request_id) else {
                continue;
            };
            if output.finish_reason.is_some() {
                self.requests.remove(&output.request_id);
                continue;
            }
            let tokens = &mut entry.request.output_token_ids;
            tokens.extend_from_slice(&output.new_token_ids);
            if entry.has_prompt_logprobs {
                output.new_prompt_logprobs = None;
            }
            entry.has_prompt_logprobs |= output.new_prompt_logprobs.is_some();
        }
        !step.outputs.is_empty()
    }

    /// Nobody waits for this one any more, nor is it suspected.
    fn clear(&mut self, request_id: &str) {
        self.probation.remove(request_id);
        self.overdue.remove(request_id);
        if self.overdue.is_empty() && self.is_open() {
            self.patience = FIRST_PATIENCE;
        }
    }

    /// Who is to be sent at this time. They count as sent.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Vec<EngineCoreRequest> {
        if now.saturating_duration_since(self.probation_began) >= self.patience {
            self.overdue.extend(self.probation.drain());
        }
        while self.probation.is_empty() {
            let Some(group) = self.groups.pop_front() else {
                return self.send(|entry| !entry.sent);
            };
            let alive = group
                .into_iter()
                .filter(|id| self.requests.contains_key(id));
            self.probation = alive.collect();
            self.probation_began = now;
            let probation = self.probation.clone();
            let requests = self.send(|e| !e.sent && probation.contains(&e.request.request_id));
            if !requests.is_empty() {
                return requests;
            }
            // Nobody of this group is left.
            self.probation.clear();
        }
        Vec::new()
    }

    fn send(&mut self, who: impl Fn(&Entry) -> bool) -> Vec<EngineCoreRequest> {
        let mut chosen: Vec<&mut Entry> = self.requests.values_mut().filter(|e| who(e)).collect();
        chosen.sort_by_key(|entry| entry.number);
        chosen
            .into_iter()
            .map(|entry| {
                entry.sent = true;
                entry.request.clone()
            })
            .collect()
    }

    /// The core has died. `may_blame` says that nobody else's requests were in it.
    pub(super) fn core_died(&mut self, may_blame: bool) -> Died {
        let mut probation = std::mem::take(&mut self.probation);
        if !self.overdue.is_empty() {
            probation.extend(self.overdue.drain());
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
        }
        let in_core: Vec<&Entry> = self.requests.values().filter(|e| e.sent).collect();
        let alone = in_core.len() == 1;
        let mut suspects: Vec<(u64, String)> = in_core
            .into_iter()
            .map(|entry| (entry.number, entry.request.request_id.clone()))
            .filter(|(_, id)| probation.is_empty() || probation.contains(id))
            .collect();
        suspects.sort();
        let suspects: Vec<String> = suspects.into_iter().map(|(_, id)| id).collect();
        let narrowed = self.last_suspects.is_some_and(|last| suspects.len() < last);
        self.last_suspects = Some(suspects.len());
        for entry in self.requests.values_mut() {
            // Once let in, for ever: the next core may be the one after the next.
            entry.request.is_replay |= std::mem::take(&mut entry.sent);
        }
        // Halves of earlier deaths come as one: their times don't add up.
        let earlier: Vec<String> = self.groups.drain(..).flatten().collect();
        if !earlier.is_empty() {
            self.groups.push_back(earlier);
        }
        let mut failed = Vec::new();
        if let [only] = suspects.as_slice()
            && alone
            && may_blame
            && self
                .requests
                .get(only)
                .is_some_and(|e| e.num_suspicions > 0)
        {
            self.requests.remove(only);
            failed.push(only.clone());
        } else {
            for id in &suspects {
                if let Some(entry) = self.requests.get_mut(id) {
                    entry.num_suspicions = entry.num_suspicions.saturating_add(1);
                }
            }
            let (first, second) = suspects.split_at(suspects.len().div_ceil(2));
            for half in [second, first] {
                if !half.is_empty() {
                    self.groups.push_front(half.to_vec());
                }
            }
        }
        Died {
            narrowed: narrowed || !failed.is_empty(),
            suspects,
            failed,
        }
    }
}

#[cfg(test)]
mod tests;
