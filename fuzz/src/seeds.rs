//! Where inputs are kept.

use std::path::{Path, PathBuf};

use crate::Target;

/// What a target starts from: its own seeds, the grammars of the grammar engine's tests, and what was
/// found before.
///
/// # Errors
/// A folder that can't be read.
pub fn seeds(target: Target) -> std::io::Result<Vec<Vec<u8>>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = read(&package.join("seeds").join(target.name()), |_| true)?;
    let kinds: &[&str] = match target {
        Target::Ebnf => &["ebnf", "gbnf"],
        Target::Lark => &["lark"],
        Target::StructuralTag => &["json"],
        Target::Matcher => &["ebnf", "gbnf", "lark", "json"],
        _ => &[],
    };
    let is_of_kind = |path: &Path| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| kinds.contains(&kind))
    };
    found.extend(read(
        &package.join("../structured-output/tests/grammars"),
        is_of_kind,
    )?);
    found.extend(findings(target)?);
    Ok(found)
}

/// Inputs that once broke something.
///
/// # Errors
/// A folder that can't be read.
pub fn findings(target: Target) -> std::io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings");
    read(&folder.join(target.name()), |_| true)
}

/// Files of a folder, by name; none where there is no such folder.
fn read(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> std::io::Result<Vec<Vec<u8>>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.is_file() && is_wanted(path));
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}
