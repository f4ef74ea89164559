//! Flags by the names that people write.

use clap::Command;

use crate::input_processor::replace_name;

/// A text for whoever started a program: where it has the name of a field that is a flag of `command`
/// (`max_model_len`), the flag itself (`--max-model-len`).
pub fn with_flag_names(text: &str, command: &Command) -> String {
    let mut text = text.to_owned();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if let Some(long) = arg
            .get_long()
            .filter(|_| id.contains('_') && text.contains(id))
        {
            text = replace_name(&text, id, &format!("--{long}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::arg_utils::EngineArgs;

    #[test]
    fn fields_are_named_as_the_flags_that_they_are() {
        let command = EngineArgs::augment_args(Command::new("serve"));
        let text = |text: &str| with_flag_names(text, &command);
        assert_eq!(
            text("max_model_len must be at most 64, and num_max_model_len is none"),
            "--max-model-len must be at most 64, and num_max_model_len is none"
        );
        assert_eq!(text("the model has no dtype"), "the model has no dtype");
        assert_eq!(text("--max-model-len is it"), "--max-model-len is it");
        let path = "models/chat_template.jinja, chat_template.jinja and chat_template/x are files";
        assert_eq!(text(path), path);
        assert_eq!(text("no chat_template."), "no --chat-template.");
    }
}
