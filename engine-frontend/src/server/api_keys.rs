//! The keys that a server knows: who has them and what they may do.

mod file;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

pub use file::{ApiKeyEntry, ApiKeysError, Scope};

use super::access_args::AccessArgs;
use super::rate_limit::{KeyLimits, KeyUsage};

/// What the salts of keys are hashes for.
const SALT_CONTEXT: &str = "formwork 2026-11 prefix cache salt of an API key";
/// Hexadecimal digits of a key's salt: 128 bits, so that no two keys have the same.
const SALT_DIGITS: usize = 32;

/// A key: of a client that has shown it, in the extensions of its request.
#[derive(Debug)]
pub(super) struct ApiKey {
    /// Who has it. A key of the command line has its number.
    pub(super) name: String,
    hash: blake3::Hash,
    scopes: Vec<Scope>,
    pub(super) limits: KeyLimits,
    /// Shared with the key of this hash that stood in the file before it was read again.
    pub(super) usage: Arc<KeyUsage>,
    /// Keeps the key's cached prefixes from other keys.
    pub(super) cache_salt: Option<Arc<str>>,
}

impl ApiKey {
    /// True if the key may ask for what needs `scope`.
    pub(super) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Tells the key from others, also when the file was read again.
    pub(super) fn id(&self) -> u64 {
        let (id, _) = self
            .hash
            .as_bytes()
            .split_first_chunk()
            .unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*id)
    }

    /// A key of the command line: it may do everything.
    fn given(number: usize, key: &str) -> Self {
        Self {
            name: format!("--api-key {number}"),
            hash: blake3::hash(key.as_bytes()),
            scopes: Scope::ALL.to_vec(),
            limits: KeyLimits::default(),
            usage: Arc::default(),
            cache_salt: None,
        }
    }

    /// A key of the file, which [`file::read`] has checked.
    fn from_entry(entry: ApiKeyEntry) -> Option<Self> {
        let hash = entry.key_hash().ok()?;
        Some(Self {
            hash,
            limits: KeyLimits {
                requests_per_minute: entry.requests_per_minute.map(Into::into),
                tokens_per_minute: entry.tokens_per_minute.map(Into::into),
                max_concurrent_requests: entry.max_concurrent_requests.map(Into::into),
            },
            usage: Arc::default(),
            cache_salt: entry.cache_salt.map(|own| salt("named", own.as_bytes())),
            name: entry.name,
            scopes: entry.scopes,
        })
    }
}

/// A salt of fixed length, different for each `kind` and `material`.
fn salt(kind: &str, material: &[u8]) -> Arc<str> {
    let mut hasher = blake3::Hasher::new_derive_key(SALT_CONTEXT);
    hasher.update(kind.as_bytes()).update(b":").update(material);
    let digits = hasher.finalize().to_hex();
    digits.get(..SALT_DIGITS).unwrap_or_default().into()
}

/// All keys of a server. Those of the file can be read again while requests are served.
#[derive(Debug)]
pub(super) struct ApiKeys {
    given: Vec<String>,
    file: Option<PathBuf>,
    shares_prefix_cache: bool,
    keys: RwLock<Vec<Arc<ApiKey>>>,
}

impl ApiKeys {
    /// The keys that `args` give and name.
    ///
    /// # Errors
    /// The file of keys can't be used.
    pub(super) fn load(args: &AccessArgs) -> Result<Self, ApiKeysError> {
        let keys = Self {
            given: args.api_key.clone(),
            file: args.api_keys.clone(),
            shares_prefix_cache: args.shared_prefix_cache,
            keys: RwLock::default(),
        };
        keys.reload()?;
        Ok(keys)
    }

    /// True if requests need a key.
    pub(super) fn are_required(&self) -> bool {
        !self.given.is_empty() || self.file.is_some()
    }

    /// True if some key may ask for what needs `scope`.
    pub(super) fn any_has(&self, scope: Scope) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().any(|key| key.has(scope))
    }

    /// Reads the file again and returns how many keys there are now. What a key has taken of its limits
    /// is kept.
    ///
    /// # Errors
    /// The file can't be used. The keys stay as they were.
    pub(super) fn reload(&self) -> Result<usize, ApiKeysError> {
        let given = (1..).zip(&self.given);
        let mut keys: Vec<ApiKey> = given.map(|(n, key)| ApiKey::given(n, key)).collect();
        if let Some(path) = &self.file {
            let entries = file::read(path)?;
            keys.extend(entries.into_iter().filter_map(ApiKey::from_entry));
        }
        if keys.len() > 1 && !self.shares_prefix_cache {
            for key in &mut keys {
                let own = || salt("key", key.hash.as_bytes());
                key.cache_salt = Some(key.cache_salt.take().unwrap_or_else(own));
            }
        }
        let count = keys.len();
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for key in &mut keys {
            if let Some(before) = current.iter().find(|before| before.hash == key.hash) {
                key.usage = before.usage.clone();
            }
        }
        *current = keys.into_iter().map(Arc::new).collect();
        Ok(count)
    }

    /// The key that is `given`. Compares hashes, in constant time, and all of them: nothing about a key
    /// is in the time taken.
    pub(super) fn find(&self, given: &[u8]) -> Option<Arc<ApiKey>> {
        let given = blake3::hash(given);
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let found = keys.iter().fold(
            None,
            |found, key| {
                if key.hash == given { Some(key) } else { found }
            },
        );
        found.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args() -> AccessArgs {
        AccessArgs {
            api_key: Vec::new(),
            api_keys: None,
            open_routes: false,
            shared_prefix_cache: false,
            management_port: None,
            management_host: String::new(),
            audit_log: None,
        }
    }

    fn given(keys: &[&str]) -> AccessArgs {
        AccessArgs {
            api_key: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..args()
        }
    }

    fn salt_of(keys: &ApiKeys, key: &str) -> Option<Arc<str>> {
        keys.find(key.as_bytes()).unwrap().cache_salt.clone()
    }

    #[test]
    fn any_of_the_keys_will_do() {
        let keys = ApiKeys::load(&given(&["one", "two"])).unwrap();
        assert!(keys.are_required());
        assert_eq!(keys.find(b"two").unwrap().name, "--api-key 2");
        for scope in Scope::ALL {
            assert!(keys.find(b"one").unwrap().has(scope));
        }
        for wrong in [&b"three"[..], b"on", b"", b" one", b"oneone"] {
            assert!(keys.find(wrong).is_none(), "{wrong:?}");
        }
        let none = ApiKeys::load(&args()).unwrap();
        assert!(!none.are_required() && none.find(b"").is_none());
    }

    #[test]
    fn several_keys_share_no_cached_prefix() {
        let keys = ApiKeys::load(&given(&["one", "two"])).unwrap();
        let (one, two) = (
            salt_of(&keys, "one").unwrap(),
            salt_of(&keys, "two").unwrap(),
        );
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (SALT_DIGITS, SALT_DIGITS));
        // Other servers of the same core say the same.
        let other = ApiKeys::load(&given(&["two", "one"])).unwrap();
        assert_eq!(salt_of(&other, "one"), Some(one));
        let single = ApiKeys::load(&given(&["one"])).unwrap();
        assert_eq!(salt_of(&single, "one"), None);
        let shared = AccessArgs {
            shared_prefix_cache: true,
            ..given(&["one", "two"])
        };
        assert_eq!(salt_of(&ApiKeys::load(&shared).unwrap(), "one"), None);
    }

    #[test]
    fn a_file_is_read_again_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let write = |entries: &[ApiKeyEntry]| {
            let lines = entries
                .iter()
                .map(|e| serde_json::to_string(e).unwrap() + "\n");
            std::fs::write(&path, lines.collect::<String>()).unwrap();
            // Whatever the umask of who runs the test.
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        let mut alice = ApiKeyEntry::new("alice", "a-key").unwrap();
        alice.requests_per_minute = std::num::NonZeroU32::new(1);
        alice.cache_salt = Some("team".to_owned());
        let mut bob = ApiKeyEntry::new("bob", "b-key").unwrap();
        bob.cache_salt = Some("team".to_owned());
        let carol = ApiKeyEntry::new("carol", "c-key").unwrap();
        write(&[alice.clone(), bob.clone()]);
        let keys = ApiKeys::load(&AccessArgs {
            api_keys: Some(path.clone()),
            ..args()
        })
        .unwrap();
        // A team shares what it cached.
        assert_eq!(salt_of(&keys, "a-key"), salt_of(&keys, "b-key"));
        assert!(salt_of(&keys, "a-key").is_some());
        let key = keys.find(b"a-key").unwrap();
        assert!(key.has(Scope::Inference) && !key.has(Scope::Metrics) && !key.has(Scope::Admin));
        let now = Instant::now();
        assert!(key.usage.begin(&key.limits, 1, now).is_ok());

        std::fs::write(&path, "{\"name\": ").unwrap();
        let error = keys.reload().unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        assert!(keys.find(b"b-key").is_some());

        write(&[alice, carol]);
        assert_eq!(keys.reload().unwrap(), 2);
        assert!(keys.find(b"b-key").is_none() && keys.find(b"c-key").is_some());
        // What was taken before is still taken.
        let key = keys.find(b"a-key").unwrap();
        assert!(key.usage.begin(&key.limits, 1, now).is_err());

        std::fs::remove_file(&path).unwrap();
        assert!(keys.reload().is_err() && keys.find(b"c-key").is_some());
    }
}
