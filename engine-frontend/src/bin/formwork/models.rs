//! `formwork pull`, `list` and `remove`: the models in the Hub's cache.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use engine_frontend::{for_terminal, init_logging, pull_model};
use hub::{CachedRevision, HubName, HubSettings, cached_models, remove_model};
use indicatif::HumanBytes;

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Name on the Hub: org/name, org/name@revision, org/name:file.gguf, org/name:Q4_K_M
    #[arg(value_name = "NAME")]
    name: HubName,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name on the Hub: org/name for all of it, org/name@revision, org/name:file.gguf, org/name:Q4_K_M
    #[arg(value_name = "NAME")]
    name: HubName,
}

/// Downloads what the cache lacks, and prints the model's path.
pub(crate) fn pull(args: &PullArgs) -> anyhow::Result<ExitCode> {
    init_logging();
    let path = pull_model(&args.name)?;
    writeln!(std::io::stdout(), "{}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each revision in the cache.
pub(crate) fn list() -> anyhow::Result<ExitCode> {
    let cache = HubSettings::from_env()?.cache;
    let models = cached_models(&cache)?;
    if models.is_empty() {
        eprintln!("no models in {}", cache.display());
        return Ok(ExitCode::SUCCESS);
    }
    std::io::stdout().write_all(table(&models).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Removes a repository, a revision or a GGUF file from the cache.
pub(crate) fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let name = &args.name;
    let removed = remove_model(&HubSettings::from_env()?.cache, name)?;
    let told = match &removed.left {
        Some(folder) => format!("the link alone; its files stay in {}", folder.display()),
        None => format!("{} freed", HumanBytes(removed.bytes)),
    };
    let told = for_terminal(&told);
    writeln!(std::io::stdout(), "removed {name}: {told}")?;
    Ok(ExitCode::SUCCESS)
}

/// Branches and commit of a revision, and a word for one that isn't complete.
fn revision_of(model: &CachedRevision) -> String {
    const SHOWN_DIGITS: usize = 8;
    let Some(commit) = &model.commit else {
        return "unfinished downloads".to_owned();
    };
    let commit = commit.get(..SHOWN_DIGITS).unwrap_or_default();
    let mut revision = match model.references.is_empty() {
        true => commit.to_owned(),
        false => format!("{} ({commit})", model.references.join(", ")),
    };
    if !model.is_complete {
        revision.push_str(", incomplete");
    }
    revision
}

/// Names, revisions, sizes and paths, below their headings.
fn table(models: &[CachedRevision]) -> String {
    let mut rows = vec![["NAME", "REVISION", "SIZE", "PATH"].map(str::to_owned)];
    rows.extend(models.iter().map(|model| {
        let revision = revision_of(model);
        let (size, path) = (
            HumanBytes(model.bytes).to_string(),
            model.path.display().to_string(),
        );
        [model.repository.clone(), revision, size, path]
            .map(|cell| for_terminal(&cell).into_owned())
    }));
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let (name, revision, size) = (width(0), width(1), width(2));
    let line =
        |[a, b, c, path]: &[String; 4]| format!("{a:name$}  {b:revision$}  {c:>size$}  {path}\n");
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let model = |repository: &str, references: &[&str], bytes| CachedRevision {
            repository: repository.to_owned(),
            references: references.iter().map(|name| (*name).to_owned()).collect(),
            commit: Some("0123456789".to_owned()),
            is_complete: bytes > 5,
            bytes,
            path: "/c".into(),
        };
        let models = [
            model("o/n", &["main", "v1"], 1 << 30),
            model("org/name", &[], 5),
        ];
        assert_eq!(
            table(&models),
            "NAME      REVISION                  SIZE  PATH\n\
             o/n       main, v1 (01234567)   1.00 GiB  /c\n\
             org/name  01234567, incomplete       5 B  /c\n"
        );
        let begun = CachedRevision {
            commit: None,
            ..model("o/n", &[], 7)
        };
        assert_eq!(revision_of(&begun), "unfinished downloads");
    }
}
