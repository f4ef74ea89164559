//! Strongly connected components, by an explicit stack (Tarjan 1972).

/// Components of a graph, callees before callers: each a list of nodes. `successors(node)` are the
/// nodes that a node leads to.
pub(super) fn components<'a>(
    num_nodes: usize,
    successors: impl Fn(usize) -> &'a [u32],
) -> Vec<Vec<u32>> {
    const UNSEEN: u32 = u32::MAX;
    let mut index = vec![UNSEEN; num_nodes];
    let mut low = vec![0_u32; num_nodes];
    let mut on_stack = vec![false; num_nodes];
    let mut stack: Vec<u32> = Vec::new();
    let mut next_index = 0;
    let mut found = Vec::new();
    // A node, and how many of its successors have been looked at.
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in 0..num_nodes {
        if index[root] != UNSEEN {
            continue;
        }
        path.push((root as u32, 0));
        while let Some(&mut (node, ref mut at)) = path.last_mut() {
            let id = node as usize;
            if *at == 0 {
                index[id] = next_index;
                low[id] = next_index;
                next_index += 1;
                stack.push(node);
                on_stack[id] = true;
            }
            match successors(id).get(*at) {
                Some(&next) => {
                    *at += 1;
                    let next = next as usize;
                    if index[next] == UNSEEN {
                        path.push((next as u32, 0));
                    } else if on_stack[next] {
                        low[id] = low[id].min(index[next]);
                    }
                }
                None => {
                    path.pop();
                    if let Some(&(above, _)) = path.last() {
                        let above = above as usize;
                        low[above] = low[above].min(low[id]);
                    }
                    if low[id] == index[id] {
                        let start = stack.iter().rposition(|&other| other == node);
                        let component = stack.split_off(start.unwrap_or(0));
                        for &member in &component {
                            on_stack[member as usize] = false;
                        }
                        found.push(component);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_come_before_callers_and_cycles_together() {
        // 0 -> 1 <-> 2 -> 3, 4 -> 4, 5
        let edges: [&[u32]; 6] = [&[1, 1], &[2], &[1, 3], &[], &[4], &[]];
        let mut found = components(6, |node| edges[node]);
        for component in &mut found {
            component.sort_unstable();
        }
        assert_eq!(found, [vec![3], vec![1, 2], vec![0], vec![4], vec![5]]);
    }

    #[test]
    fn a_long_chain_takes_no_recursion() {
        let edges: Vec<Vec<u32>> = (1..=200_000).map(|next| vec![next % 200_000]).collect();
        let found = components(200_000, |node| &edges[node]);
        assert_eq!(found.len(), 1);
    }
}
