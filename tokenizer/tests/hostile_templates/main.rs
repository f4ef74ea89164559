//! Templates that ask for more than their share: each ends with an error, and takes little before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod allocated;
mod growth;
mod sources;
mod work;

use tokenizer::{ChatTemplate, ChatTemplateError, ChatTemplateRequest};

const MAX_SOURCE: usize = 256 << 10;
/// Memory that a template may take, beside so many bytes for each byte of its own.
const MAX_MEMORY: usize = 64 << 20;
const MEMORY_PER_BYTE: usize = 16;

const VALUE: &str = "the size of a value";
const MEMORY: &str = "the memory of a rendering";
const WORK: &str = "the budget of work";
const OUTPUT: &str = "the size of its output";
const CONTAINERS: &str = "the number of lists and maps";

/// Compiles within the memory that a template may take.
fn compile(source: &str) -> Result<ChatTemplate, ChatTemplateError> {
    let (template, most) = allocated::most_held(|| ChatTemplate::new(source, Vec::new()));
    assert!(most <= MAX_MEMORY, "{most} bytes for {source:.200}");
    template
}

/// Compiles and renders within the memory that a template may take.
fn render(source: &str) -> Result<String, ChatTemplateError> {
    let (text, most) = allocated::most_held(|| {
        ChatTemplate::new(source, Vec::new())?.render(&ChatTemplateRequest::default())
    });
    assert!(
        most <= MAX_MEMORY + MEMORY_PER_BYTE * source.len(),
        "{most} bytes for {source:.200}"
    );
    text
}

/// The limit that a template exceeds.
fn limit(source: &str) -> String {
    match render(source) {
        Err(ChatTemplateError::LimitExceeded { limit }) => limit.to_owned(),
        other => format!("{:?}", other.map(|text| text.len())),
    }
}

/// A loop that grows `ns.x` from `start` by the statement until a limit ends it.
fn growing(start: &str, statement: &str) -> String {
    format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(99999) %}}{statement}{{% endfor %}}"
    )
}
