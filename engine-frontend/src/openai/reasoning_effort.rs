//! `reasoning_effort`: how much a model thinks before it answers.
//!
//! A chat template that reads `reasoning_effort` decides by itself; other models are held to a budget of
//! tokens. On a model that doesn't think, an effort has no effect.

use serde_json::Value;
use tokenizer::{TemplateValue, TemplateVariables};

use super::fields::Fields;
use crate::error::ValidationError;

/// The field, and the variable of chat templates.
pub(super) const REASONING_EFFORT: &str = "reasoning_effort";

/// The values of `reasoning_effort`, as chat templates get them.
pub(crate) const REASONING_EFFORTS: [&str; 7] =
    ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Budgets of thinking, in tokens.
const BUDGETS: [(&str, u32); 3] = [("low", 1024), ("medium", 4096), ("high", 16_384)];

/// Variables by which chat templates switch thinking on and off: Qwen's and GLM's, DeepSeek's.
pub(super) const THINKING_SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// Takes `reasoning_effort`.
///
/// # Errors
/// It is none of [`REASONING_EFFORTS`].
pub(super) fn take(fields: &mut Fields) -> Result<Option<String>, ValidationError> {
    let effort: Option<String> = fields.take(REASONING_EFFORT)?;
    match effort {
        Some(effort) if !REASONING_EFFORTS.contains(&effort.as_str()) => {
            let names = REASONING_EFFORTS.join(", ");
            let message = format!("{REASONING_EFFORT} must be one of {names}");
            Err(ValidationError::field(REASONING_EFFORT, effort, message))
        }
        effort => Ok(effort),
    }
}

/// True if thinking is off: for `none`, and for `minimal` unless the template reads an effort.
fn is_off(effort: &str, template_reads_it: bool) -> bool {
    effort == "none" || effort == "minimal" && !template_reads_it
}

/// True if a template's variables have an effort that is more than none.
pub(super) fn asks_to_think(variables: &TemplateVariables) -> bool {
    let effort = variables
        .get(REASONING_EFFORT)
        .and_then(TemplateValue::as_str);
    effort.is_some_and(|effort| !is_off(effort, false))
}

/// Switches thinking on or off in a template's variables, as their effort says; a template that reads an
/// effort is left to switch it on by itself.
///
/// # Errors
/// A variable that the request sets asks for the contrary.
pub(super) fn switch_thinking(
    variables: &mut TemplateVariables,
    template_reads_it: bool,
) -> Result<(), ValidationError> {
    let Some(effort) = variables
        .get(REASONING_EFFORT)
        .and_then(TemplateValue::as_str)
    else {
        return Ok(());
    };
    let is_off = is_off(effort, template_reads_it);
    if !is_off && template_reads_it {
        return Ok(());
    }
    let switch = |name: &str| variables.get(name).and_then(TemplateValue::as_bool);
    let is_against = |name: &&&str| switch(name) == Some(is_off);
    if let Some(name) = THINKING_SWITCHES.iter().find(is_against) {
        let (asks, switches) = match is_off {
            true => ("no thinking", "on"),
            false => ("thinking", "off"),
        };
        let message = format!(
            "{REASONING_EFFORT} {effort:?} asks for {asks}, which chat_template_kwargs.{name} switches \
             {switches}: leave one of them out"
        );
        return Err(ValidationError::about(REASONING_EFFORT, message));
    }
    for name in THINKING_SWITCHES {
        variables.insert_missing(name, || Value::Bool(!is_off));
    }
    Ok(())
}

/// The budget of thinking that a template's variables ask for; `None` is unbounded.
pub(super) fn thinking_token_budget(
    variables: &TemplateVariables,
    template_reads_it: bool,
) -> Option<u32> {
    let effort = variables.get(REASONING_EFFORT)?.as_str()?;
    if is_off(effort, template_reads_it) {
        return Some(0);
    }
    let budget = BUDGETS.iter().find(|(name, _)| *name == effort);
    budget
        .filter(|_| !template_reads_it)
        .map(|(_, budget)| *budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(variables: &TemplateVariables, name: &str) -> Option<bool> {
        variables.get(name)?.as_bool()
    }

    #[test]
    fn an_effort_is_a_switch_or_a_budget() {
        let (off, free) = (Some(0), None);
        for (effort, without, with) in [
            ("none", off, off),
            ("minimal", off, free),
            ("low", Some(1024), free),
            ("medium", Some(4096), free),
            ("high", Some(16_384), free),
            ("xhigh", free, free),
            ("max", free, free),
        ] {
            for (reads, expected) in [(false, without), (true, with)] {
                let mut variables = TemplateVariables::default();
                variables.insert(REASONING_EFFORT, effort.into());
                let budget = thinking_token_budget(&variables, reads);
                assert_eq!(budget, expected, "{effort} {reads}");
                switch_thinking(&mut variables, reads).unwrap();
                let switch = match expected == off {
                    true => Some(false),
                    false => (!reads).then_some(true),
                };
                let switched = switched(&variables, "enable_thinking");
                assert_eq!(switched, switch, "{effort} {reads}");
            }
        }
        assert_eq!(
            thinking_token_budget(&TemplateVariables::default(), false),
            None
        );
    }

    #[test]
    fn a_switch_of_the_request_stays() {
        let mut variables = TemplateVariables::default();
        variables.insert(REASONING_EFFORT, "none".into());
        variables.insert("enable_thinking", true.into());
        let error = switch_thinking(&mut variables, false).unwrap_err();
        assert_eq!(
            error.message,
            "reasoning_effort \"none\" asks for no thinking, which chat_template_kwargs.enable_thinking \
             switches on: leave one of them out"
        );
        variables.insert("enable_thinking", false.into());
        switch_thinking(&mut variables, false).unwrap();
        assert_eq!(switched(&variables, "enable_thinking"), Some(false));
        assert_eq!(switched(&variables, "thinking"), Some(false));
        variables.insert(REASONING_EFFORT, "high".into());
        let error = switch_thinking(&mut variables, false).unwrap_err();
        assert!(
            error
                .message
                .contains("chat_template_kwargs.enable_thinking")
        );
        switch_thinking(&mut variables, true).unwrap();
    }
}
