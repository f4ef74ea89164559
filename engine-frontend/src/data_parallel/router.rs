//! Which of several cores gets a request.
//!
//! The one where it costs least: what has to be computed of its prompt, and [`REQUEST_TOKENS`] for each request that is
//! there. So the longest prefix match wins as long as it saves more than waiting costs, and a few words that all prompts
//! begin with leave no core idle. Of equals the one with the fewest requests, then the one that was chosen longest ago.
//!
//! A block that was asked for before costs a core that lacks it less, by how often: who computes it once more has it for
//! all who ask later. So a long prefix that many requests share is soon in every core's cache, where it decides nothing
//! any more, and one that a single conversation needs stays where it is.
//!
//! The router remembers the hashes of the prompt blocks that it sent to each core last, as many as the core's cache has
//! blocks. A core with more than [`MAX_EXTRA_REQUESTS`] requests above the least loaded one is no candidate.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::{EngineCoreRequest, Shared};

/// Requests that a core may have more than the one with the fewest, and still be preferred for its cache.
const MAX_EXTRA_REQUESTS: usize = 4;

/// A request in flight weighs as much as so many tokens of a prompt that have to be computed: four blocks.
const REQUEST_TOKENS: usize = 64;

/// Most blocks that are remembered of a core: some 20 MiB.
const MAX_RECENT_BLOCKS: usize = 1 << 18;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Router {
    block_size: usize,
    cores: Vec<Core>,
    /// Requests that were routed.
    num_routed: u64,
}

/// The blocks that a core was sent, and when it was chosen last.
#[derive(Debug)]
struct Core {
    recent: RecentBlocks,
    /// Which request was the last that it got; 0 is none.
    last_routed: u64,
}

impl Router {
    /// A router between cores with blocks of so many tokens and each so many of them.
    pub(super) fn new(block_size: u32, num_blocks: impl Iterator<Item = u32>) -> Self {
        let cores = num_blocks.map(|num_blocks| Core {
            recent: RecentBlocks::new(num_blocks as usize),
            last_routed: 0,
        });
        Self {
            block_size: (block_size as usize).max(1),
            cores: cores.collect(),
            num_routed: 0,
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

    /// Forgets what a core had in its prefix cache.
    pub(super) fn forget(&mut self, core: usize) {
        if let Some(core) = self.cores.get_mut(core) {
            core.recent.clear();
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
    /// By the number of its blocks that a core has: what the core pays for the others, in tokens.
    costs: Vec<f64>,
    /// Whether it counts as asked for.
    is_counted: bool,
}

impl Routing<'_> {
    /// The core that a request goes to, by its number; the request counts as its load from now on. `None`
    /// where no core takes any.
    pub(super) fn route(&mut self, request: &EngineCoreRequest) -> Option<usize> {
        let fewest = self.loads.iter().flatten().min().copied()?;
        let mut prompt = self.prompt(request);
        let num_blocks = prompt.hashes.len();
        let cores = self.router.cores.iter().zip(&self.loads);
        let candidates = cores.zip(&prompt.matches).enumerate();
        let best = candidates
            .filter_map(|(index, ((core, load), matched))| Some((index, core, (*load)?, *matched)))
            .filter(|(_, _, load, _)| *load <= fewest.saturating_add(MAX_EXTRA_REQUESTS))
            .map(|(index, core, load, matched)| {
                let to_compute = prompt.costs.get(matched).copied().unwrap_or_default();
                let cost = to_compute + (load * REQUEST_TOKENS) as f64;
                (index, matched, (cost, load, core.last_routed))
            })
            .min_by(|(_, _, one), (_, _, other)| {
                one.0
                    .total_cmp(&other.0)
                    .then((one.1, one.2).cmp(&(other.1, other.2)))
            });
        let (index, matched, _) = best?;
        if let Some(load) = self.loads.get_mut(index).and_then(Option::as_mut) {
            *load += 1;
        }
        self.router.num_routed += 1;
        if let Some(core) = self.router.cores.get_mut(index) {
            core.last_routed = self.router.num_routed;
            if !prompt.is_counted || matched < num_blocks {
                core.recent.add(&prompt.hashes);
            }
        }
        if let Some(matched) = prompt.matches.get_mut(index) {
            *matched = num_blocks;
        }
        prompt.is_counted = true;
        self.last_prompt = Some(prompt);
        Some(index)
    }

    /// The blocks of a request's prompt, and what each core has of them.
    fn prompt(&mut self, request: &EngineCoreRequest) -> Prompt {
        if let Some(last) = self.last_prompt.take()
            && last.token_ids.is_same(&request.prompt_token_ids)
            && last.cache_salt == request.cache_salt
        {
            return last;
        }
        let Router {
            block_size, cores, ..
        } = &*self.router;
        let hashes = block_hashes(request, *block_size);
        let cost = |hash: &u64| {
            let times: u32 = cores.iter().map(|core| core.recent.num_times(*hash)).sum();
            *block_size as f64 / f64::from(times.saturating_add(1))
        };
        let mut costs = vec![0.0; hashes.len() + 1];
        let mut sum = 0.0;
        for (from, hash) in costs.iter_mut().zip(&hashes).rev() {
            sum += cost(hash);
            *from = sum;
        }
        let matches = cores.iter().map(|core| core.recent.num_matches(&hashes));
        Prompt {
            matches: matches.collect(),
            costs,
            hashes,
            token_ids: request.prompt_token_ids.clone(),
            cache_salt: request.cache_salt.clone(),
            is_counted: false,
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
    blocks: HashMap<u64, RecentBlock>,
    /// Their hashes by when they were sent last.
    by_age: BTreeMap<u64, u64>,
    /// Blocks that were sent, each time that they were.
    num_sent: u64,
}

#[derive(Debug)]
struct RecentBlock {
    /// Its key in the order of age.
    age: u64,
    /// Prompts with it that were sent.
    times: u32,
}

impl RecentBlocks {
    fn new(num_blocks: usize) -> Self {
        Self {
            capacity: num_blocks.min(MAX_RECENT_BLOCKS),
            blocks: HashMap::new(),
            by_age: BTreeMap::new(),
            num_sent: 0,
        }
    }

    fn num_matches(&self, hashes: &[u64]) -> usize {
        let known = hashes
            .iter()
            .take_while(|hash| self.blocks.contains_key(hash));
        known.count()
    }

    /// How many prompts with this block were sent.
    fn num_times(&self, hash: u64) -> u32 {
        self.blocks.get(&hash).map_or(0, |block| block.times)
    }

    /// Takes a prompt's blocks. Its last ones are forgotten first, as in a core's cache: without those before them
    /// they are of no use.
    fn add(&mut self, hashes: &[u64]) {
        for &hash in hashes.iter().take(self.capacity).rev() {
            self.num_sent += 1;
            let age = self.num_sent;
            let block = self
                .blocks
                .entry(hash)
                .or_insert(RecentBlock { age, times: 0 });
            self.by_age.remove(&block.age);
            self.by_age.insert(age, hash);
            block.age = age;
            block.times = block.times.saturating_add(1);
        }
        while self.blocks.len() > self.capacity {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.blocks.remove(&oldest);
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.by_age.clear();
    }
}

#[cfg(test)]
mod tests;
