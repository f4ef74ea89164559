//! Which of several cores gets a request.
//!
//! The one where it costs least: what has to be computed of its prompt, and [`REQUEST_TOKENS`] for each request that is
//! there. So the longest prefix match wins as long as it saves more than waiting costs, and a few words that all prompts
//! begin with leave no core idle. Of equals the one with the fewest requests, then with the fewest blocks that were sent
//! there. The router remembers the hashes of the prompt blocks that it sent to each core, as many as the core's cache has
//! blocks. A core with more than [`MAX_EXTRA_REQUESTS`] requests above the least loaded one is no candidate. So a long prefix
//! that all requests share is soon in every core's cache, where it decides nothing any more.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::{EngineCoreRequest, Shared};

/// Requests that a core may have more than the one with the fewest, and still be preferred for its cache.
const MAX_EXTRA_REQUESTS: usize = 4;

/// A request in flight weighs as much as so many tokens of a prompt that have to be computed: four blocks.
const REQUEST_TOKENS: usize = 64;

/// Most blocks that are remembered of a core: some MiB.
const MAX_RECENT_BLOCKS: usize = 1 << 18;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Router {
    block_size: usize,
    /// Of each core.
    recent: Vec<RecentBlocks>,
}

impl Router {
    /// A router between cores with blocks of so many tokens and each so many of them.
    pub(super) fn new(block_size: u32, num_blocks: impl Iterator<Item = u32>) -> Self {
        let recent = num_blocks.map(|num_blocks| RecentBlocks::new(num_blocks as usize));
        Self {
            block_size: (block_size as usize).max(1),
            recent: recent.collect(),
        }
    }

    /// Begins to route requests that come together. `loads` are the cores' numbers of requests, `None` of a
    /// core that takes none now.
    pub(super) fn routing(&mut self, loads: Vec<Option<usize>>) -> Routing<'_> {
        Routing {
            router: self,
            loads,
            last_prompt: None,
        }
    }

    /// Blocks that a core was sent, as far as they are remembered.
    fn num_blocks(&self, core: usize) -> usize {
        self.recent.get(core).map_or(0, |recent| recent.sent.len())
    }

    /// Forgets what a core had in its prefix cache.
    pub(super) fn forget(&mut self, core: usize) {
        if let Some(recent) = self.recent.get_mut(core) {
            recent.clear();
        }
    }
}

/// Requests that are routed together: siblings share the work that a prompt takes.
pub(super) struct Routing<'a> {
    router: &'a mut Router,
    loads: Vec<Option<usize>>,
    last_prompt: Option<Prompt>,
}

/// A prompt's blocks.
struct Prompt {
    token_ids: Shared<[u32]>,
    cache_salt: Option<String>,
    hashes: Vec<u64>,
    /// Blocks that each core has of it, from its beginning.
    matches: Vec<usize>,
}

impl Routing<'_> {
    /// The core that a request goes to, by its number; the request counts as its load from now on. `None`
    /// where no core takes any.
    pub(super) fn route(&mut self, request: &EngineCoreRequest) -> Option<usize> {
        let fewest = self.loads.iter().flatten().min().copied()?;
        let mut prompt = self.prompt(request);
        let candidates = self.loads.iter().zip(&prompt.matches).enumerate();
        let best = candidates
            .filter_map(|(core, (load, matched))| Some((core, (*load)?, *matched)))
            .filter(|(_, load, _)| *load <= fewest.saturating_add(MAX_EXTRA_REQUESTS))
            .min_by_key(|(core, load, matched)| {
                let to_compute = (prompt.hashes.len() - matched) * self.router.block_size;
                let cost = to_compute.saturating_add(load.saturating_mul(REQUEST_TOKENS));
                (cost, *load, self.router.num_blocks(*core))
            });
        let (core, _, matched) = best?;
        if let Some(load) = self.loads.get_mut(core).and_then(Option::as_mut) {
            *load += 1;
        }
        let num_blocks = prompt.hashes.len();
        if matched < num_blocks
            && let Some(recent) = self.router.recent.get_mut(core)
        {
            recent.add(&prompt.hashes);
            if let Some(matched) = prompt.matches.get_mut(core) {
                *matched = num_blocks;
            }
        }
        self.last_prompt = Some(prompt);
        Some(core)
    }

    /// The blocks of a request's prompt, and what each core has of them.
    fn prompt(&mut self, request: &EngineCoreRequest) -> Prompt {
        if let Some(last) = self.last_prompt.take()
            && last.token_ids.is_same(&request.prompt_token_ids)
            && last.cache_salt == request.cache_salt
        {
            return last;
        }
        let hashes = block_hashes(request, self.router.block_size);
        let matches = self.router.recent.iter();
        Prompt {
            matches: matches.map(|recent| recent.num_matches(&hashes)).collect(),
            hashes,
            token_ids: request.prompt_token_ids.clone(),
            cache_salt: request.cache_salt.clone(),
        }
    }
}

/// A hash of each full block of a prompt and of all blocks before it. These are not the core's own hashes: equal
/// hashes of different prompts would cost no more than a wrong guess.
fn block_hashes(request: &EngineCoreRequest, block_size: usize) -> Vec<u64> {
    let mut parent = 0;
    let blocks = request.prompt_token_ids.chunks_exact(block_size);
    blocks
        .map(|block| {
            let mut hasher = DefaultHasher::new();
            (parent, block, &request.cache_salt).hash(&mut hasher);
            parent = hasher.finish();
            parent
        })
        .collect()
}

/// The blocks that a core was sent last, as many as its cache has.
#[derive(Debug)]
struct RecentBlocks {
    capacity: usize,
    /// Oldest first; a block that was sent again stands here again.
    sent: VecDeque<u64>,
    /// How often each stands in `sent`.
    counts: HashMap<u64, u32>,
}

impl RecentBlocks {
    fn new(num_blocks: usize) -> Self {
        Self {
            capacity: num_blocks.min(MAX_RECENT_BLOCKS),
            sent: VecDeque::new(),
            counts: HashMap::new(),
        }
    }

    fn num_matches(&self, hashes: &[u64]) -> usize {
        let known = hashes
            .iter()
            .take_while(|hash| self.counts.contains_key(hash));
        known.count()
    }

    fn add(&mut self, hashes: &[u64]) {
        for &hash in hashes.iter().take(self.capacity) {
            self.sent.push_back(hash);
            *self.counts.entry(hash).or_default() += 1;
        }
        while self.sent.len() > self.capacity {
            let Some(oldest) = self.sent.pop_front() else {
                return;
            };
            if let Some(count) = self.counts.get_mut(&oldest) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&oldest);
                }
            }
        }
    }

    fn clear(&mut self) {
        self.sent.clear();
        self.counts.clear();
    }
}

#[cfg(test)]
mod tests;
