//! The pages for users: their links lead somewhere, their paragraphs are short, their examples run.
//!
//! An example is a fenced block after a line `<!-- test: NAME -->`. A Python block is a program, a `sh`
//! block is a script; both run against one server, whose address takes the place of
//! `http://localhost:8000`. Blocks of one name on one page are one program. A block after
//! `<!-- prints: NAME -->` is exactly what the program prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use integration_tests::workspace;

use crate::server::clients;
use crate::server::support::Server;

/// Most characters of a paragraph, an item of a list, or a cell of a table.
const MOST_CHARACTERS: usize = 600;

/// Pages whose length is that of their subject: notes for those who change the code or measure it.
fn is_for_users(page: &Path) -> bool {
    let name = page.strip_prefix(workspace()).unwrap_or(page);
    !name.starts_with("docs/internals") && !EXEMPT.contains(&name.to_str().unwrap_or_default())
}

/// A page with one long item, which names the tests of each promise.
const EXEMPT: &[&str] = &["docs/security.md"];

/// `README.md` and everything in `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![workspace().join("README.md")];
    let mut folders = vec![workspace().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// A page without its fenced blocks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            prose.push('\n');
        } else if !is_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The paragraphs, items of lists and cells of tables of a page.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in prose(text).lines() {
        let line = line.trim();
        let numbered = line.split_once(". ").is_some_and(|(number, _)| {
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        });
        if line.starts_with('|') {
            paragraphs.extend(line.split(" | ").map(str::to_owned));
            paragraphs.push(String::new());
        } else if line.is_empty() || line.starts_with('#') {
            paragraphs.push(String::new());
        } else if line.starts_with("- ") || numbered {
            paragraphs.push(line.to_owned());
        } else if let Some(last) = paragraphs.last_mut() {
            last.push(' ');
            last.push_str(line);
        }
    }
    paragraphs
}

#[test]
fn no_paragraph_is_long() {
    let mut long = Vec::new();
    for page in pages().into_iter().filter(|page| is_for_users(page)) {
        let text = std::fs::read_to_string(&page).unwrap();
        for paragraph in paragraphs(&text) {
            let length = paragraph.chars().count();
            if length > MOST_CHARACTERS {
                let start: String = paragraph.chars().take(60).collect();
                long.push(format!("{}: {length}: {start}", page.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The anchors that GitHub gives a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text).lines().filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[test]
fn every_link_leads_somewhere() {
    let link = regex::Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = Vec::new();
    for page in pages() {
        let text = prose(&std::fs::read_to_string(&page).unwrap());
        for found in link.captures_iter(&text) {
            let target = &found[1];
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let leads = path.exists()
                && (anchor.is_empty()
                    || anchors(&std::fs::read_to_string(&path).unwrap()).contains(anchor));
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// An example of a page.
#[derive(Default)]
struct Example {
    language: String,
    code: String,
    prints: Option<String>,
}

/// The examples of a page by name.
fn examples(text: &str) -> BTreeMap<String, Example> {
    let mut examples: BTreeMap<String, Example> = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(mark) = line
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let Some((kind, name)) = mark.split_once(": ") else {
            continue;
        };
        let fence = lines.next().unwrap_or_default();
        let language = fence.strip_prefix("```").unwrap_or_else(|| {
            panic!("a fenced block follows {line}, not {fence:?}");
        });
        let mut block = String::new();
        for line in lines.by_ref().take_while(|line| *line != "```") {
            block.push_str(line);
            block.push('\n');
        }
        let example = examples.entry(name.to_owned()).or_default();
        match kind {
            "test" => {
                example.language = language.to_owned();
                example.code.push_str(&block);
            }
            "prints" => example.prints = Some(block),
            _ => panic!("{line}: test or prints"),
        }
    }
    examples
}

/// The packages that a program imports, as `import a, b`.
fn imports(code: &str) -> String {
    let imports = regex::Regex::new(r"(?m)^(?:from|import) ([a-z_0-9]+)").unwrap();
    let names: BTreeSet<&str> = imports
        .captures_iter(code)
        .map(|found| found.extract::<1>().1[0])
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Runs an example in a folder of its own; `None` where this machine lacks what it needs.
fn run(example: &Example, address: &str) -> Option<Output> {
    let code = example
        .code
        .replace("http://localhost:8000", &format!("http://{address}"));
    let folder = tempfile::tempdir().unwrap();
    let mut command = match example.language.as_str() {
        "python" => {
            let mut command = Command::new(clients::python(&imports(&code))?);
            // Else LiteLLM asks the network for prices.
            command
                .args(["-c", &code])
                .env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
            command
        }
        "sh" => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = std::env::join_paths(
                std::iter::once(integration_tests::executables().to_owned())
                    .chain(std::env::split_paths(&path)),
            );
            let mut command = Command::new("sh");
            command.args(["-e", "-c", &code]).env("PATH", path.unwrap());
            command
        }
        other => panic!("no way to run {other:?}"),
    };
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FORMWORK_") {
            command.env_remove(name);
        }
    }
    Some(command.current_dir(folder.path()).output().unwrap())
}

/// Runs every example of a page, and compares what it prints with what the page says.
fn check(page: &str, least: usize) {
    let text = std::fs::read_to_string(workspace().join(page)).unwrap();
    let examples = examples(&text);
    assert!(examples.len() >= least, "{page}: {}", examples.len());
    for (name, example) in &examples {
        let Some(output) = run(example, &Server::shared().address) else {
            continue;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}, {name}: {said}{complaint}");
        if let Some(prints) = &example.prints {
            assert_eq!(&said, prints, "{page}, {name}: {complaint}");
        }
    }
}

#[test]
fn the_examples_of_the_readme_run() {
    check("README.md", 1);
}

#[test]
fn the_examples_of_the_tutorial_run() {
    check("docs/tutorial.md", 9);
}

#[test]
fn the_recipes_run() {
    check("docs/recipes.md", 8);
}

/// The titles of the page are messages: their parts in backquotes stand in the sources.
#[test]
fn every_message_of_the_troubleshooting_page_is_said() {
    let mut sources = String::new();
    let mut folders = [
        "engine-frontend",
        "engine-core",
        "tokenizer",
        "gguf",
        "structured-output",
        "hub",
    ]
    .map(|folder| workspace().join(folder).join("src"))
    .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                sources.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    // A string that goes on in the next line.
    let sources = regex::Regex::new(r"\\\n\s*")
        .unwrap()
        .replace_all(&sources, "")
        .replace("\\\"", "\"");
    let page = std::fs::read_to_string(workspace().join("docs/troubleshooting.md")).unwrap();
    let mut messages = 0;
    for title in page.lines().filter(|line| line.starts_with("### ")) {
        let quoted = title.split('`').skip(1).step_by(2);
        for part in quoted.flat_map(|message| message.split("…")) {
            assert!(sources.contains(part.trim()), "nobody says {part:?}");
        }
        messages += 1;
    }
    assert!(messages >= 20, "{messages}");
}
