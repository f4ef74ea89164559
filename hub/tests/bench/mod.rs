//! A Hub on this machine with a model, and a cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hub::{Hub, HubError, HubName, HubSettings};

use crate::fake_hub::{Access, COMMIT, FakeHub, Seen, etag};

pub(crate) const WEIGHTS: &str = "model.safetensors";

/// A Hub with the model `org/tiny`, and an empty cache.
pub(crate) struct Bench {
    pub(crate) hub: FakeHub,
    pub(crate) cache: tempfile::TempDir,
    pub(crate) weights: Vec<u8>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let hub = FakeHub::start();
        let weights: Vec<u8> = (0..100_000_u64).map(|i| (i * i / 7) as u8).collect();
        let files: [(&str, &[u8]); 8] = [
            (".gitattributes", b"*.safetensors lfs"),
            ("README.md", b"read me"),
            ("config.json", b"{}"),
            ("tokenizer.json", b"{\"model\": {}}"),
            ("tokenizer_config.json", b"{ }"),
            (WEIGHTS, &weights),
            ("pytorch_model.bin", b"pickled"),
            ("onnx/model.onnx", b"other"),
        ];
        hub.add("org/tiny", Access::Everybody, &files);
        hub.add("org/gated", Access::Gated("secret"), &files);
        hub.add("org/private", Access::Private("secret"), &files);
        Self {
            hub,
            cache: tempfile::tempdir().unwrap(),
            weights,
        }
    }

    pub(crate) fn settings(&self) -> HubSettings {
        HubSettings {
            endpoint: self.hub.endpoint.clone(),
            cache: self.cache.path().to_owned(),
            token: None,
            is_offline: false,
            uses_proxy: false,
            retry_pause: Duration::ZERO,
            answer_timeout: Duration::from_secs(10),
        }
    }

    pub(crate) fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        fetch(self.settings(), name)
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.cache.path().join("models--org--tiny")
    }

    pub(crate) fn snapshot(&self) -> PathBuf {
        self.repository().join("snapshots").join(COMMIT)
    }

    pub(crate) fn part(&self) -> PathBuf {
        let name = format!("{}.incomplete", etag(WEIGHTS, &self.weights));
        self.repository().join("blobs").join(name)
    }

    /// Ranges that were asked for of the weights' content.
    pub(crate) fn ranges(&self) -> Vec<Option<String>> {
        let is_content = |seen: &Seen| seen.is_cdn && seen.path.ends_with(WEIGHTS);
        let seen = self.hub.take_seen().into_iter().filter(is_content);
        seen.map(|seen| seen.range).collect()
    }
}

pub(crate) fn fetch(settings: HubSettings, name: &str) -> Result<PathBuf, HubError> {
    Hub::new(settings).fetch(&HubName::parse(name).unwrap(), &|_| {})
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn range(from: usize) -> Option<String> {
    Some(format!("bytes={from}-"))
}
