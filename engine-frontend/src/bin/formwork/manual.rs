//! `formwork completions` and `formwork man`: made from what the commands say of themselves.

use std::io::Write;

use anyhow::Context;
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use engine_frontend::batch::BatchArgs;

/// The executables that people call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    Formwork,
    FormworkBatch,
}

impl Program {
    fn command(self) -> Command {
        match self {
            Self::Formwork => crate::Cli::command(),
            Self::FormworkBatch => BatchArgs::command(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
For bash: formwork completions bash > ~/.local/share/bash-completion/completions/formwork")]
pub(crate) struct CompletionsArgs {
    /// The shell that completes
    #[arg(value_enum)]
    shell: Shell,
    /// The program whose command line is completed
    #[arg(value_enum, default_value_t = Program::Formwork)]
    program: Program,
}

#[derive(Debug, Args)]
#[command(after_help = "To read a page: formwork man serve | man -l -")]
pub(crate) struct ManArgs {
    /// A command, such as serve or bench serve, or formwork-batch; formwork itself where absent
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

/// Writes a shell's script to standard output.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut command = args.program.command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// Writes a page of the manual to standard output.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let page = page(&args.words)?;
    std::io::stdout().write_all(&page)?;
    Ok(())
}

/// The page of a command, in roff.
fn page(words: &[String]) -> anyhow::Result<Vec<u8>> {
    let (program, words) = match words.split_first() {
        Some((first, rest)) if first == "formwork-batch" => (Program::FormworkBatch, rest),
        _ => (Program::Formwork, words),
    };
    let mut command = program.command();
    command.build();
    for word in words {
        let found = command.find_subcommand(word).cloned();
        let name = command.get_name();
        command = found.with_context(|| format!("there is no command {word:?} of {name}"))?;
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(String::from_utf8(page(&words)?)?)
    }

    #[test]
    fn every_command_has_a_page() {
        for (words, title, has) in [
            (&[][..], ".TH formwork ", "formwork\\-serve"),
            (&["serve"], ".TH formwork-serve ", "max\\-model\\-len"),
            (
                &["bench", "serve"],
                ".TH formwork-bench-serve ",
                "check\\-leaks",
            ),
            (
                &["formwork-batch"],
                ".TH formwork-batch ",
                "fail\\-on\\-error",
            ),
        ] {
            let page = page_of(words).unwrap();
            assert!(page.contains(title), "{words:?}: {page}");
            assert!(page.contains(has), "{words:?}: {page}");
        }
        let error = page_of(&["server"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no command \"server\" of formwork"
        );
    }
}
