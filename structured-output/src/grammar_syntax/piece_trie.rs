//! Tags by what they begin with.

use super::ast::{NodeId, Piece, RuleBuilder};

/// Tags with a common beginning, from its end on.
struct Group {
    /// They stand side by side.
    from: usize,
    to: usize,
    /// How many pieces they have had in common before.
    depth: usize,
    /// How many they have in common.
    common: usize,
    parent: usize,
}

/// Tags as a node: what they begin with, common beginnings once, and then their contents.
///
/// Takes memory as the tags have pieces.
pub(super) fn trie(
    rule: &mut RuleBuilder,
    offset: usize,
    mut tags: Vec<(Vec<Piece>, NodeId)>,
) -> NodeId {
    tags.sort();
    let mut groups: Vec<Group> = Vec::new();
    let mut pending = vec![(0, tags.len(), 0, 0)];
    while let Some((from, to, depth, parent)) = pending.pop() {
        let (Some(first), Some(last)) = (tags.get(from), tags[..to].last()) else {
            continue;
        };
        // They are in order: what the first and the last have in common, all have.
        let both = first.0[depth..].iter().zip(&last.0[depth..]);
        let common = depth + both.take_while(|(a, b)| a == b).count();
        let own = groups.len();
        let mut at = from + tags[from..to].partition_point(|tag| tag.0.len() == common);
        while let Some(piece) = tags[..to].get(at).map(|tag| &tag.0[common]) {
            let more = tags[at..to].partition_point(|tag| tag.0[common] == *piece);
            pending.push((at, at + more, common, own));
            at += more;
        }
        groups.push(Group {
            from,
            to,
            depth,
            common,
            parent,
        });
    }
    // Groups come after those they are in: from the last to the first.
    let mut ways: Vec<Vec<NodeId>> = vec![Vec::new(); groups.len()];
    let mut whole = Vec::new();
    for (at, group) in groups.iter().enumerate().rev() {
        let tags = &tags[group.from..group.to];
        let ended = tags.partition_point(|tag| tag.0.len() == group.common);
        let mut own = std::mem::take(&mut ways[at]);
        own.extend(tags[..ended].iter().map(|tag| tag.1));
        let rest = rule.alternate(offset, own);
        let node = match &tags[0].0[group.depth..group.common] {
            [] => rest,
            pieces => {
                let text = rule.pieces(offset, pieces);
                rule.concat(offset, vec![text, rest])
            }
        };
        match at {
            0 => whole.push(node),
            _ => ways[group.parent].push(node),
        }
    }
    rule.alternate(offset, whole)
}
