//! The output: who may write it, and one write per line.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::BatchError;

/// What to do with an output file that has something in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPolicy {
    /// Refuse it.
    Refuse,
    /// Replace it.
    Overwrite,
    /// Go on with it.
    Resume,
}

/// Where the results go.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    /// There was no such file before.
    is_new: bool,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Stdout(io::Stdout),
    /// A pipe or a device: nothing to lock or to cut.
    Stream(File),
    File(File),
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started by another thread has copies
        // of all open files until it is itself, and the lock would live as long.
        if let Target::File(file) = &self.target {
            let _ = file.unlock();
        }
    }
}

impl OutputFile {
    /// Opens the output and claims it for this process; nothing in it changes yet. `-` is
    /// standard output.
    ///
    /// # Errors
    /// It can't be written, belongs to another running batch, or has something in it that the
    /// policy doesn't allow. That it isn't the input is [`refuse_same_file`]'s to say.
    pub fn open(path: &Path, policy: OutputPolicy) -> Result<Self, BatchError> {
        let not_resumable = || BatchError::NotResumable {
            path: path.to_owned(),
        };
        if path == Path::new("-") {
            if policy == OutputPolicy::Resume {
                return Err(not_resumable());
            }
            return Ok(Self {
                path: path.to_owned(),
                is_new: false,
                target: Target::Stdout(io::stdout()),
            });
        }
        let failed = |source| BatchError::Output {
            path: path.to_owned(),
            source,
        };
        let is_stream = path
            .metadata()
            .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
        if is_stream {
            if policy == OutputPolicy::Resume {
                return Err(not_resumable());
            }
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok(Self {
                path: path.to_owned(),
                is_new: false,
                target: Target::Stream(file),
            });
        }
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BatchError::OutputLocked {
                    path: path.to_owned(),
                });
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        let length = file.metadata().map_err(failed)?.len();
        if length > 0 && policy == OutputPolicy::Refuse {
            return Err(BatchError::OutputExists {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            is_new,
            target: Target::File(file),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes back a file that [`open`](Self::open) made, before anything was written to it.
    pub fn discard(self) {
        if self.is_new {
            // An empty file stays behind where this fails; every policy accepts that.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Another handle for reading from the start; `None` where there is no file.
    ///
    /// # Errors
    /// The system refuses.
    pub fn reader(&self) -> Result<Option<File>, BatchError> {
        let Target::File(file) = &self.target else {
            return Ok(None);
        };
        let open = || {
            let mut reader = file.try_clone()?;
            reader.seek(SeekFrom::Start(0))?;
            Ok(Some(reader))
        };
        open().map_err(|source| self.failed(source))
    }

    /// Cuts the file to `length` bytes; what is written next follows them.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start_at(&mut self, length: u64) -> Result<(), BatchError> {
        if let Target::File(file) = &mut self.target {
            let mut cut = || {
                file.set_len(length)?;
                file.seek(SeekFrom::Start(length))
            };
            if let Err(source) = cut() {
                return Err(self.failed(source));
            }
        }
        Ok(())
    }

    /// Writes a line, its end included, at once.
    ///
    /// # Errors
    /// The disk is full, the reader of a pipe is gone, and the like.
    pub fn write_line(&mut self, line: &[u8]) -> Result<(), BatchError> {
        let written = match &mut self.target {
            Target::Stdout(stdout) => stdout.write_all(line).and_then(|()| stdout.flush()),
            Target::Stream(file) | Target::File(file) => file.write_all(line),
        };
        written.map_err(|source| self.failed(source))
    }

    /// Makes sure that the file outlives this process and the machine.
    ///
    /// # Errors
    /// The disk reports one, or somebody deleted the file.
    pub fn finish(&mut self) -> Result<(), BatchError> {
        let Target::File(file) = &self.target else {
            return Ok(());
        };
        let sync = || {
            file.sync_all()?;
            file.metadata()
        };
        match sync() {
            Ok(metadata) if metadata.nlink() == 0 => Err(BatchError::OutputDeleted {
                path: self.path.clone(),
            }),
            Ok(_) => Ok(()),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// How to go on after an end before the end.
    pub(super) fn advice(&self) -> &'static str {
        match self.target {
            Target::File(_) => "the same command with --resume goes on from there",
            Target::Stdout(_) | Target::Stream(_) => "the output can't be resumed",
        }
    }

    fn failed(&self, source: io::Error) -> BatchError {
        BatchError::Output {
            path: self.path.clone(),
            source,
        }
    }
}

/// Refuses an output that is the input itself: by name, symbolic link, hard link or redirection.
/// `-` is standard input and standard output.
///
/// # Errors
/// They are the same file or pipe.
pub fn refuse_same_file(input: &Path, output: &Path) -> Result<(), BatchError> {
    let dash = Path::new("-");
    let same_name = input == output && input != dash;
    let or_standard = |path: &Path, standard| {
        let path = if path == dash {
            Path::new(standard)
        } else {
            path
        };
        path.metadata()
    };
    let same_file = match (
        or_standard(input, "/dev/stdin"),
        or_standard(output, "/dev/stdout"),
    ) {
        // A terminal is both, and rightly so.
        (Ok(a), Ok(b)) => {
            (a.is_file() || a.file_type().is_fifo()) && (a.dev(), a.ino()) == (b.dev(), b.ino())
        }
        _ => false,
    };
    if same_name || same_file {
        return Err(BatchError::SameFile {
            path: input.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_with_content_needs_a_decision() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        drop(OutputFile::open(&path, OutputPolicy::Refuse).unwrap());
        // An empty file, as a kill may leave it, holds nothing to lose.
        drop(OutputFile::open(&path, OutputPolicy::Refuse).unwrap());
        fs::write(&path, "x\n").unwrap();
        let error = OutputFile::open(&path, OutputPolicy::Refuse).unwrap_err();
        assert!(matches!(error, BatchError::OutputExists { .. }));
        assert_eq!(error.exit_code(), 2);
        drop(OutputFile::open(&path, OutputPolicy::Overwrite).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    }

    #[test]
    fn a_discarded_output_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        OutputFile::open(&path, OutputPolicy::Refuse)
            .unwrap()
            .discard();
        assert!(!path.exists());
        fs::write(&path, "x\n").unwrap();
        OutputFile::open(&path, OutputPolicy::Overwrite)
            .unwrap()
            .discard();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    }

    #[test]
    fn the_input_by_any_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in");
        fs::write(&input, "x\n").unwrap();
        let mut names = vec![input.clone(), folder.path().join(".").join("in")];
        let hard = folder.path().join("hard");
        fs::hard_link(&input, &hard).unwrap();
        names.push(hard);
        let soft = folder.path().join("soft");
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        names.push(soft);
        for name in names {
            let error = refuse_same_file(&input, &name).unwrap_err();
            assert!(matches!(error, BatchError::SameFile { .. }), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "x\n");
    }

    #[test]
    fn names_are_compared_where_there_is_no_file() {
        let missing = Path::new("no/such/file");
        assert!(refuse_same_file(missing, missing).is_err());
        assert!(refuse_same_file(missing, Path::new("no/other")).is_ok());
        assert!(refuse_same_file(missing, Path::new("-")).is_ok());
    }

    #[test]
    fn two_batches_cannot_write_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let _held = OutputFile::open(&path, OutputPolicy::Refuse).unwrap();
        let error = OutputFile::open(&path, OutputPolicy::Resume).unwrap_err();
        assert!(matches!(error, BatchError::OutputLocked { .. }), "{error}");
    }

    #[test]
    fn unwritable_outputs_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/out")] {
            let error = OutputFile::open(&path, OutputPolicy::Refuse).unwrap_err();
            assert!(error.to_string().contains(&path.display().to_string()));
            assert_eq!(error.exit_code(), 1);
        }
    }

    #[test]
    fn writing_starts_after_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "one\ntw").unwrap();
        let mut output = OutputFile::open(&path, OutputPolicy::Resume).unwrap();
        output.start_at(4).unwrap();
        output.write_line(b"2\n").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n2\n");
    }

    #[test]
    fn a_file_that_is_deleted_meanwhile_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut output = OutputFile::open(&path, OutputPolicy::Refuse).unwrap();
        output.write_line(b"1\n").unwrap();
        output.finish().unwrap();
        fs::remove_file(&path).unwrap();
        let error = output.finish().unwrap_err();
        assert!(matches!(error, BatchError::OutputDeleted { .. }), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn only_files_can_be_resumed() {
        let error = OutputFile::open(Path::new("-"), OutputPolicy::Resume).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_copy_of_the_handle_does_not_keep_the_claim() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let output = OutputFile::open(&path, OutputPolicy::Refuse).unwrap();
        // As a process has that is being started.
        let copy = output.reader().unwrap();
        drop(output);
        OutputFile::open(&path, OutputPolicy::Refuse).unwrap();
        drop(copy);
    }
}
