//! Small random Lark grammars that may be read in many ways: nullable cycles, left recursion, counts of
//! what is empty, terminals that overlap.

/// A small generator of random numbers: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }

    /// One of some texts.
    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.get(self.below(of.len())).copied().unwrap_or_default()
    }
}

const TERMINALS: [&str; 12] = [
    "/[a-z]+/",
    "/[ab]+/",
    "/\\w+/",
    "/(.|\\n)*/",
    "/.+/",
    "/[^\"]*/",
    "/a*/",
    "/[ \\t\\n]+/",
    "\"if\"",
    "/[0-9]+/",
    "/[a-z ]{1,5}/",
    "/b?a+/",
];

const ATOMS: [&str; 9] = [
    "\"a\"", "\"ab\"", "\"\"", "\"(\"", "\")\"", "\" \"", "/a+/", "/[ab ]/", "\"*\"",
];

/// A grammar; the same numbers, the same grammar.
pub fn random_lark(random: &mut Random) -> String {
    let rules = ["start", "x", "y", "z"];
    let rules = &rules[..1 + random.below(rules.len())];
    let terminals = ["T1", "T2", "T3"];
    let terminals = &terminals[..1 + random.below(terminals.len())];
    let names: Vec<&str> = rules.iter().chain(terminals).copied().collect();
    let mut lines = Vec::new();
    for rule in rules {
        let depth = 1 + random.below(3) as u32;
        // A way that ends, so that most grammars have texts.
        let end = match random.below(3) {
            0 => " | \"\"".to_owned(),
            _ => format!(" | {}", random.pick(terminals)),
        };
        let body = expression(random, &names, depth);
        let end = if random.below(2) == 0 {
            end
        } else {
            String::new()
        };
        lines.push(format!("{rule}: {body}{end}"));
    }
    for terminal in terminals {
        lines.push(format!("{terminal}: {}", random.pick(&TERMINALS)));
    }
    lines.join("\n")
}

fn expression(random: &mut Random, names: &[&str], depth: u32) -> String {
    if depth == 0 {
        return match random.below(3) {
            0 => random.pick(&ATOMS).to_owned(),
            _ => random.pick(names).to_owned(),
        };
    }
    let inner = |random: &mut Random| expression(random, names, depth - 1);
    match random.below(7) {
        0..=2 => {
            let parts: Vec<String> = (0..2 + random.below(2)).map(|_| inner(random)).collect();
            format!("({})", parts.join(" "))
        }
        3 | 4 => {
            let parts: Vec<String> = (0..2 + random.below(2)).map(|_| inner(random)).collect();
            format!("({})", parts.join(" | "))
        }
        _ => {
            let counts = ["?", "*", "+", "~2", "~0..2", "~1..3", "~3..4"];
            let count = random.pick(&counts);
            format!("({}){count}", inner(random))
        }
    }
}
