//! Flags of other servers that this one has under another name, or has no need of: whoever brings them
//! along is told what to do instead.

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags of `vllm serve`, `llama-server` and SGLang, and what to do instead. The pages "coming from" list them too.
const FLAGS: [(&str, &str); 41] = [
    (
        "--uvicorn-log-level",
        "set the environment variable RUST_LOG, for instance to warn",
    ),
    (
        "--log-error-stack",
        "leave it out: a request that fails is logged with its id and the reason",
    ),
    (
        "--chat-template-content-format",
        "leave it out: templates get text",
    ),
    (
        "--tool-strict-level",
        "leave it out: every tool's schema is enforced",
    ),
    (
        "--tool-parser-plugin",
        "use --tool-format-file with a file instead of code",
    ),
    ("--async-scheduling", "leave it out"),
    ("--no-async-scheduling", "leave it out"),
    ("--max-num-active-seqs", "use --max-num-seqs"),
    (
        "--watchdog-config",
        "use --health-stall-seconds, which watches the engine",
    ),
    ("--fingerprint-mode", "leave it out"),
    (
        "--tensor-parallel-size",
        "leave it out: a server has one device",
    ),
    ("-tp", "leave it out: a server has one device"),
    ("-pp", "leave it out: a server has one device"),
    ("-dp", "use --data-parallel-size"),
    (
        "--pipeline-parallel-size",
        "leave it out: a server has one device",
    ),
    (
        "--trust-remote-code",
        "leave it out: no code is loaded with a model",
    ),
    ("--enforce-eager", "leave it out"),
    (
        "--disable-log-requests",
        "leave it out: requests are logged with --enable-log-requests alone",
    ),
    (
        "--no-enable-log-requests",
        "leave it out: requests are logged with --enable-log-requests alone",
    ),
    (
        "--disable-uvicorn-access-log",
        "leave it out: requests are logged with --enable-log-requests alone",
    ),
    (
        "--download-dir",
        "set the environment variable HF_HUB_CACHE or HF_HOME",
    ),
    (
        "--revision",
        "write it behind the model's name: org/name@revision",
    ),
    ("--hf-token", "set the environment variable HF_TOKEN"),
    (
        "--hf-repo",
        "give the name without a flag: org/name, or org/name:file.gguf",
    ),
    ("--swap-space", "leave it out: nothing is swapped"),
    ("--enable-lora", "there is no LoRA"),
    ("--limit-mm-per-prompt", "leave it out: prompts are text"),
    ("--ctx-size", "use --max-model-len"),
    ("-c", "use --max-model-len"),
    ("--n-gpu-layers", "use --device cuda: all layers are there"),
    ("-ngl", "use --device cuda: all layers are there"),
    ("--parallel", "use --max-num-seqs"),
    ("-np", "use --max-num-seqs"),
    ("--alias", "use --served-model-name"),
    ("-m", "use --model, or the model without a flag"),
    ("-t", "use --threads"),
    (
        "-hf",
        "give the name without a flag: org/name, or org/name:file.gguf",
    ),
    (
        "-hff",
        "write it behind the model's name: org/name:file.gguf",
    ),
    ("--tp", "leave it out: a server has one device"),
    ("--dp", "leave it out: start a server for each device"),
    ("--context-length", "use --max-model-len"),
];

/// Prints an error of the command line, with what to do instead where it is about a flag of another
/// server, and ends the program.
pub(crate) fn exit(mut error: clap::Error) -> ! {
    let args: Vec<String> = std::env::args().collect();
    let advice = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(arg))) => advice(arg, &args),
        _ => None,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        // The library's tip is to give it as a value: no file is called so.
        error.remove(ContextKind::Suggested);
        // The library's own names a flag that merely looks like the one given.
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage(&args)));
        if let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) {
            let given = as_given(arg, &args).to_owned();
            error.insert(ContextKind::InvalidArg, ContextValue::String(given));
        }
    }
    let variable = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, Some(ContextValue::String(arg))) => {
            variable_of(arg, &args, |name| std::env::var_os(name).is_some())
        }
        _ => None,
    };
    let advice = match variable {
        Some(name) => Some(format!(
            "The value is that of the environment variable {name}."
        )),
        None => advice,
    };
    let Some(advice) = advice else { error.exit() };
    // A flag that merely looks like it isn't what is wanted.
    error.remove(ContextKind::SuggestedArg);
    // On a full disk this can't be said.
    let _ = error.print();
    eprintln!("\n{advice}");
    std::process::exit(error.exit_code())
}

/// The usage of the command that a command line names.
fn usage(args: &[String]) -> StyledStr {
    let mut command = crate::Cli::command();
    command.build();
    for name in args.iter().skip(1) {
        match command.find_subcommand(name).cloned() {
            Some(subcommand) => command = subcommand,
            None => break,
        }
    }
    command.render_usage()
}

/// The environment variable that an argument's value comes from, where the command line doesn't give it.
fn variable_of(arg: &str, args: &[String], is_set: impl Fn(&str) -> bool) -> Option<String> {
    let flag = arg.split(' ').next()?;
    let name = flag.strip_prefix("--")?;
    let is_given = |given: &String| given.split('=').next() == Some(flag);
    let variable = format!("FORMWORK_{}", name.replace('-', "_").to_uppercase());
    (is_set(&variable) && !args.iter().any(is_given)).then_some(variable)
}

/// What to do about an argument that was not expected, among all that were given.
fn advice(arg: &str, args: &[String]) -> Option<String> {
    if !arg.starts_with('-') {
        let has_flag = |flag: &&str| args.iter().any(|arg| arg == flag);
        let flag = ["--served-model-name", "--api-key"]
            .into_iter()
            .find(has_flag)?;
        return Some(format!(
            "{flag} takes one value: repeat the flag for each further one."
        ));
    }
    let instead = instead_of(as_given(arg, args))?;
    Some(format!("That is another server's flag. Here, {instead}."))
}

/// An argument as it was written: clap reads `-tp` as `-t -p` and names `-t`.
fn as_given<'a>(arg: &'a str, args: &'a [String]) -> &'a str {
    let is_short = arg.starts_with('-') && !arg.starts_with("--");
    let given = args.iter().find(|given| given.starts_with(arg));
    given.filter(|_| is_short).map_or(arg, String::as_str)
}

/// What to do instead of a flag, with or without its value.
fn instead_of(flag: &str) -> Option<&'static str> {
    let name = flag.split('=').next().unwrap_or(flag);
    let found = FLAGS.iter().find(|(other, _)| *other == name);
    found.map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_the_command() {
        let of = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            usage(&args).to_string()
        };
        assert_eq!(
            of(&["formwork", "serve", "--prot", "3"]),
            "Usage: formwork serve [OPTIONS] [MODEL]"
        );
        assert!(of(&["formwork", "api-key", "new"]).starts_with("Usage: formwork api-key new "));
        assert!(of(&["formwork", "--prot"]).starts_with("Usage: formwork "));
    }

    #[test]
    fn a_value_of_the_environment_is_told() {
        let of = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let is_set = |name: &str| name == "FORMWORK_MAX_MODEL_LEN";
            variable_of("--max-model-len <N>", &args, is_set)
        };
        assert_eq!(
            of(&["formwork", "serve"]).as_deref(),
            Some("FORMWORK_MAX_MODEL_LEN")
        );
        assert_eq!(of(&["formwork", "serve", "--max-model-len=a"]), None);
        let args: Vec<String> = Vec::new();
        assert_eq!(variable_of("--port <PORT>", &args, |_| false), None);
        assert_eq!(variable_of("[MODEL]", &args, |_| true), None);
    }

    #[test]
    fn what_is_told_instead_is_there_and_the_flag_is_not() {
        let mut cli = crate::Cli::command();
        let help = cli
            .find_subcommand_mut("serve")
            .unwrap()
            .render_long_help()
            .to_string();
        for (flag, instead) in FLAGS {
            let is_ours = help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n"));
            assert!(!is_ours, "{flag}");
            for word in instead.split([' ', ';', ',']) {
                assert!(!word.starts_with("--") || help.contains(word), "{word}");
            }
        }
        assert_eq!(instead_of("--ctx-size=4096"), Some("use --max-model-len"));
        assert_eq!(instead_of("--nonsense"), None);
        let given = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            advice("-t", &given(&["formwork", "serve", "-tp", "2"])).unwrap(),
            "That is another server's flag. Here, leave it out: a server has one device."
        );
        assert_eq!(as_given("-t", &given(&["serve", "-tp", "2"])), "-tp");
        assert_eq!(as_given("--tp", &given(&["serve", "--tpx"])), "--tp");
        assert_eq!(
            advice("-t", &given(&["formwork", "serve", "-t", "4"])).unwrap(),
            "That is another server's flag. Here, use --threads."
        );
        assert_eq!(advice("-y", &given(&["formwork", "serve", "-y"])), None);
        assert_eq!(
            advice("m", &given(&["serve", "--api-key", "a", "b", "m"])).unwrap(),
            "--api-key takes one value: repeat the flag for each further one."
        );
        assert_eq!(advice("m", &given(&["serve", "a", "m"])), None);
    }
}
