//! Names of models on the Hub.

use std::fmt;
use std::str::FromStr;

/// Longest organization, and longest name within it, as the Hub allows them.
const LONGEST_PART: usize = 96;

/// The branch that is meant where none is named.
const MAIN: &str = "main";

/// Beginnings of addresses of the Hub.
const HOSTS: [&str; 6] = [
    "https://huggingface.co/",
    "http://huggingface.co/",
    "https://hf.co/",
    "huggingface.co/",
    "hf.co/",
    "hf://",
];

/// A model on the Hub: `org/name`, `org/name@revision`, `org/name:file.gguf`, `org/name:Q4_K_M`, or
/// `org/name@revision:file.gguf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    /// `org/name`.
    pub repository: String,
    /// Branch, tag or commit; `main` where absent.
    pub revision: Option<String>,
    /// The GGUF file that is wanted, which may be in a subfolder of the repository, or a tag of it such as
    /// `Q4_K_M`.
    pub file: Option<String>,
}

impl HubName {
    /// Reads a name, also as it is copied from a browser or from other programs: `https://huggingface.co/o/n`,
    /// `hf.co/o/n`. `None` if it has not the form of one: the Hub isn't asked.
    pub fn parse(text: &str) -> Option<Self> {
        let copied = HOSTS.iter().find_map(|host| text.strip_prefix(host));
        let (name, page) = match copied {
            Some(rest) => split_page(rest)?,
            None => (text, None),
        };
        let (name, file) = match name.split_once(':') {
            Some((name, file)) => (name, Some(file)),
            None => (name, None),
        };
        let (repository, revision) = match name.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (name, None),
        };
        let (revision, file) = match page {
            Some((_, _)) if revision.is_some() || file.is_some() => return None,
            Some((revision, file)) => (Some(revision), file.filter(|file| is_gguf(file))),
            None => (revision, file),
        };
        let is_good = is_repository(repository)
            && revision.is_none_or(is_relative_path)
            && file.is_none_or(|file| is_relative_path(file) && (is_gguf(file) || is_tag(file)));
        is_good.then(|| Self {
            repository: repository.to_owned(),
            revision: revision
                .filter(|name| page.is_none() || *name != MAIN)
                .map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The branch, tag or commit to ask for.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }
}

impl FromStr for HubName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| {
            format!(
                "{text:?} is no name on the Hub: give org/name, org/name@revision, org/name:file.gguf or \
                 org/name:Q4_K_M"
            )
        })
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.file {
            Some(file) => write!(f, ":{file}"),
            None => Ok(()),
        }
    }
}

/// True for `org/name` in the Hub's alphabet. A path of one folder and a GGUF file is none.
pub(crate) fn is_repository(text: &str) -> bool {
    let Some((organization, name)) = text.split_once('/') else {
        return false;
    };
    let is_part = |part: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !part.is_empty()
            && part.len() <= LONGEST_PART
            && part.starts_with(is_word)
            && part.ends_with(is_word)
            && part.chars().all(|c| is_word(c) || matches!(c, '-' | '.'))
            && !part.contains("--")
            && !part.contains("..")
    };
    is_part(organization) && is_part(name) && !is_gguf(name)
}

/// True for the name of a quantization, such as `Q4_K_M`.
fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    !text.is_empty() && text.bytes().all(is_word)
}

/// Name, revision and file.
type Page<'a> = (&'a str, Option<(&'a str, Option<&'a str>)>);

/// An address behind its host, apart: `o/n`, `o/n/tree/REVISION`, `o/n/blob/REVISION/FILE`. `None` if it
/// leads elsewhere.
fn split_page(address: &str) -> Option<Page<'_>> {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let address = address.trim_end_matches('/');
    let mut parts = address.splitn(5, '/');
    let name = [parts.next()?, parts.next()?].map(str::len);
    let name = address.get(..name.iter().sum::<usize>() + 1)?;
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => Some((name, None)),
        (Some("tree" | "blob" | "resolve"), Some(revision), file) => {
            Some((name, Some((revision, file))))
        }
        _ => None,
    }
}

pub(crate) fn is_gguf(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// True if every part between slashes is the plain name of a file or folder, so that the whole leads
/// nowhere but further down.
pub(crate) fn is_relative_path(path: &str) -> bool {
    const LONGEST_PATH: usize = 1024;
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.contains(|c: char| c.is_control() || c == '\\')
    };
    path.len() <= LONGEST_PATH && path.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_repository_a_revision_and_a_file() {
        for (text, repository, revision, file) in [
            ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None, None),
            ("o/n@v1.0", "o/n", Some("v1.0"), None),
            ("o/n@refs/pr/3", "o/n", Some("refs/pr/3"), None),
            ("o/n:q4/m.gguf", "o/n", None, Some("q4/m.gguf")),
            ("o/n@dev:m.GGUF", "o/n", Some("dev"), Some("m.GGUF")),
        ] {
            let name = HubName::parse(text).unwrap();
            assert_eq!(name.repository, repository);
            assert_eq!(name.revision.as_deref(), revision);
            assert_eq!(name.file.as_deref(), file);
            assert_eq!(name.to_string(), text);
        }
        assert_eq!(HubName::parse("o/n").unwrap().revision(), "main");
    }

    #[test]
    fn copied_names_are_read() {
        for (text, name) in [
            ("https://huggingface.co/o/n", "o/n"),
            ("https://huggingface.co/o/n/?library=vllm#usage", "o/n"),
            ("https://huggingface.co/o/n/tree/main", "o/n"),
            ("https://huggingface.co/o/n/tree/v1", "o/n@v1"),
            (
                "https://huggingface.co/o/n/blob/main/q/m.gguf",
                "o/n:q/m.gguf",
            ),
            (
                "https://huggingface.co/o/n/resolve/v1/m.gguf?download=true",
                "o/n@v1:m.gguf",
            ),
            ("https://huggingface.co/o/n/blob/main/config.json", "o/n"),
            ("hf.co/o/n:Q4_K_M", "o/n:Q4_K_M"),
            ("hf://o/n@v1", "o/n@v1"),
            ("o/n:q4_0", "o/n:q4_0"),
        ] {
            assert_eq!(HubName::parse(text).unwrap().to_string(), name, "{text}");
        }
    }

    #[test]
    fn paths_are_no_names() {
        for text in [
            "",
            "model",
            "/o/n",
            "./o",
            "../o",
            "~/n",
            "o/",
            "o/n/x",
            "o/n/",
            "models/m.gguf",
            "o n/x",
            "o--p/n",
            "o/n..m",
            "o/.n",
            "o/n@",
            "o/n@../x",
            "o/n@a//b",
            "o/n:",
            "o/n:Q4 K",
            "o/n:README.md",
            "https://huggingface.co/o",
            "https://huggingface.co/datasets/o/n",
            "https://huggingface.co/o/n@v1/tree/main",
            "https://example.com/o/n",
            "o/n:/etc/m.gguf",
            "o/n:../m.gguf",
            "o/n:a\\m.gguf",
            "o/n\n",
            "é/n",
        ] {
            assert_eq!(HubName::parse(text), None, "{text:?}");
        }
        let long = "a".repeat(97);
        assert_eq!(HubName::parse(&format!("{long}/n")), None);
        assert!(HubName::parse(&format!("{}/n", &long[1..])).is_some());
    }
}
