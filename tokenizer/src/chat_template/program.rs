//! A compiled template: minijinja's instructions, with a gate before and after those that work on
//! values.
//!
//! minijinja has hooks for filters, tests, functions and methods, but none for operators (`~`, `*`,
//! `+`, `==`, `in`, slices), literals, and text that a block or macro catches: a chain of `~` alone
//! doubles a text with each instruction. Its `unstable_machinery` gives out the instructions, so each of
//! those gets calls of our own filters around it ([`super::gates`]), whose names no template can write.
//! Rewriting the tree or the source instead would be more code; refusing doubling patterns by their
//! looks would be unsound. The crate's version is pinned in the workspace for this.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind, Value};

use super::error::ChatTemplateError;
use super::gates::Gate;

/// The name of the template in messages.
const NAME: &str = "chat_template";

self_cell::self_cell!(
    /// A source with its instructions, which refer to it.
    pub(super) struct Program {
        owner: String,
        #[covariant]
        dependent: Compiled,
    }
);

/// Instructions of a template.
pub(super) struct Compiled<'a> {
    pub(super) instructions: Instructions<'a>,
    pub(super) blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("source", self.borrow_owner())
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Compiles a source that [`super::source::prepare`] gave.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`].
    pub(super) fn compile(source: String, syntax: SyntaxConfig) -> Result<Self, ChatTemplateError> {
        Self::try_new(source, |source| {
            let tree = parse(source, NAME, syntax)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_stmt(&tree);
            let (instructions, blocks) = generator.finish();
            let blocks = blocks
                .iter()
                .map(|(name, block)| Ok((*name, gated(block)?)));
            Ok(Compiled {
                instructions: gated(&instructions)?,
                blocks: blocks.collect::<Result<_, Error>>()?,
            })
        })
        .map_err(|error: Error| ChatTemplateError::syntax(&error))
    }
}

/// The instructions with gates around them.
fn gated<'a>(original: &Instructions<'a>) -> Result<Instructions<'a>, Error> {
    // Where each instruction's first replacement stands.
    let mut starts = Vec::new();
    let mut count: u32 = 0;
    let all = || (0..).map_while(|index| Some((index, original.get(index)?)));
    for (_, instruction) in all() {
        starts.push(count);
        let gated = around(instruction)?;
        count += (gated.before.len() + 1 + gated.after.len()) as u32;
    }
    starts.push(count);
    let mut rewritten = Instructions::new(original.name(), original.source());
    for (index, instruction) in all() {
        let gated = around(instruction)?;
        let mut add = |instruction| match (original.get_span(index), original.get_line(index)) {
            (Some(span), _) => rewritten.add_with_span(instruction, span),
            (None, Some(line)) => {
                rewritten.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX))
            }
            (None, None) => rewritten.add(instruction),
        };
        for instruction in gated.before {
            add(instruction);
        }
        let mut instruction = gated.itself;
        if let Some(target) = jump_target(&mut instruction) {
            let moved = usize::try_from(*target)
                .ok()
                .and_then(|old| starts.get(old));
            *target = *moved.ok_or_else(|| refused("a jump leads out of the template"))?;
        }
        add(instruction);
        for instruction in gated.after {
            add(instruction);
        }
    }
    Ok(rewritten)
}

/// The place that an instruction may go on at.
fn jump_target<'i>(instruction: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    match instruction {
        Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::Iterate(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// An instruction, what it becomes, and what goes before and after it.
struct Gated<'a> {
    before: Vec<Instruction<'a>>,
    itself: Instruction<'a>,
    after: Vec<Instruction<'a>>,
}

/// Calls of a gate that looks at the operands on the stack and leaves them there.
fn look<'a>(gate: Gate, operands: usize) -> Result<Vec<Instruction<'a>>, Error> {
    let look = call(gate, operands)?;
    Ok(match gate {
        Gate::Loop => vec![look],
        _ => vec![look, Instruction::UnpackList(operands)],
    })
}

/// A call of a gate, which takes so many operands from the stack and leaves one value.
fn call<'a>(gate: Gate, operands: usize) -> Result<Instruction<'a>, Error> {
    let count = u16::try_from(operands)
        .map_err(|_| refused("a map or a call has more than 65,535 keys, values and arguments"))?;
    // The last is the number of a slot in a cache of minijinja's; this one stands for none.
    Ok(Instruction::ApplyFilter(gate.name(), Some(count), !0))
}

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::SyntaxError, message)
}

/// The gates around an instruction.
fn around<'a>(instruction: &Instruction<'a>) -> Result<Gated<'a>, Error> {
    use Instruction as I;
    let none = Vec::new;
    let made = || call(Gate::Made, 1).map(|made| vec![made]);
    let text = || call(Gate::Text, 1).map(|text| vec![text]);
    let (before, itself, after) = match instruction {
        // The formatter of the environment counts what is written.
        I::EmitRaw(raw) => (vec![I::LoadConst(Value::from(*raw))], I::Emit, none()),
        I::SetAttr(name) => (
            vec![I::LoadConst(Value::from(*name)), call(Gate::SetAttr, 3)?],
            I::DiscardTop,
            none(),
        ),
        I::StringConcat => (none(), call(Gate::Concat, 2)?, none()),
        I::BuildMap(pairs) => (none(), call(Gate::Map, pairs.saturating_mul(2))?, none()),
        I::GetItem => (look(Gate::Item, 2)?, I::GetItem, none()),
        I::Slice => (look(Gate::Slice, 4)?, I::Slice, made()?),
        I::Add => (look(Gate::Add, 2)?, I::Add, made()?),
        I::Mul => (look(Gate::Mul, 2)?, I::Mul, made()?),
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            (look(Gate::Content, 2)?, instruction.clone(), none())
        }
        I::MergeKwargs(count) | I::UnpackLists(count) if *count > 0 => {
            (look(Gate::Content, *count)?, instruction.clone(), none())
        }
        I::BuildList(_) | I::BuildTuple(_) => (none(), instruction.clone(), made()?),
        I::PushLoop(_) | I::FastRecurse => (look(Gate::Loop, 1)?, instruction.clone(), none()),
        I::CallFunction(_, Some(1)) => (look(Gate::Loop, 1)?, instruction.clone(), text()?),
        // The object stands first: `changed` of a loop keeps its arguments, `cycle` needs one.
        I::CallMethod("changed" | "cycle", count) => {
            let count = count.ok_or_else(|| refused("loop.cycle and loop.changed take no *"))?;
            let look = look(Gate::LoopMethod, count.into())?;
            (look, instruction.clone(), text()?)
        }
        I::EndCapture | I::CallFunction(..) | I::CallMethod(..) | I::CallObject(_) => {
            (none(), instruction.clone(), text()?)
        }
        _ => (none(), instruction.clone(), none()),
    };
    Ok(Gated {
        before,
        itself,
        after,
    })
}
