//! Languages that may be all that is read from a place of a grammar to the end of its rule: those worth a
//! look by `absorb`.

use hashbrown::HashMap;

use super::graph::{Graph, Label, NO_NODE, Node};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop, UNBOUNDED};

/// So many languages of a grammar are tried.
const MAX_TRIED: usize = 8;

/// A look for another text takes at most so many steps.
const MAX_STEPS: u64 = 4_000;

/// So many nodes are looked at for what else may be read,
const MAX_MET: usize = 32;

/// all together so many times as many as there are,
const MAX_TIMES: u64 = 4;

/// and so many languages, but for those of the first nodes.
const MAX_LOOKS: usize = 256;

/// A language with all texts over it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Texts {
    /// One or more.
    pub(super) plus: ExprId,
    /// None, too.
    pub(super) star: ExprId,
}

/// The languages of a graph's edges.
struct Languages {
    /// Each once, as they come.
    list: Vec<ExprId>,
    /// Their numbers, by edge of all nodes in their order; [`NO_LANGUAGE`] for other labels.
    of_edges: Vec<u32>,
    /// Where the edges of each node begin. One more at the end.
    firsts: Vec<usize>,
}

const NO_LANGUAGE: u32 = u32::MAX;

impl Languages {
    fn new(graph: &Graph, fuel: &mut Fuel) -> Result<Self, Stop> {
        let mut numbers: HashMap<ExprId, u32> = HashMap::new();
        let mut list = Vec::new();
        let mut of_edges = Vec::new();
        let mut firsts = vec![0];
        for node in &graph.nodes {
            fuel.burn(1 + node.edges.len() as u64)?;
            of_edges.extend(node.edges.iter().map(|&(label, _)| match label {
                Label::Text(expr) => *numbers.entry(expr).or_insert_with(|| {
                    list.push(expr);
                    list.len() as u32 - 1
                }),
                _ => NO_LANGUAGE,
            }));
            firsts.push(of_edges.len());
        }
        Ok(Self {
            list,
            of_edges,
            firsts,
        })
    }

    /// Those of a node's edges.
    fn of_node(&self, node: usize) -> &[u32] {
        &self.of_edges[self.firsts[node]..self.firsts[node + 1]]
    }
}

/// The languages among those of the edges, and among their alternatives, that repeat another one without
/// bound; some of them, if there are many. And for each language of an edge bits of those that it
/// [`covers`].
fn repeated_languages(
    languages: &Languages,
    lexicon: &mut Lexicon,
    fuel: &mut Fuel,
) -> Result<(Vec<Texts>, Vec<u8>), Stop> {
    let mut found: Vec<Texts> = Vec::new();
    for &expr in &languages.list {
        for expr in lexicon.alternatives(expr) {
            fuel.burn(1)?;
            if found.len() == MAX_TRIED {
                break;
            }
            let Some(body) = lexicon.repeated(expr) else {
                continue;
            };
            let texts = Texts {
                plus: lexicon.repeat(body, 1, UNBOUNDED),
                star: lexicon.star(body),
            };
            if !found.contains(&texts) {
                found.push(texts);
            }
        }
    }
    let covered = |&expr: &ExprId| {
        let covered = found.iter().map(|&texts| covers(lexicon, expr, texts));
        (0..)
            .zip(covered)
            .fold(0, |bits, (bit, covers)| bits | u8::from(covers) << bit)
    };
    let covered = languages.list.iter().map(covered).collect();
    Ok((found, covered))
}

/// Those languages of a graph that repeat another one without bound and may be all that is read from a
/// node to the end of its rule. Of others nothing is to be found by [`absorb`](super::absorb::absorb):
/// after each node with an edge for them something else may be read, as after numbers and white space in
/// most grammars, so that is so of all places too that lead to these nodes. Nor is there where these nodes
/// read the texts and nothing else already, and nothing leads to them without reading.
pub(super) fn texts_read_alone(
    graph: &Graph,
    lexicon: &mut Lexicon,
    fuel: &mut Fuel,
) -> Result<Vec<Texts>, Stop> {
    let languages = Languages::new(graph, fuel)?;
    let (texts, covered) = repeated_languages(&languages, lexicon, fuel)?;
    let mut kept = vec![false; texts.len()];
    let mut held = HashMap::new();
    let size = (graph.nodes.len() + languages.of_edges.len()) as u64;
    let mut steps_ahead = MAX_TIMES * size;
    let mut is_entered = None;
    for (id, node) in graph.nodes.iter().enumerate() {
        fuel.burn(1 + node.edges.len() as u64)?;
        let read = languages.of_node(id).iter();
        let read = read.filter(|language| **language != NO_LANGUAGE);
        let bits = read.fold(0, |bits, &language| bits | covered[language as usize]);
        for (bit, &texts) in texts.iter().enumerate() {
            if bits >> bit & 1 == 0 || kept[bit] {
                continue;
            }
            let mut is_held = |language: u32, is_ahead: bool, fuel: &mut Fuel| {
                if let Some(&known) = held.get(&(language, bit)) {
                    return Ok(known);
                }
                if is_ahead && held.len() >= MAX_LOOKS {
                    return Ok(true);
                }
                let expr = languages.list[language as usize];
                let is_held = is_held(lexicon, expr, texts, fuel)?;
                held.insert((language, bit), is_held);
                Ok(is_held)
            };
            kept[bit] = !reads_others(
                graph,
                &languages,
                id as u32,
                &mut is_held,
                &mut steps_ahead,
                fuel,
            )? && (!is_read_alone(graph, node, texts)
                || is_entered.get_or_insert_with(|| entered_silently(graph, lexicon))[id]);
        }
    }
    let kept = texts.into_iter().zip(kept).filter(|(_, kept)| *kept);
    Ok(kept.map(|(texts, _)| texts).collect())
}

/// Whether something may be read from a node, as far as its rule leads and in the rules that are called,
/// that isn't such a text; false where that isn't found soon.
fn reads_others(
    graph: &Graph,
    languages: &Languages,
    node: u32,
    is_held: &mut impl FnMut(u32, bool, &mut Fuel) -> Result<bool, Stop>,
    steps_ahead: &mut u64,
    fuel: &mut Fuel,
) -> Result<bool, Stop> {
    let mut met = vec![node];
    let mut next = 0;
    while let Some(&at) = met.get(next)
        && next < MAX_MET
    {
        next += 1;
        let node = &graph.nodes[at as usize];
        let is_ahead = next > 1;
        let steps = 1 + (node.edges.len() + node.epsilons.len()) as u64;
        if is_ahead {
            let Some(left) = steps_ahead.checked_sub(steps) else {
                return Ok(false);
            };
            *steps_ahead = left;
        }
        fuel.burn(steps)?;
        let more = |&(label, _): &(Label, u32)| match label {
            Label::Text(_) | Label::Call(_) => false,
            Label::Lexeme(_)
            | Label::WithinTokens(..)
            | Label::Tagged(..)
            | Label::Tokens(_)
            | Label::Json(_) => true,
        };
        if node.edges.iter().any(more) {
            return Ok(true);
        }
        for &language in languages.of_node(at as usize) {
            if language != NO_LANGUAGE && !is_held(language, is_ahead, fuel)? {
                return Ok(true);
            }
        }
        let called = node.edges.iter().filter_map(|(label, _)| match *label {
            Label::Call(rule) => Some(graph.starts[rule as usize]),
            _ => None,
        });
        let targets = node.edges.iter().map(|edge| edge.1);
        let reached = called.chain(targets).chain(node.epsilons.iter().copied());
        for reached in reached.filter(|&reached| reached != NO_NODE) {
            if met.len() < MAX_MET && !met.contains(&reached) {
                met.push(reached);
            }
        }
    }
    Ok(false)
}

/// Whether a node reads one of some texts and is then at the end of its rule.
fn is_read_alone(graph: &Graph, node: &Node, texts: Texts) -> bool {
    let [(Label::Text(expr), to)] = node.edges[..] else {
        return false;
    };
    let end = &graph.nodes[to as usize];
    let is_end = end.accepting && end.edges.is_empty() && end.epsilons.is_empty();
    is_end
        && (expr == texts.star || expr == texts.plus)
        && node.epsilons.is_empty()
        && !node.accepting
}

/// For each node whether something may lead to it without reading, or a call.
fn entered_silently(graph: &Graph, lexicon: &Lexicon) -> Vec<bool> {
    let mut entered = vec![false; graph.nodes.len()];
    let starts = graph.starts.iter().filter(|start| **start != NO_NODE);
    for &start in starts.chain(graph.nodes.iter().flat_map(|node| &node.epsilons)) {
        entered[start as usize] = true;
    }
    for &(label, to) in graph.nodes.iter().flat_map(|node| &node.edges) {
        entered[to as usize] |= match label {
            Label::Text(expr) | Label::WithinTokens(expr, _) => lexicon.is_nullable(expr),
            Label::Call(_) => true,
            Label::Lexeme(_) | Label::Tagged(..) | Label::Tokens(_) | Label::Json(_) => false,
        };
    }
    entered
}

/// Whether a language holds all of some texts, as far as its alternatives show that.
pub(super) fn covers(lexicon: &Lexicon, expr: ExprId, texts: Texts) -> bool {
    let ways = lexicon.alternatives(expr);
    ways.contains(&texts.plus) || ways.contains(&texts.star)
}

/// Whether each text of a language is one over another; false where that isn't found soon.
pub(super) fn is_held(
    lexicon: &mut Lexicon,
    expr: ExprId,
    texts: Texts,
    fuel: &mut Fuel,
) -> Result<bool, Stop> {
    if expr == texts.star || expr == texts.plus {
        return Ok(true);
    }
    let another = fuel.within(MAX_STEPS, |part| {
        look_for_another(lexicon, expr, texts, part)
    })?;
    Ok(another == Some(false))
}

/// Whether a language has a text that isn't one over another.
fn look_for_another(
    lexicon: &mut Lexicon,
    expr: ExprId,
    texts: Texts,
    fuel: &mut Fuel,
) -> Result<bool, Stop> {
    let mut firsts = ByteSet::EMPTY;
    for (bytes, _) in lexicon.derivatives(texts.star, fuel)? {
        firsts = firsts.union(&bytes);
    }
    for (bytes, rest) in lexicon.derivatives(expr, fuel)? {
        if bytes.intersection(&firsts) != bytes && lexicon.is_live(rest, fuel)? {
            return Ok(true);
        }
    }
    let others = lexicon.not(texts.star);
    let others = lexicon.and(&[expr, others]);
    lexicon.is_live(others, fuel)
}
