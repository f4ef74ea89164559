//! Checksums by which the Hub names its files.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// Hashes a file as its ETag says: SHA-256 for files of Git LFS and Xet, Git's own SHA-1 for others.
#[derive(Clone)]
pub(crate) struct FileDigest {
    /// Name of the checksum, and its state. `None` where the ETag is neither, as some mirrors make them.
    context: Option<(&'static str, Context)>,
}

impl FileDigest {
    /// A digest for a file of `size` bytes with this ETag.
    pub(crate) fn new(etag: &str, size: u64) -> Self {
        let context = match etag.len() {
            64 if is_checksum(etag) => Some(("SHA-256", Context::new(&SHA256))),
            40 if is_checksum(etag) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                Some(("Git's SHA-1", context))
            }
            _ => None,
        };
        Self { context }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some((_, context)) = &mut self.context {
            context.update(bytes);
        }
    }

    /// The checksum's kind and value, where there is one.
    pub(crate) fn finish(&self) -> Option<(&'static str, String)> {
        let (kind, context) = self.context.clone()?;
        let digest = context.finish();
        let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
        Some((kind, hex.collect()))
    }
}

/// True if an ETag is a checksum by which a file can be verified.
pub(crate) fn is_checksum(etag: &str) -> bool {
    matches!(etag.len(), 40 | 64) && etag.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The name of a file's content in the cache: its checksum. An ETag that is none, as mirrors make them, may be
/// that of several files, so a name made of it has the file's path and length as well.
pub(crate) fn blob_name(etag: String, path: &str, bytes: u64) -> String {
    const SHOWN_BYTES: usize = 8;
    if is_checksum(&etag) {
        return etag;
    }
    let mut context = Context::new(&SHA256);
    context.update(&bytes.to_le_bytes());
    context.update(path.as_bytes());
    let digest = context.finish();
    let hex = digest.as_ref().iter().take(SHOWN_BYTES);
    let hex: String = hex.map(|byte| format!("{byte:02x}")).collect();
    format!("{etag}-{hex}")
}

/// The checksum of a content.
#[cfg(test)]
pub(crate) fn checksum(etag: &str, content: &[u8]) -> Option<String> {
    let mut digest = FileDigest::new(etag, content.len() as u64);
    digest.update(content);
    digest.finish().map(|(_, hex)| hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_says_which_checksum_it_is() {
        // As `sha256sum` and `git hash-object` print them.
        let sha256 = "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4";
        let git = "32f95c0d1244a78b2be1bab8de17906fb2d2e41c";
        assert_eq!(checksum(sha256, b"hi\n").as_deref(), Some(sha256));
        assert_eq!(
            checksum(&"0".repeat(40), b"hi\n").as_deref().map(str::len),
            Some(40)
        );
        assert_eq!(
            checksum(git, b"hello\n").as_deref(),
            Some("ce013625030ba8dba906f756967f9e9ca394464a")
        );
        assert_eq!(checksum("W-some-mirror", b"hi\n"), None);
        assert_eq!(checksum(&"g".repeat(64), b"hi\n"), None);
    }

    #[test]
    fn only_a_checksum_names_a_content_by_itself() {
        let name = |etag: &str, path, bytes| blob_name(etag.to_owned(), path, bytes);
        let git = "32f95c0d1244a78b2be1bab8de17906fb2d2e41c";
        assert_eq!(name(git, "a", 1), git);
        let mirror = name("m", "a", 1);
        assert!(mirror.starts_with("m-") && mirror.len() == 18, "{mirror}");
        assert_eq!(mirror, name("m", "a", 1));
        assert_ne!(mirror, name("m", "b", 1));
        assert_ne!(mirror, name("m", "a", 2));
    }
}
