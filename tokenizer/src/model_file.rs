//! The one way in which files of a model's folder are opened.
//!
//! A model's folder is data from elsewhere. A name in it may be a link to anything that this process
//! can read, such as its own environment with a key in it, or a pipe that is waited for. So a file is
//! opened only if it is a regular file that lies in the folder itself, or in the store that the
//! Hugging Face Hub's cache links to: `snapshots/REVISION/FILE` is a link to `blobs/HASH` of the same
//! repository, and that may be one to the store that all repositories share.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, openat, statat};

/// Why a file of a model's folder is not read.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// There is no such file.
    #[error("{path} is missing")]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The name leads out of the folder.
    #[error("{name:?} is no name of a file in the model's folder {folder}")]
    Name {
        /// The model's folder.
        folder: PathBuf,
        /// The name, cut short.
        name: String,
    },
    /// The name is a link out of the folder.
    #[error(
        "{path} is a link to {target}, outside of the model's folder: a file must lie in the folder, \
         or in the blobs of the same repository of the Hugging Face Hub's cache"
    )]
    Outside {
        /// The file.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Something else than a file has that name.
    #[error("{path} is {found}, not a regular file")]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The file is larger than such a file may be.
    #[error("{path} has {bytes} bytes; at most {max_bytes} are read of such a file")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// The system refuses.
    #[error("can't read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Opens the file `name` of a model's folder for reading. `name` may have subfolders
/// (`original/params.json`). The folder is trusted as its user named it, and may itself be a link.
///
/// No link is followed on opening: the path is resolved and checked first, and then opened part by
/// part from the folder, so that nothing can be exchanged in between.
///
/// # Errors
/// [`ModelFileError`]: the file is missing, is no regular file, or lies elsewhere.
pub fn open_model_file(folder: &Path, name: &str) -> Result<File, ModelFileError> {
    let path = folder.join(name);
    let system = |source: io::Error| match source.kind() {
        ErrorKind::NotFound => ModelFileError::NotFound { path: path.clone() },
        _ => ModelFileError::Io {
            path: path.clone(),
            source,
        },
    };
    let mut parts = Path::new(name).components();
    if name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(ModelFileError::Name {
            folder: folder.to_owned(),
            name: name.chars().take(80).collect(),
        });
    }
    let folder = folder.canonicalize().map_err(system)?;
    let target = path.canonicalize().map_err(system)?;
    let outside = || ModelFileError::Outside {
        path: path.clone(),
        target: target.clone(),
    };
    let root = match hub_blobs(&folder) {
        _ if target.starts_with(&folder) => folder,
        Some(blobs) if target.parent() == Some(&blobs) => blobs,
        Some(blobs) => shared_blobs(&blobs, &target).ok_or_else(outside)?,
        None => return Err(outside()),
    };
    let inside = target.strip_prefix(&root).map_err(|_| outside())?;
    let file = open_below(&root, inside).map_err(|error| system(error.into()))?;
    file.map_err(|found| ModelFileError::NotAFile {
        path: path.clone(),
        found,
    })
}

/// The content of the file `name` of a model's folder, if it has at most `max_bytes`.
///
/// # Errors
/// As [`open_model_file`]; also where the file is larger.
pub fn read_model_file(
    folder: &Path,
    name: &str,
    max_bytes: u64,
) -> Result<Vec<u8>, ModelFileError> {
    let file = open_model_file(folder, name)?;
    let path = || folder.join(name);
    let system = |source| ModelFileError::Io {
        path: path(),
        source,
    };
    let too_large = |bytes| ModelFileError::TooLarge {
        path: path(),
        bytes,
        max_bytes,
    };
    let bytes = file.metadata().map_err(system)?.len();
    if bytes > max_bytes {
        return Err(too_large(bytes));
    }
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    // It may grow while it is read.
    let mut limited = file.take(max_bytes.saturating_add(1));
    limited.read_to_end(&mut content).map_err(system)?;
    match content.len() as u64 {
        bytes if bytes > max_bytes => Err(too_large(bytes)),
        _ => Ok(content),
    }
}

/// Where the Hub's cache keeps the content of a snapshot's files: `models--ORGANIZATION--NAME/blobs`
/// for a folder in `models--ORGANIZATION--NAME/snapshots/REVISION`.
fn hub_blobs(folder: &Path) -> Option<PathBuf> {
    let repository = folder.ancestors().find_map(|revision| {
        let snapshots = revision.parent()?;
        let repository = snapshots.parent()?;
        let name = repository.file_name()?.to_str()?;
        (snapshots.ends_with("snapshots") && name.starts_with("models--")).then_some(repository)
    })?;
    Some(repository.join("blobs"))
}

/// The store in which newer versions of the Hub's cache keep content once for all repositories, if `target`
/// is content in it: `blobs/XX/HASH` beside `models--ORGANIZATION--NAME`, where HASH is 64 hexadecimal
/// digits of which XX are the first. A file in it says that it is this store.
fn shared_blobs(blobs: &Path, target: &Path) -> Option<PathBuf> {
    const MARKER: &str = ".huggingface-shared-blobs";
    const DIGITS: usize = 64;
    let shared = blobs.parent()?.parent()?.join("blobs");
    let inside = target.strip_prefix(&shared).ok()?.to_str()?;
    let (prefix, hash) = inside.split_once('/')?;
    let is_content = prefix.len() == 2
        && hash.len() == DIGITS
        && hash.starts_with(prefix)
        && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let marker = shared.join(MARKER).symlink_metadata();
    (is_content && marker.is_ok_and(|marker| marker.is_file())).then_some(shared)
}

/// Opens `inside`, of plain names only, below `root` without following a link. `Err` inside is what is
/// there instead of a regular file.
fn open_below(root: &Path, inside: &Path) -> rustix::io::Result<Result<File, &'static str>> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut parent: OwnedFd = open(root, directory, Mode::empty())?;
    let Some(name) = inside.file_name() else {
        return Ok(Err("a folder"));
    };
    for part in inside.parent().into_iter().flat_map(Path::components) {
        parent = openat(&parent, part.as_os_str(), directory, Mode::empty())?;
    }
    // Opening some devices does something. So this looks first, and again at what has been opened.
    let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some(other) = other_than_file(FileType::from_raw_mode(found.st_mode)) {
        return Ok(Err(other));
    }
    // Not to block: a pipe would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(&parent, name, flags | OFlags::NOCTTY, Mode::empty())?;
    let found = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    Ok(match other_than_file(found) {
        Some(other) => Err(other),
        None => Ok(File::from(file)),
    })
}

fn other_than_file(found: FileType) -> Option<&'static str> {
    Some(match found {
        FileType::RegularFile => return None,
        FileType::Directory => "a folder",
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const MAX: u64 = 1 << 20;

    /// A folder `home` with a model in `home/model`.
    fn model() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let model = home.path().join("model");
        fs::create_dir(&model).unwrap();
        (home, model)
    }

    fn refusal(folder: &Path, name: &str) -> String {
        let error = read_model_file(folder, name, MAX).unwrap_err().to_string();
        assert!(open_model_file(folder, name).is_err());
        error.replace(folder.parent().unwrap().to_str().unwrap(), "HOME")
    }

    #[test]
    fn files_in_the_folder_are_read_through_links_in_it_too() {
        let (home, model) = model();
        fs::create_dir(model.join("sub")).unwrap();
        fs::write(model.join("a"), "1").unwrap();
        fs::write(model.join("sub/b"), "2").unwrap();
        symlink("sub/b", model.join("c")).unwrap();
        symlink(&model, home.path().join("link")).unwrap();
        for folder in [model, home.path().join("link")] {
            for (name, content) in [("a", b"1"), ("sub/b", b"2"), ("c", b"2")] {
                assert_eq!(
                    read_model_file(&folder, name, 1).unwrap(),
                    content,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_snapshot_of_the_hubs_cache_reads_the_content_that_all_repositories_share() {
        let home = tempfile::tempdir().unwrap();
        let repository = home.path().join("models--org--name");
        let snapshot = repository.join("snapshots/0123abcd");
        let shared = home.path().join("blobs");
        for folder in [&snapshot, &repository.join("blobs"), &shared.join("ab")] {
            fs::create_dir_all(folder).unwrap();
        }
        let hash = "ab".repeat(32);
        for (name, blob) in [(hash.as_str(), "one"), ("secret", "two")] {
            fs::write(shared.join("ab").join(name), "1").unwrap();
            let content = Path::new("../../blobs/ab").join(name);
            symlink(content, repository.join("blobs").join(blob)).unwrap();
            let target = Path::new("../../blobs").join(blob);
            symlink(target, snapshot.join(blob)).unwrap();
        }
        let is_outside = |name: &str| {
            let read = read_model_file(&snapshot, name, 1);
            matches!(read, Err(ModelFileError::Outside { .. }))
        };
        assert!(is_outside("one"));
        fs::write(shared.join(".huggingface-shared-blobs"), "1\n").unwrap();
        assert_eq!(read_model_file(&snapshot, "one", 1).unwrap(), b"1");
        assert!(is_outside("two"));
    }

    #[test]
    fn a_snapshot_of_the_hubs_cache_reads_the_blobs_of_its_own_repository() {
        let home = tempfile::tempdir().unwrap();
        let repository = home.path().join("models--org--name");
        let snapshot = repository.join("snapshots/0123abcd");
        let other = home.path().join("models--org--other/blobs");
        for folder in [&snapshot.join("sub"), &repository.join("blobs"), &other] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(repository.join("blobs/f00"), "1").unwrap();
        fs::write(other.join("f00"), "2").unwrap();
        symlink("../../blobs/f00", snapshot.join("config.json")).unwrap();
        symlink("../../../blobs/f00", snapshot.join("sub/config.json")).unwrap();
        symlink(
            "../../../models--org--other/blobs/f00",
            snapshot.join("other"),
        )
        .unwrap();
        symlink(&snapshot, home.path().join("link")).unwrap();
        for (folder, name) in [
            (snapshot.clone(), "config.json"),
            (snapshot.clone(), "sub/config.json"),
            (snapshot.join("sub"), "config.json"),
            (home.path().join("link"), "config.json"),
        ] {
            assert_eq!(read_model_file(&folder, name, 1).unwrap(), b"1");
        }
        let error = read_model_file(&snapshot, "other", 1).unwrap_err();
        assert!(matches!(error, ModelFileError::Outside { .. }), "{error}");
        // Without the layout of the cache around it, a link to a folder of that name is a link out.
        let plain = home.path().join("plain");
        fs::create_dir_all(plain.join("blobs")).unwrap();
        fs::create_dir_all(plain.join("snapshots/1")).unwrap();
        fs::write(plain.join("blobs/f00"), "1").unwrap();
        symlink("../../blobs/f00", plain.join("snapshots/1/a")).unwrap();
        let error = read_model_file(&plain.join("snapshots/1"), "a", 1).unwrap_err();
        assert!(matches!(error, ModelFileError::Outside { .. }), "{error}");
    }

    #[test]
    fn links_out_of_the_folder_are_refused_by_name() {
        let (home, model) = model();
        fs::write(home.path().join("secret"), "key").unwrap();
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        fs::write(home.path().join("elsewhere/a"), "key").unwrap();
        symlink("../secret", model.join("template")).unwrap();
        symlink("/proc/self/environ", model.join("environment")).unwrap();
        symlink("/etc/passwd", model.join("passwd")).unwrap();
        symlink("../elsewhere", model.join("sub")).unwrap();
        let rule = "outside of the model's folder: a file must lie in the folder, or in the blobs \
                    of the same repository of the Hugging Face Hub's cache";
        for (name, target) in [
            ("template", "HOME/secret".to_owned()),
            (
                "environment",
                format!("/proc/{}/environ", std::process::id()),
            ),
            ("passwd", "/etc/passwd".to_owned()),
            ("sub/a", "HOME/elsewhere/a".to_owned()),
        ] {
            assert_eq!(
                refusal(&model, name),
                format!("HOME/model/{name} is a link to {target}, {rule}")
            );
        }
        for name in [
            "../secret",
            "sub/../../secret",
            "/etc/passwd",
            "",
            ".",
            "..",
        ] {
            assert_eq!(
                refusal(&model, name),
                format!("{name:?} is no name of a file in the model's folder HOME/model")
            );
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_home, model) = model();
        rustix::fs::mkfifoat(rustix::fs::CWD, model.join("pipe"), Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(model.join("socket")).unwrap();
        fs::create_dir(model.join("sub")).unwrap();
        for (name, found) in [
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("sub", "a folder"),
        ] {
            let expected = format!("HOME/model/{name} is {found}, not a regular file");
            assert_eq!(refusal(&model, name), expected);
        }
        symlink("nothing", model.join("dangling")).unwrap();
        for name in ["missing", "dangling"] {
            assert_eq!(
                refusal(&model, name),
                format!("HOME/model/{name} is missing")
            );
        }
        // A regular file that says it is empty, and is not.
        symlink("/dev/zero", model.join("zeros")).unwrap();
        assert!(refusal(&model, "zeros").contains("is a link to /dev/zero"));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let (_home, model) = model();
        // Sparse: takes no room on the disk.
        let file = File::create(model.join("large")).unwrap();
        file.set_len(MAX + 1).unwrap();
        assert_eq!(
            refusal_of_size(&model),
            format!(
                "HOME/model/large has {} bytes; at most {MAX} are read of such a file",
                MAX + 1
            )
        );
        file.set_len(MAX).unwrap();
        assert_eq!(
            read_model_file(&model, "large", MAX).unwrap().len() as u64,
            MAX
        );
    }

    fn refusal_of_size(model: &Path) -> String {
        let error = read_model_file(model, "large", MAX)
            .unwrap_err()
            .to_string();
        error.replace(model.parent().unwrap().to_str().unwrap(), "HOME")
    }
}
