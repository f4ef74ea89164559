//! From a name to a path: what is missing is downloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::blob::Downloads;
use crate::cache::{RepositoryCache, at, read_index};
use crate::client::Client;
use crate::error::HubError;
use crate::files::{INDEX, gguf_file, gguf_parts, small_files, weight_files};
use crate::limits::PARALLEL_FILES;
use crate::listing::{Listing, Patience, RemoteFile, describe, list};
use crate::name::HubName;
use crate::settings::HubSettings;

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress {
    /// Bytes that are there, also from an earlier download that was cut.
    pub done_bytes: u64,
    /// Bytes of all files that are known to be missing. It grows when the list of weights is read.
    pub total_bytes: u64,
}

/// Counts the bytes of all files, and tells of them.
pub(crate) struct Meter<'a> {
    done: AtomicU64,
    total: AtomicU64,
    on_progress: &'a (dyn Fn(FetchProgress) + Sync),
}

impl<'a> Meter<'a> {
    fn new(on_progress: &'a (dyn Fn(FetchProgress) + Sync)) -> Self {
        Self {
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            on_progress,
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        (self.on_progress)(FetchProgress {
            done_bytes: before.saturating_add(bytes),
            total_bytes: self.total.load(Ordering::Relaxed),
        });
    }

    /// Bytes that were counted were thrown away.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A Hub and its cache on this machine.
#[derive(Debug)]
pub struct Hub {
    settings: HubSettings,
}

impl Hub {
    /// A Hub with these settings. Nothing is asked yet.
    pub fn new(settings: HubSettings) -> Self {
        Self { settings }
    }

    /// The folder of a model, or its GGUF file, after a download of what is missing. Where the Hub doesn't say
    /// what it has the cache is used, with a warning in the log.
    ///
    /// # Errors
    /// [`HubError`]. What has arrived by then is kept, and the next call goes on from there.
    pub fn fetch(
        &self,
        name: &HubName,
        on_progress: &(dyn Fn(FetchProgress) + Sync),
    ) -> Result<PathBuf, HubError> {
        let cache = RepositoryCache::new(&self.settings.cache, &name.repository);
        if self.settings.is_offline {
            return cache.find(name).map_err(|missing| HubError::Offline {
                name: name.to_string(),
                missing,
                cache: self.settings.cache.clone(),
            });
        }
        let cached = cache.find(name);
        let patience = Patience::new(&self.settings, cached.is_ok());
        let asked = Client::new(&self.settings)
            .and_then(|client| list(&client, patience, name).map(|listing| (client, listing)));
        let (client, listing) = match (asked, cached) {
            (Ok(asked), _) => asked,
            (Err(error), Ok(path)) => {
                tracing::warn!(
                    "{name} is taken from the cache, and may be older than the Hub's: {error}"
                );
                return Ok(path);
            }
            (Err(error), Err(_)) => return Err(error),
        };
        let meter = Meter::new(on_progress);
        let fetching = Fetching {
            client: &client,
            settings: &self.settings,
            name,
            cache: &cache,
            listing: &listing,
            meter: &meter,
        };
        let path = fetching.run()?;
        // A cache that can't be written to may have all of the model.
        if let Err(error) = cache.set_ref(name.revision(), &listing.commit) {
            tracing::warn!("without a network {name} will not be found: {error}");
        }
        Ok(path)
    }
}

/// A download of one revision.
struct Fetching<'a> {
    client: &'a Client,
    settings: &'a HubSettings,
    name: &'a HubName,
    cache: &'a RepositoryCache,
    listing: &'a Listing,
    meter: &'a Meter<'a>,
}

impl Fetching<'_> {
    fn run(&self) -> Result<PathBuf, HubError> {
        let (repository, files) = (&self.name.repository, &self.listing.files);
        let snapshot = self.cache.snapshot(&self.listing.commit);
        if let Some(file) = &self.name.file {
            let file = gguf_file(repository, files, file)?;
            self.get(&gguf_parts(repository, files, &file)?)?;
            return Ok(snapshot.join(file));
        }
        self.get(&small_files(repository, files)?)?;
        let index_path = snapshot.join(INDEX);
        let index = match files.iter().any(|file| file == INDEX) {
            true => read_index(&snapshot).map_err(at(&index_path))?,
            false => None,
        };
        let weights = weight_files(index.as_deref(), files).map_err(|why| HubError::Nonsense {
            url: format!("{INDEX} of {repository}"),
            why,
        })?;
        if let Some(missing) = weights.iter().find(|file| !files.contains(file)) {
            return Err(HubError::NotAModel {
                repository: repository.clone(),
                missing: format!("{missing}, which its {INDEX} names"),
                gguf_files: Vec::new(),
            });
        }
        self.get(&weights)?;
        Ok(snapshot)
    }

    /// Downloads files that the snapshot lacks.
    fn get(&self, files: &[String]) -> Result<(), HubError> {
        let missing: Vec<&String> = files.iter().filter(|file| !self.has(file)).collect();
        let is_stopped = AtomicBool::new(false);
        // All sizes are known before the first byte, so that the progress has a whole.
        let described = self.describe(&missing, &is_stopped)?;
        self.check_room(&described)?;
        let commit = &self.listing.commit;
        let downloads = Downloads {
            client: self.client,
            settings: self.settings,
            name: self.name,
            commit,
            cache: self.cache,
            meter: self.meter,
            is_stopped: &is_stopped,
        };
        in_parallel(&described, &is_stopped, |file| {
            downloads.download(file)?;
            self.cache.link(commit, &file.path, &file.blob)
        })
    }

    /// True if the snapshot has a file. One of another length is damaged, unless somebody put it there in
    /// place of the link.
    fn has(&self, file: &str) -> bool {
        let path = self.cache.snapshot(&self.listing.commit).join(file);
        let (Ok(found), known) = (fs::metadata(&path), self.listing.known.get(file)) else {
            return false;
        };
        let Some(known) = known.filter(|known| known.bytes != found.len()) else {
            return true;
        };
        if path.is_symlink() {
            tracing::warn!(
                "{file} of {} is damaged in the cache, and downloaded again: it has {} bytes instead of {}",
                self.name.repository,
                found.len(),
                known.bytes
            );
        }
        !path.is_symlink()
    }

    /// Checksums and lengths of files, the largest first: it doesn't run alone at the end then.
    fn describe(
        &self,
        files: &[&String],
        is_stopped: &AtomicBool,
    ) -> Result<Vec<RemoteFile>, HubError> {
        let described = Mutex::new(Vec::new());
        let patience = Patience::new(self.settings, false);
        in_parallel(files, is_stopped, |file| {
            let file = match self.listing.known.get(*file) {
                Some(known) => known.clone(),
                None => describe(self.client, patience, self.name, &self.listing.commit, file)?,
            };
            self.meter.expect(file.bytes);
            lock(&described).push(file);
            Ok(())
        })?;
        let mut described = described
            .into_inner()
            .unwrap_or_else(|error| error.into_inner());
        described.sort_by(|a: &RemoteFile, b| (b.bytes, &a.path).cmp(&(a.bytes, &b.path)));
        Ok(described)
    }

    /// Refuses a download that the disk has no room for.
    fn check_room(&self, files: &[RemoteFile]) -> Result<(), HubError> {
        let missing = files
            .iter()
            .map(|file| self.cache.missing_bytes(file))
            .sum();
        match free_bytes(&self.settings.cache) {
            Some(free) if missing > free => Err(HubError::DiskFull {
                what: self.name.repository.clone(),
                missing,
                free: Some(free),
                cache: self.settings.cache.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// Free bytes of the disk that a folder is on, or will be. `None` if the system doesn't say.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = folder
        .ancestors()
        .find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    // Some file systems know no size.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Does something with each item, a few at a time. After an error no further one is begun, and
/// `is_stopped` tells the others.
fn in_parallel<T: Sync>(
    items: &[T],
    is_stopped: &AtomicBool,
    work: impl Fn(&T) -> Result<(), HubError> + Sync,
) -> Result<(), HubError> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_FILES.min(items.len()) {
            scope.spawn(|| {
                while !is_stopped.load(Ordering::Relaxed)
                    && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if let Err(error) = work(item) {
                        // In this order: the first error is the cause of those that say "stopped".
                        lock(&failure).get_or_insert(error);
                        is_stopped.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failure
        .into_inner()
        .unwrap_or_else(|error| error.into_inner())
    {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Nobody panics while it is held.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}
