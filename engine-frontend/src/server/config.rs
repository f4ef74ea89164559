//! Flags from a YAML file and from the environment.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command};
use serde_json::Value;
use yaml_rust2::{ScanError, Yaml, YamlLoader};

/// What every environment variable for a flag begins with.
const PREFIX: &str = "FORMWORK_";

/// Most levels of a flag's value in the file.
const MAX_DEPTH: usize = 32;

/// Variables for other things than flags.
const OTHER_VARIABLES: [&str; 5] = [
    // The Python packages find the executables by it.
    "FORMWORK_BIN",
    "FORMWORK_CPU_LEVEL",
    "FORMWORK_LOG",
    "FORMWORK_SHARED",
    // The plug-in for vLLM.
    "FORMWORK_VLLM",
];

/// Why a file or a variable gives no flags.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("can't read --config {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It isn't YAML.
    #[error("--config {} is not YAML: {problem}", .path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        problem: String,
    },
    /// It isn't a mapping of flags.
    #[error("--config {}: {problem}", .path.display())]
    Flag {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A variable's name is no flag's.
    #[error("the environment variable {name} is no flag of this command; unset it")]
    Variable {
        /// Its name.
        name: String,
    },
}

/// Puts the flags of the file that `args` name by `--config`, and those of `variables`, before
/// those of `args`, so that a flag given twice has the value that stands last: the command line
/// wins over the environment, the environment over the file.
///
/// `args` are those after the subcommand, which is `command`. A variable is `FORMWORK_` and a flag in
/// capitals; a variable of that prefix that is no flag is refused.
///
/// # Errors
/// The file or a variable is wrong.
pub fn expand_args(
    command: &Command,
    args: Vec<OsString>,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<OsString>, ConfigError> {
    let mut variables: Vec<(String, String)> = variables
        .into_iter()
        .filter(|(name, _)| name.starts_with(PREFIX) && !OTHER_VARIABLES.contains(&name.as_str()))
        .filter(|(name, value)| !is_of_a_kubernetes_service(name, value))
        .collect();
    variables.sort();
    let mut from_environment = Vec::new();
    let mut file = None;
    for (name, value) in variables {
        let flag = name
            .strip_prefix(PREFIX)
            .unwrap_or_default()
            .to_lowercase()
            .replace('_', "-");
        if flag == "config" {
            file = Some(PathBuf::from(&value));
        }
        let scalar = Yaml::String(value);
        if push_flag(command, &flag, &scalar, &mut from_environment).is_err() {
            return Err(ConfigError::Variable { name });
        }
    }
    let mut expanded = match config_file(&args).or(file) {
        Some(path) => from_file(command, &path)?,
        None => Vec::new(),
    };
    // A list on the command line replaces one from elsewhere; other flags override themselves.
    let given = args.iter().filter_map(|arg| arg.to_str());
    let given: Vec<&str> = given
        .filter_map(|arg| arg.strip_prefix("--"))
        .map(|flag| flag.split('=').next().unwrap_or(flag))
        .collect();
    expanded.retain(|flag| !given.contains(&flag.name.as_str()) || !flag.is_list);
    from_environment.retain(|flag| !given.contains(&flag.name.as_str()) || !flag.is_list);
    let flags = expanded.into_iter().chain(from_environment);
    let has_model = given.contains(&"model") || names_model(command, &args);
    let flags = flags.filter(|flag| !(has_model && flag.name == "model"));
    Ok(flags.flat_map(|flag| flag.args).chain(args).collect())
}

/// True for the variables that Kubernetes gives every container for each service of its namespace: one
/// called `formwork` brings `FORMWORK_SERVICE_HOST` and `FORMWORK_PORT=tcp://10.0.0.1:8000`.
fn is_of_a_kubernetes_service(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    // FORMWORK_PORT_8000_TCP, and what begins so.
    let is_of_a_port = name.split("_PORT_").skip(1).any(|rest| {
        let mut words = rest.split('_');
        let number = words.next().unwrap_or_default();
        number.parse::<u16>().is_ok() && words.next().is_some_and(|word| PROTOCOLS.contains(&word))
    });
    let is_url = PROTOCOLS
        .iter()
        .any(|protocol| value.starts_with(&format!("{}://", protocol.to_lowercase())));
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url)
        || is_of_a_port
}

/// Whether the model's folder stands by itself among the arguments, wherever.
fn names_model(command: &Command, args: &[OsString]) -> bool {
    let name = OsString::from(command.get_name());
    let matches = command
        .clone()
        .ignore_errors(true)
        .try_get_matches_from([name].into_iter().chain(args.iter().cloned()));
    matches.is_ok_and(|matches| matches.try_contains_id("model_tag").unwrap_or_default())
}

/// A flag that doesn't come from the command line.
#[derive(Debug)]
struct Flag {
    name: String,
    is_list: bool,
    args: Vec<OsString>,
}

fn config_file(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let arg = arg.to_str()?;
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    None
}

/// Where a text is no YAML, and why.
fn yaml_problem(error: &ScanError) -> String {
    let place = error.marker();
    let info = error.info();
    let problem = match info.strip_suffix(": duplicated key in mapping") {
        // The library shows the key as its own type has it.
        Some(key) => {
            let key = key
                .strip_prefix("String(")
                .and_then(|key| key.strip_suffix(')'));
            format!(
                "the key {} is there twice: give it once",
                key.unwrap_or_default()
            )
        }
        None => info.to_owned(),
    };
    format!(
        "line {}, column {}: {problem}",
        place.line(),
        place.col() + 1
    )
}

fn from_file(command: &Command, path: &Path) -> Result<Vec<Flag>, ConfigError> {
    let text = fs::read_to_string(path).map_err(|error| ConfigError::Read {
        path: path.to_owned(),
        error,
    })?;
    let documents = YamlLoader::load_from_str(&text).map_err(|error| ConfigError::Yaml {
        path: path.to_owned(),
        problem: yaml_problem(&error),
    })?;
    let problem = |problem: String| ConfigError::Flag {
        path: path.to_owned(),
        problem,
    };
    let mapping = match documents.as_slice() {
        [] => return Ok(Vec::new()),
        [Yaml::Hash(mapping)] => mapping,
        _ => {
            return Err(problem(
                "it must hold flags and their values, such as \"port: 8000\"".to_owned(),
            ));
        }
    };
    let mut flags = Vec::new();
    for (key, value) in mapping {
        let name = key
            .as_str()
            .ok_or_else(|| problem(format!("{key:?} is no flag's name")))?
            .replace('_', "-");
        push_flag(command, &name, value, &mut flags).map_err(problem)?;
    }
    Ok(flags)
}

/// Appends one flag as command-line arguments.
fn push_flag(
    command: &Command,
    name: &str,
    value: &Yaml,
    flags: &mut Vec<Flag>,
) -> Result<(), String> {
    let find = |name: &str| {
        command.get_arguments().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        })
    };
    let arg = find(name).ok_or_else(|| format!("there is no flag --{name}"))?;
    if name == "config" {
        return Ok(());
    }
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    let mut args: Vec<OsString> = Vec::new();
    if switch {
        let on = match value {
            Yaml::Boolean(on) => Some(*on),
            value => match scalar(value).as_deref() {
                Some("1" | "true" | "True" | "TRUE" | "yes" | "on") => Some(true),
                Some("0" | "false" | "False" | "FALSE" | "no" | "off" | "") => Some(false),
                _ => None,
            },
        };
        let opposite = format!("no-{name}");
        match on {
            Some(true) => args.push(format!("--{name}").into()),
            Some(false) if find(&opposite).is_some() => args.push(format!("--{opposite}").into()),
            Some(false) => {}
            None => return Err(format!("--{name} must be true or false")),
        }
    } else {
        let values = match value {
            Yaml::Array(items) if is_list => items.iter().map(scalar).collect(),
            // Lists and mappings of other flags are JSON.
            Yaml::Array(_) | Yaml::Hash(_) => {
                vec![json(value, MAX_DEPTH).map(|value| value.to_string())]
            }
            value => vec![scalar(value)],
        };
        if values.is_empty() {
            return Err(format!("--{name} has no value"));
        }
        for value in values {
            let value = value.ok_or_else(|| format!("--{name} has a value of a wrong kind"))?;
            args.push(format!("--{name}={value}").into());
        }
    }
    flags.push(Flag {
        name: name.to_owned(),
        is_list,
        args,
    });
    Ok(())
}

/// A value as JSON, at most `depth` levels of it.
fn json(value: &Yaml, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    Some(match value {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => Value::from(*value),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::Real(_) => Value::from(value.as_f64()?),
        Yaml::String(text) => Value::from(text.as_str()),
        Yaml::Array(items) => items
            .iter()
            .map(|item| json(item, depth))
            .collect::<Option<_>>()?,
        Yaml::Hash(mapping) => mapping
            .iter()
            .map(|(key, value)| Some((key.as_str()?.to_owned(), json(value, depth)?)))
            .collect::<Option<_>>()?,
        Yaml::Alias(_) | Yaml::BadValue => return None,
    })
}

/// A value as one argument.
fn scalar(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()),
        Yaml::Integer(number) => Some(number.to_string()),
        Yaml::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Args;

    use super::*;
    use crate::server::ServeArgs;

    fn expand(
        yaml: Option<&str>,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Vec<String>, ConfigError> {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
        if let Some(yaml) = yaml {
            file.write_all(yaml.as_bytes()).unwrap();
            args.push("--config".into());
            args.push(file.path().into());
        }
        let variables = variables
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let mut expanded = expand_args(&command, args, variables)?;
        if yaml.is_some() {
            expanded.truncate(expanded.len() - 2);
        }
        Ok(expanded
            .into_iter()
            .map(|a| a.into_string().unwrap())
            .collect())
    }

    #[test]
    fn file_then_environment_then_command_line() {
        let yaml = "port: 1\nmax_model_len: 64\nenable-prefix-caching: false\n\
                    served-model-name: [a, b]\nallowed-origins: [\"*\"]\ndisable-log-stats: true\n";
        let expanded = expand(
            Some(yaml),
            &["--port", "3"],
            &[
                ("FORMWORK_PORT", "2"),
                ("OTHER", "x"),
                ("FORMWORK_NO_RESTART", "1"),
            ],
        )
        .unwrap();
        assert_eq!(
            expanded,
            [
                "--port=1",
                "--max-model-len=64",
                "--no-enable-prefix-caching",
                "--served-model-name=a",
                "--served-model-name=b",
                "--allowed-origins=[\"*\"]",
                "--disable-log-stats",
                "--no-restart",
                "--port=2",
                "--port",
                "3",
            ]
        );
    }

    #[test]
    fn lists_and_the_model_are_replaced() {
        let yaml = "model: m\napi-key: [a]\n";
        assert_eq!(
            expand(Some(yaml), &["other", "--api-key", "b"], &[]).unwrap(),
            ["other", "--api-key", "b"]
        );
        // Wherever it stands.
        for args in [
            ["--port", "3", "other"],
            ["--no-restart", "other", "--port=1"],
            ["--no-restart", "--port=1", "other"],
        ] {
            let expanded = expand(Some("model: m"), &args, &[]).unwrap();
            assert_eq!(expanded, args);
            let variable = [("FORMWORK_MODEL", "m")];
            assert_eq!(expand(None, &args, &variable).unwrap(), args);
        }
        assert_eq!(
            expand(Some("model: m"), &["--port", "3"], &[]).unwrap(),
            ["--model=m", "--port", "3"]
        );
        assert_eq!(
            expand(Some(yaml), &["--port=1"], &[]).unwrap(),
            ["--model=m", "--api-key=a", "--port=1"]
        );
    }

    #[test]
    fn what_is_no_yaml_is_told_its_place() {
        let problem = |yaml| match expand(Some(yaml), &[], &[]).unwrap_err() {
            ConfigError::Yaml { problem, .. } => problem,
            other => panic!("{other}"),
        };
        assert_eq!(
            problem("port: 1\nport: 2\n"),
            "line 2, column 7: the key \"port\" is there twice: give it once"
        );
        assert!(problem("port: [1\n").starts_with("line "));
    }

    #[test]
    fn mappings_are_json() {
        let yaml = "structured-outputs-config:\n  backend: auto\n  cache_bytes: 5\n\
                    default-chat-template-kwargs: {a: [1.5, null, true]}\n";
        assert_eq!(
            expand(Some(yaml), &[], &[]).unwrap(),
            [
                "--structured-outputs-config={\"backend\":\"auto\",\"cache_bytes\":5}",
                "--default-chat-template-kwargs={\"a\":[1.5,null,true]}",
            ]
        );
        let deep = format!(
            "default-chat-template-kwargs: {{a: {}}}",
            "[".repeat(40) + &"]".repeat(40)
        );
        assert!(expand(Some(&deep), &[], &[]).is_err());
    }

    #[test]
    fn variables_of_kubernetes_services_are_left_alone() {
        let address = "tcp://10.0.0.1:8000";
        let variables = [
            // Nor are those of our own that are no flags.
            ("FORMWORK_BIN", "/opt/formwork"),
            ("FORMWORK_VLLM", "1"),
            ("FORMWORK_SERVICE_HOST", "10.0.0.1"),
            ("FORMWORK_SERVICE_PORT", "8000"),
            ("FORMWORK_SERVICE_PORT_HTTP", "8000"),
            ("FORMWORK_PORT", address),
            ("FORMWORK_PORT_8000_TCP", address),
            ("FORMWORK_PORT_8000_TCP_ADDR", "10.0.0.1"),
            ("FORMWORK_PORT_8000_TCP_PORT", "8000"),
            ("FORMWORK_PORT_8000_TCP_PROTO", "tcp"),
            ("FORMWORK_BIG_SERVICE_HOST", "10.0.0.2"),
            ("FORMWORK_BIG_PORT_53_UDP_ADDR", "10.0.0.2"),
        ];
        assert!(expand(None, &[], &variables).unwrap().is_empty());
        for variable in [
            ("FORMWORK_PORT", "8001"),
            ("FORMWORK_MANAGEMENT_PORT", "8001"),
        ] {
            assert_eq!(expand(None, &[], &[variable]).unwrap().len(), 1);
        }
        for name in ["FORMWORK_PORT_HTTP", "FORMWORK_PORT_8000_HTTP"] {
            assert!(expand(None, &[], &[(name, "1")]).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_no_flag_is_refused_by_name() {
        let error = expand(Some("prot: 1"), &[], &[]).unwrap_err().to_string();
        assert!(error.ends_with("there is no flag --prot"), "{error}");
        let error = expand(None, &[], &[("FORMWORK_PROT", "1")]).unwrap_err();
        assert!(error.to_string().contains("FORMWORK_PROT"), "{error}");
        for yaml in ["- a", "api-key: {1: 1}", "a: [", "no-restart: maybe"] {
            assert!(expand(Some(yaml), &[], &[]).is_err(), "{yaml}");
        }
        assert!(expand(Some(""), &[], &[]).unwrap().is_empty());
    }
}
