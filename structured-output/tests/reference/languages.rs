//! Languages as sets of short texts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A set of texts, up to some length.
pub(crate) type Texts = BTreeSet<Vec<u8>>;

/// All texts of a, b and c up to a length.
pub(crate) fn texts(max: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..max {
        let to = all.len();
        for at in from..to {
            for byte in *b"abc" {
                let longer = [&all[at][..], &[byte]].concat();
                all.push(longer);
            }
        }
        from = to;
    }
    all
}

/// What stands after a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expr {
    Literal(&'static str),
    /// One of some letters.
    Class(&'static str),
    Rule(usize),
    Terminal(usize),
    Concat(Vec<Expr>),
    Alternate(Vec<Expr>),
    Repeat(Box<Expr>, u32, Option<u32>),
    And(Vec<Expr>),
    Not(Box<Expr>),
}

impl Expr {
    pub(crate) fn literal(text: &'static str) -> Self {
        Self::Literal(text)
    }

    pub(crate) fn class(letters: &'static str) -> Self {
        Self::Class(letters)
    }

    /// In Lark, with names for terminals.
    pub(crate) fn written(&self, terminal: &dyn Fn(usize) -> String) -> String {
        self.write(terminal, &|class| format!("/[{class}]/"))
    }

    fn write(&self, terminal: &dyn Fn(usize) -> String, class: &dyn Fn(&str) -> String) -> String {
        let all = |items: &[Self], between: &str| {
            let items: Vec<String> = items
                .iter()
                .map(|item| item.write(terminal, class))
                .collect();
            format!("({})", items.join(between))
        };
        match self {
            Self::Literal(text) => format!("\"{text}\""),
            Self::Class(letters) => class(letters),
            Self::Rule(0) => "again".to_owned(),
            Self::Rule(rule) => format!("r{rule}"),
            Self::Terminal(id) => terminal(*id),
            Self::Concat(items) => all(items, " "),
            Self::Alternate(items) => all(items, " | "),
            Self::And(items) => all(items, " & "),
            Self::Not(inner) => format!("(~{})", all(std::slice::from_ref(inner), "")),
            Self::Repeat(inner, min, max) => {
                let inner = all(std::slice::from_ref(inner), "");
                let counts = match (min, max) {
                    (0, Some(1)) => "?".to_owned(),
                    (0, None) => "*".to_owned(),
                    (1, None) => "+".to_owned(),
                    (min, None) => format!("{{{min},}}"),
                    (min, Some(max)) if min == max => format!("{{{min}}}"),
                    (min, Some(max)) => format!("{{{min},{max}}}"),
                };
                format!("({inner}{counts})")
            }
        }
    }
}

/// A grammar: terminals, which know those before them, and rules, of which the first is the start.
#[derive(Debug, Clone)]
pub(crate) struct Grammar {
    pub(crate) terminals: Vec<Expr>,
    pub(crate) rules: Vec<Expr>,
    /// Whether letters c may follow each terminal.
    pub(crate) ignores: bool,
}

impl Grammar {
    /// In Lark.
    pub(crate) fn lark(&self) -> String {
        let terminal = |id: usize| format!("T{id}");
        let mut source = "start: again\n".to_owned();
        for (id, body) in self.rules.iter().enumerate() {
            let name = Expr::Rule(id).written(&terminal);
            writeln!(source, "{name}: {}", body.written(&terminal)).unwrap();
        }
        for (id, body) in self.terminals.iter().enumerate() {
            writeln!(source, "T{id}: {}", body.written(&terminal)).unwrap();
        }
        if self.ignores {
            source.push_str("%ignore /c+/\n");
        }
        source
    }

    /// In EBNF; without terminals.
    pub(crate) fn ebnf(&self) -> String {
        let none = |_| String::new();
        let class = |letters: &str| match letters {
            // Over three letters, the other way to say it.
            "bc" => "[^a]".to_owned(),
            letters => format!("[{letters}]"),
        };
        let mut source = "root ::= again\n".to_owned();
        for (id, body) in self.rules.iter().enumerate() {
            let name = Expr::Rule(id).write(&none, &class);
            writeln!(source, "{name} ::= {}", body.write(&none, &class)).unwrap();
        }
        source
    }

    /// The texts up to a length.
    pub(crate) fn texts(&self, max: usize) -> Texts {
        let mut rules = vec![Texts::new(); self.rules.len()];
        loop {
            let more: Vec<Texts> = self
                .rules
                .iter()
                .map(|body| self.texts_of(body, &rules, max))
                .collect();
            if more == rules {
                return rules.swap_remove(0);
            }
            rules = more;
        }
    }

    /// The texts of a rule's expression, where those of rules are known.
    pub(crate) fn texts_of(&self, expr: &Expr, rules: &[Texts], max: usize) -> Texts {
        let is_terminal = matches!(expr, Expr::Literal(_) | Expr::Class(_) | Expr::Terminal(_));
        let of = |expr: &Expr| self.texts_of(expr, rules, max);
        let found = match expr {
            Expr::Terminal(id) => self.of_terminal(&self.terminals[*id], max),
            Expr::Rule(rule) => rules[*rule].clone(),
            other => set(other, &of, max),
        };
        match is_terminal && self.ignores {
            true => {
                let ignored: Texts = (0..=max).map(|count| vec![b'c'; count]).collect();
                concat(&found, &ignored, max)
            }
            false => found,
        }
    }

    /// The texts of a terminal's expression, within which nothing is ignored.
    fn of_terminal(&self, expr: &Expr, max: usize) -> Texts {
        match expr {
            Expr::Terminal(id) => self.of_terminal(&self.terminals[*id], max),
            other => set(other, &|expr| self.of_terminal(expr, max), max),
        }
    }
}

/// What an operator means, where its operands are known.
fn set(expr: &Expr, of: &dyn Fn(&Expr) -> Texts, max: usize) -> Texts {
    let mut found: Texts = match expr {
        Expr::Literal(text) => [text.as_bytes().to_vec()].into(),
        Expr::Class(letters) => letters.bytes().map(|byte| vec![byte]).collect(),
        Expr::Concat(items) => {
            let empty: Texts = [Vec::new()].into();
            items
                .iter()
                .fold(empty, |before, item| concat(&before, &of(item), max))
        }
        Expr::Alternate(items) => items.iter().flat_map(of).collect(),
        Expr::And(items) => {
            let all = items.iter().map(of);
            all.reduce(|a, b| &a & &b).unwrap_or_default()
        }
        Expr::Not(inner) => {
            let without = of(inner);
            texts(max)
                .into_iter()
                .filter(|text| !without.contains(text))
                .collect()
        }
        Expr::Repeat(inner, min, most) => {
            let one = of(inner);
            let mut all = Texts::new();
            let mut power: Texts = [Vec::new()].into();
            // After as many as a text has letters, only the empty one is added.
            for count in 0..=most.unwrap_or(*min + max as u32) {
                if count >= *min {
                    all.extend(power.iter().cloned());
                }
                power = concat(&power, &one, max);
            }
            all
        }
        Expr::Rule(_) | Expr::Terminal(_) => unreachable!("names are looked up before"),
    };
    found.retain(|text| text.len() <= max);
    found
}

fn concat(first: &Texts, second: &Texts, max: usize) -> Texts {
    let mut all = Texts::new();
    for a in first {
        for b in second.iter().filter(|b| a.len() + b.len() <= max) {
            all.insert([&a[..], b].concat());
        }
    }
    all
}
