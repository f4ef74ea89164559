//! What is remembered of items, under exactly what was read of their contexts.
//!
//! What tokens a lexeme allows together with what follows it depends on the context only as far as
//! tokens reach: seldom beyond the rule's own caller. So it is kept in a tree: at each node "here it
//! is", or "look into one more context", and then a branch for each thing that may be found there:
//! which nodes it returns to, and which of the contexts below are equal to which. Equal places deep
//! in different texts share what is known.

use hashbrown::HashMap;

use super::context::{ContextId, Contexts, Return};
use super::reads::FAR;

/// A branch: nodes returned to, with the numbers of the contexts below. Mostly one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Shape {
    One((u32, u32)),
    Many(Box<[(u32, u32)]>),
}

impl Shape {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(places) => size_of_val(&**places),
        }
    }
}

/// Contexts with more returns, and more contexts below one, aren't told apart: they come only with
/// texts that may be read in many ways, and hardly ever again.
const MAX_RETURNS: usize = 64;

/// What depends on more contexts isn't kept.
const MAX_READS: usize = 1024;

/// So many are to come soon: tables that grow from nothing do so within masks.
const SOME: usize = 96;

/// That of the end of the text, which is no node.
const END: (u32, u32) = (u32::MAX, 0);

enum Known<T> {
    Nothing,
    /// Look into the context with this number.
    Context(u32),
    Value(T),
}

/// Values by a key and as much of a context as they depend on.
pub(crate) struct ContextMemo<K, T> {
    roots: HashMap<K, u32>,
    nodes: Vec<Known<T>>,
    branches: HashMap<(u32, Shape), u32>,
    bytes: usize,
}

impl<K, T> Default for ContextMemo<K, T> {
    fn default() -> Self {
        Self {
            roots: HashMap::with_capacity(SOME),
            nodes: Vec::with_capacity(2 * SOME),
            branches: HashMap::with_capacity(SOME),
            bytes: 0,
        }
    }
}

impl<K: Copy + Eq + std::hash::Hash, T: Clone> ContextMemo<K, T> {
    /// Bytes of memory held, the values apart.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.nodes.capacity() * size_of::<Known<T>>()
            + self.roots.capacity() * (size_of::<(K, u32)>() + 1)
    }

    /// What is known. The contexts that it depends on are added to `log`, if there is one.
    pub(super) fn get(
        &self,
        key: K,
        context: ContextId,
        contexts: &Contexts,
        log: Option<&mut Vec<ContextId>>,
    ) -> Option<T> {
        let mut at = *self.roots.get(&key)?;
        let mut below = vec![context];
        let mut reads = Vec::new();
        loop {
            match &self.nodes[at as usize] {
                Known::Nothing => return None,
                Known::Value(value) => {
                    if let Some(log) = log {
                        log.extend(reads);
                    }
                    return Some(value.clone());
                }
                &Known::Context(number) => {
                    let context = below[number as usize];
                    reads.push(context);
                    let shape = shape(contexts, context, &mut below)?;
                    at = *self.branches.get(&(at, shape))?;
                }
            }
        }
    }

    /// Keeps a value that depends on the contexts in `reads`, as far as they lie below `context`.
    pub(super) fn insert(
        &mut self,
        key: K,
        context: ContextId,
        reads: &[ContextId],
        contexts: &Contexts,
        value: T,
    ) {
        if reads.len() > MAX_READS || reads.contains(&FAR) {
            return;
        }
        let mut at = match self.roots.get(&key) {
            Some(&root) => root,
            None => {
                let root = self.node();
                self.roots.insert(key, root);
                root
            }
        };
        let mut below = vec![context];
        let mut looked_into: Vec<ContextId> = Vec::new();
        loop {
            let number = match self.nodes[at as usize] {
                Known::Value(_) => return,
                Known::Context(number) => number,
                Known::Nothing => {
                    let next = reads.iter().find_map(|read| {
                        let number = below.iter().position(|context| context == read)?;
                        (!looked_into.contains(read)).then_some(number as u32)
                    });
                    match next {
                        None => {
                            self.nodes[at as usize] = Known::Value(value);
                            return;
                        }
                        Some(number) => {
                            self.nodes[at as usize] = Known::Context(number);
                            number
                        }
                    }
                }
            };
            let context = below[number as usize];
            looked_into.push(context);
            let Some(shape) = shape(contexts, context, &mut below) else {
                return;
            };
            at = match self.branches.get(&(at, shape.clone())) {
                Some(&next) => next,
                None => {
                    let next = self.node();
                    self.bytes += shape.memory_bytes() + 48;
                    self.branches.insert((at, shape), next);
                    next
                }
            };
        }
    }

    fn node(&mut self) -> u32 {
        self.nodes.push(Known::Nothing);
        self.nodes.len() as u32 - 1
    }
}

/// What is found in a context, `None` where that is too much. Contexts below it get numbers.
fn shape(contexts: &Contexts, context: ContextId, below: &mut Vec<ContextId>) -> Option<Shape> {
    let mut number = |place: &Return| match *place {
        Return::END => END,
        Return { node, context } => {
            let known = below.iter().position(|&known| known == context);
            let number = known.unwrap_or_else(|| {
                below.push(context);
                below.len() - 1
            });
            (node.0, number as u32)
        }
    };
    let returns = contexts.returns(context);
    if returns.len() > MAX_RETURNS {
        return None;
    }
    let shape = match returns {
        [only] => Shape::One(number(only)),
        _ => Shape::Many(returns.iter().map(number).collect()),
    };
    (below.len() <= 4 * MAX_RETURNS).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::super::context::AT_END;
    use super::super::program::NodeId;
    use super::*;

    fn to(node: NodeId, context: ContextId) -> Return {
        Return { node, context }
    }

    #[test]
    fn what_was_not_read_makes_no_difference() {
        let mut contexts = Contexts::default();
        let mut context = |returns: &[Return]| contexts.intern(returns, |_| 1);
        let one = context(&[to(NodeId(1), AT_END)]);
        let two = context(&[to(NodeId(2), one)]);
        let three = context(&[to(NodeId(2), two)]);
        let both = context(&[to(NodeId(2), one), to(NodeId(3), two)]);
        let mut memo: ContextMemo<u8, &str> = ContextMemo::default();
        assert_eq!(memo.get(7, three, &contexts, None), None);
        // Read: only the context itself.
        memo.insert(7, three, &[three], &contexts, "shallow");
        assert_eq!(memo.get(7, three, &contexts, None), Some("shallow"));
        assert_eq!(memo.get(7, two, &contexts, None), Some("shallow"));
        assert_eq!(memo.get(7, one, &contexts, None), None);
        assert_eq!(memo.get(8, two, &contexts, None), None);
        // Read: one below, too. What was made meanwhile and is not below is left out.
        memo.insert(7, both, &[both, three, one], &contexts, "deep");
        let mut log = vec![two];
        assert_eq!(memo.get(7, both, &contexts, Some(&mut log)), Some("deep"));
        assert_eq!(log, [two, both, one]);
        let other = contexts.intern(&[to(NodeId(2), two), to(NodeId(3), one)], |_| 1);
        assert_eq!(memo.get(7, other, &contexts, None), None);
    }
}
