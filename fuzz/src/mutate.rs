//! New inputs from old ones: by their parts, and by their bytes.

use crate::{Random, Target};

/// The longest input that is kept to start from.
const MAX_KEPT_BYTES: usize = 16 << 10;

/// Numbers in files at which something may go wrong.
const BINARY_NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    1 << 20,
    1 << 30,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Numbers at which something may go wrong.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "63",
    "64",
    "65",
    "127",
    "128",
    "255",
    "65536",
    "2147483647",
    "4294967296",
];

/// Makes inputs for a target out of those that are known.
pub struct Mutator {
    target: Target,
    known: Vec<Vec<u8>>,
    num_seeds: usize,
}

impl Mutator {
    /// From some inputs.
    pub fn new(target: Target, known: Vec<Vec<u8>>) -> Self {
        let num_seeds = known.len();
        Self {
            target,
            known,
            num_seeds,
        }
    }

    /// One more input to start from. The latest ones stay, with all seeds.
    pub fn add(&mut self, input: Vec<u8>) {
        if input.len() > MAX_KEPT_BYTES {
            return;
        }
        const MAX_KNOWN: usize = 4000;
        if self.known.len() > self.num_seeds + MAX_KNOWN {
            self.known.remove(self.num_seeds);
        }
        self.known.push(input);
    }

    /// A new input.
    pub fn next(&self, random: &mut Random) -> Vec<u8> {
        let mut input = match self.known.is_empty() || random.once_in(4) {
            true => self.target.generate(random),
            false => random.pick(&self.known).clone(),
        };
        for _ in 0..random.below(5) {
            input = match random.below(6) {
                0 => mutate_bytes(input, random),
                1..=3 if self.target.is_binary() => mutate_numbers(input, random),
                _ => self.mutate_parts(&input, random),
            };
        }
        input.truncate(self.target.max_bytes());
        input
    }

    /// Changes an input by its words, brackets and numbers.
    fn mutate_parts(&self, input: &[u8], random: &mut Random) -> Vec<u8> {
        let mut parts = parts(input);
        if parts.is_empty() {
            return self.target.generate(random);
        }
        let at = random.below(parts.len());
        let end = (at + 1 + random.below(6)).min(parts.len());
        let other = match self.known.is_empty() {
            true => self.target.generate(random),
            false => random.pick(&self.known).clone(),
        };
        let others = self::parts(&other);
        match random.below(9) {
            0 => drop(parts.drain(at..end)),
            1 => {
                let copied: Vec<&[u8]> = parts[at..end].to_vec();
                let to = random.below(parts.len() + 1);
                parts.splice(to..to, copied);
            }
            2 => {
                let with = random.below(parts.len());
                parts.swap(at, with);
            }
            3 | 4 if !others.is_empty() => {
                let from = random.below(others.len());
                let until = (from + 1 + random.below(8)).min(others.len());
                let replaced = if random.once_in(2) { at..end } else { at..at };
                parts.splice(replaced, others[from..until].iter().copied());
            }
            5 if !others.is_empty() => {
                // A whole group in place of one.
                let (at, from) = (random.below(parts.len()), random.below(others.len()));
                let (end, until) = (group_end(&parts, at), group_end(&others, from));
                parts.splice(at..end, others[from..until].iter().copied());
            }
            6 => {
                let numbers = |part: &&[u8]| part[0].is_ascii_digit();
                let places: Vec<usize> =
                    (0..parts.len()).filter(|&at| numbers(&parts[at])).collect();
                let at = places
                    .get(random.below(places.len()))
                    .copied()
                    .unwrap_or(at);
                parts[at] = random.pick(&NUMBERS).as_bytes();
            }
            7 => {
                let within = parts[random.below(parts.len())];
                parts[at] = within;
            }
            _ => {
                let end = group_end(&parts, at);
                let group: Vec<&[u8]> = parts[at..end].to_vec();
                for _ in 0..random.below(4) {
                    parts.splice(at..at, group.iter().copied());
                }
            }
        }
        parts.concat()
    }
}

fn mutate_bytes(mut input: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const BYTES: &[u8] = b"()[]{}|*+?\"'\\/.,:;<>=~&!^$-_#%@ \n\tab019\x00\x7f\xc3\xa9\xff";
    let at = random.below(input.len() + 1);
    match random.below(4) {
        0 => input.insert(at, *random.pick(BYTES)),
        1 if at < input.len() => drop(input.remove(at)),
        2 if at < input.len() => input[at] = *random.pick(BYTES),
        3 if at < input.len() => input[at] ^= 1 << random.below(8),
        _ => input.truncate(at),
    }
    input
}

/// Writes a number of 1, 2, 4 or 8 bytes, as files have them.
fn mutate_numbers(mut input: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let width = 1 << random.below(4);
    let Some(last) = input.len().checked_sub(width) else {
        return input;
    };
    // What stands at the start decides most.
    let places = if random.once_in(2) { 64 } else { last + 1 };
    let at = random.below(places).min(last);
    let mut old = [0; 8];
    old[..width].copy_from_slice(&input[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match random.below(4) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        _ => *random.pick(&BINARY_NUMBERS),
    };
    input[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    input
}

/// Words, numbers, runs of white space, and all else by itself.
fn parts(input: &[u8]) -> Vec<&[u8]> {
    let kind = |byte: u8| match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'-' | 0x80.. => 1,
        b' ' | b'\n' | b'\t' => 2,
        _ => 3,
    };
    let together = |&a: &u8, &b: &u8| kind(a) == kind(b) && kind(a) != 3;
    input.chunk_by(together).collect()
}

/// Where the group ends that begins at a part: with its bracket, or with the part itself.
fn group_end(parts: &[&[u8]], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, part) in parts.iter().enumerate().skip(start) {
        match part[0] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    start + 1
}
