//! The Jinja environment of chat templates, and the thread that they run on.

use std::sync::LazyLock;

use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, escape_formatter};
use structured_output::CancelFlag;

use super::budget::{with_budget, wrote};
use super::error::ChatTemplateError;
use super::measure::{self, Metered, charge_all, text_bytes};
use super::program::Program;
use super::{builtins, gates, python_methods, source};

/// Instructions of one rendering, gates among them: enough for some thousand messages.
const FUEL: u64 = 2_000_000;
/// Stack of a thread that compiles or renders. Values that a template nests are dropped recursively, at
/// up to 410 bytes a level (measured), and [`super::budget::MAX_CONTAINERS`] is the most levels: 40 MiB. A
/// source nested as deep as [`source`] allows takes less than 4 MiB to compile. Pages that are not touched cost
/// nothing.
const STACK_BYTES: usize = 64 << 20;
/// Nested macros, loops and blocks.
const RECURSION_LIMIT: usize = 100;

/// The environment of all templates. They are no part of it: none can include another, or itself.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(python_methods::unknown_method_callback);
    environment.set_formatter(format);
    builtins::add_to(&mut environment);
    gates::add_to(&mut environment);
    environment
});

/// Compiles a source.
///
/// # Errors
/// [`ChatTemplateError::TooLong`], [`ChatTemplateError::Syntax`].
pub(super) fn compile(template: &str) -> Result<Program, ChatTemplateError> {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| ChatTemplateError::syntax(&error))?;
    // Checked before a thread is made for it.
    let source = source::prepare(template, &syntax)?;
    on_large_stack(|| Program::compile(source, syntax))
}

/// Renders, within the budget of a conversation of `variables`, which had so many bytes as JSON.
///
/// # Errors
/// All of [`ChatTemplateError`] that a rendering gives.
pub(super) fn render(
    program: &Program,
    variables: Value,
    num_bytes: usize,
    cancel: Option<&CancelFlag>,
) -> Result<String, ChatTemplateError> {
    let cancel = cancel.cloned();
    on_large_stack(move || {
        let source_bytes = program.borrow_owner().len() as u64;
        let input_work = measure::size(&variables)
            .map_err(|error| ChatTemplateError::render(&error))?
            .saturating_add(source_bytes);
        let input_bytes = source_bytes.saturating_add(num_bytes as u64);
        with_budget(input_bytes, input_work, cancel, || {
            let mut text = String::new();
            let mut output = make_string_output(&mut text);
            let compiled = program.borrow_dependent();
            let rendered = eval(
                &ENVIRONMENT,
                &compiled.instructions,
                variables,
                &compiled.blocks,
                &mut output,
                AutoEscape::None,
            );
            match rendered {
                Ok(_) => Ok(text),
                Err(error) => Err(ChatTemplateError::render(&error)),
            }
        })
    })
}

/// Writes a value into the output, or into what a block or macro catches.
fn format(
    output: &mut minijinja::Output<'_>,
    state: &mut minijinja::State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    match (value.as_str(), state.auto_escape()) {
        (Some(text), AutoEscape::None) => {
            wrote(text.len())?;
            Ok(output.write_str(text)?)
        }
        (None, AutoEscape::None) => {
            charge_all(value)?;
            Metered::write(output, value)
        }
        _ => {
            let size = charge_all(value)?;
            // `"` and `'` are six bytes in HTML.
            wrote(
                usize::try_from(text_bytes(value, size).saturating_mul(6)).unwrap_or(usize::MAX),
            )?;
            escape_formatter(output, state, value)
        }
    }
}

/// Runs `work` on a thread with [`STACK_BYTES`] of stack, which drops what it doesn't give back.
fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, ChatTemplateError> + Send,
) -> Result<T, ChatTemplateError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| ChatTemplateError::Thread {
                message: format!("can't start a thread for it: {error}"),
            })?;
        thread.join().unwrap_or_else(|_| {
            Err(ChatTemplateError::Thread {
                message: "its thread panicked".to_owned(),
            })
        })
    })
}
