//! Schemas by hand.

use super::super::programs::Programs;
use super::Engine;
use super::spec::Spec;
use crate::options::PropertyOrder;

#[test]
fn debug_it() {
    let spec = Spec::OneOf(vec![Spec::Unique, Spec::Text("a", 0)]);
    let mut engine = Engine::new(PropertyOrder::Any, |l, p: &mut Programs| {
        let root = p.nodes().reserve();
        let node = spec.node(l, p, root);
        p.nodes().define(root, node);
        node
    })
    .unwrap();
    let mut state = engine.after("[\"ab").unwrap();
    for _ in 0..40 {
        let d = engine.machine.toward_end(state, &mut super::fuel()).unwrap().map_or(0, |n| n.0);
        let Some((byte, next)) = engine.machine.toward_end(state, &mut super::fuel()).unwrap() else { break };
        println!("{d} {:?}", byte as char);
        state = next;
    }
}
