//! Random nodes, as trees that can be printed.

use proptest::prelude::*;

use super::super::node::{Kinds, Members, NodeId};
use super::super::programs::Programs;
use super::super::value::Value;
use crate::lexical::Lexicon;

/// A node as a tree.
#[derive(Debug, Clone)]
pub(super) enum Spec {
    Kinds(u8),
    Constant(&'static str),
    /// Strings of such characters, at least so many.
    Text(&'static str, u32),
    AllOf(Vec<Spec>),
    AnyOf(Vec<Spec>),
    OneOf(Vec<Spec>),
    Not(Box<Spec>),
    Items(Vec<Spec>, Box<Spec>),
    MinItems(u32),
    Contains(Box<Spec>, u32),
    Unique,
    /// Named, by the first letter of the key, all others.
    Members(Vec<(&'static str, Spec)>, Vec<(char, Spec)>, Box<Spec>),
    Has(&'static str),
    MinProperties(u32),
    /// The whole.
    Root,
}

pub(super) const NAMES: [&str; 4] = ["a", "b", "ab", "c"];
pub(super) const CONSTANTS: [&str; 10] = [
    "null",
    "true",
    "1",
    "1.0",
    "2",
    "\"a\"",
    "\"b\"",
    "[1]",
    "[]",
    "{\"a\":1}",
];

impl Spec {
    pub(super) fn node(&self, l: &mut Lexicon, p: &mut Programs, root: NodeId) -> NodeId {
        let list = |list: &[Self], l: &mut Lexicon, p: &mut Programs| {
            list.iter()
                .map(|spec| spec.node(l, p, root))
                .collect::<Vec<_>>()
        };
        match self {
            Self::Kinds(bits) => p.nodes().kinds(Kinds(*bits)),
            Self::Constant(text) => {
                let value = Value::parse(text, 10).unwrap();
                p.nodes().constant(l, &value).unwrap()
            }
            Self::Text(chars, min) => {
                let set = crate::lexical::ByteSet::from_iter(chars.bytes());
                let class = l.class(set);
                let body = l.repeat(class, *min, crate::lexical::UNBOUNDED);
                let language = l.json_quoted(body);
                p.nodes().string(language)
            }
            Self::AllOf(specs) => {
                let specs = list(specs, l, p);
                p.nodes().all_of(&specs)
            }
            Self::AnyOf(specs) => {
                let specs = list(specs, l, p);
                p.nodes().any_of(&specs)
            }
            Self::OneOf(specs) => {
                let specs = list(specs, l, p);
                p.nodes().one_of(&specs)
            }
            Self::Not(spec) => {
                let spec = spec.node(l, p, root);
                p.nodes().not(spec)
            }
            Self::Items(prefix, rest) => {
                let prefix = list(prefix, l, p);
                let rest = rest.node(l, p, root);
                p.nodes().items(prefix, rest)
            }
            Self::MinItems(min) => p.nodes().min_items(*min),
            Self::Contains(spec, min) => {
                let spec = spec.node(l, p, root);
                p.nodes().contains(spec, *min)
            }
            Self::Unique => p.nodes().unique_items(),
            Self::Members(named, patterns, additional) => {
                let named: Vec<_> = named
                    .iter()
                    .map(|(name, spec)| ((*name).into(), spec.node(l, p, root)))
                    .collect();
                let mut languages = Vec::new();
                for (first, spec) in patterns {
                    let spec = spec.node(l, p, root);
                    let head = l.literal(first.to_string().as_bytes());
                    let char = l.json_constrained_char();
                    let tail = l.star(char);
                    let body = l.concat(head, tail);
                    languages.push((l.json_quoted(body), spec));
                }
                let additional = additional.node(l, p, root);
                p.nodes().members(Members {
                    named: named.into(),
                    patterns: languages.into(),
                    additional,
                })
            }
            Self::Has(name) => p.nodes().has(name),
            Self::MinProperties(min) => p.nodes().min_properties(*min),
            Self::Root => root,
        }
    }
}

pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let name = || prop::sample::select(&NAMES[..]);
    let leaf = prop_oneof![
        3 => any::<u8>().prop_map(|bits| Spec::Kinds(bits & 127)),
        2 => prop::sample::select(vec![Spec::Kinds(127), Spec::Kinds(0)]),
        3 => prop::sample::select(&CONSTANTS[..]).prop_map(Spec::Constant),
        1 => (prop::sample::select(vec!["a", "b", "ab"]), 0..3_u32)
            .prop_map(|(chars, min)| Spec::Text(chars, min)),
        1 => (1..3_u32).prop_map(Spec::MinItems),
        1 => Just(Spec::Unique),
        2 => name().prop_map(Spec::Has),
        1 => (1..3_u32).prop_map(Spec::MinProperties),
        1 => Just(Spec::Root),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..4);
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            3 => list().prop_map(Spec::AllOf),
            2 => list().prop_map(Spec::AnyOf),
            2 => list().prop_map(Spec::OneOf),
            2 => boxed().prop_map(Spec::Not),
            2 => (prop::collection::vec(inner.clone(), 0..3), boxed())
                .prop_map(|(prefix, rest)| Spec::Items(prefix, rest)),
            1 => (boxed(), 1..3_u32).prop_map(|(item, min)| Spec::Contains(item, min)),
            4 => (
                prop::collection::vec((name(), inner.clone()), 0..4),
                prop::collection::vec((prop::sample::select(vec!['a', 'b', 'x']), inner.clone()), 0..2),
                boxed()
            )
                .prop_map(|(mut named, patterns, additional)| {
                    let mut seen = Vec::new();
                    named.retain(|(name, _)| {
                        let is_new = !seen.contains(name);
                        seen.push(*name);
                        is_new
                    });
                    Spec::Members(named, patterns, additional)
                }),
        ]
    })
}

/// Values over few names and constants.
pub(super) fn value() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null", "true", "false", "1", "1.0", "2", "3.50", "\"\"", "\"a\"", "\"b\"", "\"ab\"",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(
                (
                    prop::sample::select(vec!["a", "b", "ab", "c", "x", "xx"]),
                    inner
                ),
                0..4
            )
            .prop_map(|members| {
                let mut seen = Vec::new();
                let members: Vec<String> = members
                    .into_iter()
                    .filter(|(key, _)| {
                        let is_new = !seen.contains(key);
                        seen.push(*key);
                        is_new
                    })
                    .map(|(key, value)| format!("\"{key}\":{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}
