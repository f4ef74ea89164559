//! The Jinja environment of chat templates, and its limits.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Template, UndefinedBehavior, Value};

use super::error::{ChatTemplateError, Raised};
use super::{python_json, python_methods};

pub(super) const TEMPLATE_NAME: &str = "chat_template";

/// Instructions of one rendering: enough for some thousand messages.
const FUEL: u64 = 500_000;
/// Stack of the rendering thread. Values that a template nests are compared, printed and dropped
/// recursively, at up to 410 bytes a level (measured), and one instruction nests one level; so
/// this is more than [`FUEL`] can use up. Pages that are not touched cost nothing.
const STACK_BYTES: usize = 256 << 20;
/// Nested macros, loops and blocks.
const RECURSION_LIMIT: usize = 100;
/// Bytes of one prompt.
const MAX_OUTPUT: usize = 64 << 20;

/// An environment that holds `source` under [`TEMPLATE_NAME`].
pub(super) fn compile(source: &str) -> Result<Environment<'static>, ChatTemplateError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| ChatTemplateError::syntax(&error))?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(python_methods::unknown_method_callback);
    // Its indentation of nested values grows with the square of their depth.
    environment.remove_filter("pprint");
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception")
                .with_source(Raised(message)))
        },
    );
    environment
        .add_template_owned(TEMPLATE_NAME, replace_generation_tags(source))
        .map_err(|error| ChatTemplateError::syntax(&error))?;
    Ok(environment)
}

/// Renders, up to [`MAX_OUTPUT`] bytes, on a thread of its own with [`STACK_BYTES`] of stack.
pub(super) fn render_limited(
    template: &Template<'_, '_>,
    variables: Value,
) -> Result<String, ChatTemplateError> {
    let render = || {
        let mut output = LimitedOutput(Vec::new());
        template
            .render_captured_to(variables, &mut output)
            .map_err(|error| ChatTemplateError::render(&error))?;
        // minijinja writes `str`s only.
        Ok(String::from_utf8_lossy(&output.0).into_owned())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, render)
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

struct LimitedOutput(Vec<u8>);

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `{% generation %}` marks what an assistant wrote, for training; it changes no text. minijinja
/// doesn't know the tag, so it becomes an `if true`, which keeps lines and whitespace control.
fn replace_generation_tags(source: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find("%}") else {
            break;
        };
        let (tag, after) = tag.split_at(end);
        replaced.push_str(before);
        let name = tag
            .trim_start_matches(['{', '%', '-', '+'])
            .trim_end_matches(['-', '+'])
            .trim();
        match name {
            "generation" => replaced.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => replaced.push_str(&tag.replace("endgeneration", "endif")),
            _ => replaced.push_str(tag),
        }
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_ifs() {
        let source = "a{%- generation -%}\n{% if x %}b{% endif %}{%+ endgeneration%}c{% d";
        assert_eq!(
            replace_generation_tags(source),
            "a{%- if true -%}\n{% if x %}b{% endif %}{%+ endif%}c{% d"
        );
        assert_eq!(replace_generation_tags("no {{ tags }}"), "no {{ tags }}");
    }
}
