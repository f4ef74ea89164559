//! The machine against a slow evaluator of nodes.

mod cases;
mod effort;
mod random;
mod relations;
mod spec;

use super::Style;
use super::node::NodeId;
use super::programs::Programs;
use super::schema::tests::evaluate;
use super::value::Value;
use crate::lexical::{Fuel, Lexicon, Stop};
use crate::options::{JsonSchemaOptions, Limits, PropertyOrder, Whitespace};
use crate::pushdown::{Machine, State};

const STEPS: u64 = 20_000_000;

fn fuel() -> Fuel {
    Fuel::new(STEPS)
}

/// A machine and where its grammar starts.
struct Engine {
    machine: Machine,
    root: NodeId,
    start: State,
}

impl Engine {
    /// `None` where a node holds of itself in place.
    fn new(
        order: PropertyOrder,
        make: impl FnOnce(&mut Lexicon, &mut Programs) -> NodeId,
    ) -> Result<Option<Self>, Stop> {
        let mut machine = Machine::new(Lexicon::new(Vec::new(), 8));
        let root = make(&mut machine.lexicon, &mut machine.programs);
        let options = JsonSchemaOptions {
            whitespace: Whitespace::Compact,
            property_order: order,
            ..JsonSchemaOptions::default()
        };
        let limits = Limits::default().regex();
        let style = Style::new(&mut machine.lexicon, &options, limits, &mut fuel())?.unwrap();
        let Some(frames) = machine.programs.start(root, style, &mut fuel())? else {
            return Ok(None);
        };
        let start = machine.start_of_frames(&frames, &mut fuel())?;
        Ok(Some(Self {
            machine,
            root,
            start,
        }))
    }

    /// The state after a text.
    fn after(&mut self, text: &str) -> Result<Option<State>, Stop> {
        let mut state = self.start;
        for byte in text.bytes() {
            match self.machine.step(state, byte, &mut fuel())? {
                Some(next) => state = next,
                None => return Ok(None),
            }
        }
        Ok(Some(state))
    }

    fn accepts(&mut self, text: &str) -> Result<bool, Stop> {
        match self.after(text)? {
            Some(state) => self.machine.is_accepting(state, &mut fuel()),
            None => Ok(false),
        }
    }

    fn holds(&mut self, value: &Value) -> bool {
        let nodes = &self.machine.programs.logic.nodes;
        evaluate::holds(nodes, &mut self.machine.lexicon, self.root, value)
    }

    /// The canonical completion; `None` where there is none within a bound.
    fn completion(&mut self, mut state: State) -> Result<Option<String>, Stop> {
        let mut text = Vec::new();
        while let Some((byte, next)) = self.machine.toward_end(state, &mut fuel())? {
            text.push(byte);
            state = next;
            if text.len() > 2000 {
                return Ok(None);
            }
        }
        let ends = self.machine.is_accepting(state, &mut fuel())?;
        Ok(ends.then(|| String::from_utf8(text).unwrap()))
    }
}

fn parse(text: &str) -> Value {
    Value::parse(text, 1000).unwrap()
}
