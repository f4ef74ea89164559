//! `--prefix-caching-hash-algo` and `--kv-events-config`: how blocks of the prefix cache are named, and who hears of
//! them.

use protocol::PrefixCachingHashAlgo;

use super::EngineArgs;
use crate::error::ValidationError;
use crate::kv_events::KVEventsConfig;

/// The environment variable that vLLM begins its hashes with.
const SEED: &str = "PYTHONHASHSEED";

/// `--prefix-caching-hash-algo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixCachingHashArg {
    /// Formwork's own.
    Blake3,
    /// vLLM's of this name.
    Sha256Cbor,
}

/// Reads the flag. vLLM's other names are known, and why they are not served.
pub(super) fn prefix_caching_hash_algo(text: &str) -> Result<PrefixCachingHashArg, String> {
    const RIGHT: &str = "must be blake3, or sha256_cbor to be equal to vLLM's";
    match text {
        "blake3" => Ok(PrefixCachingHashArg::Blake3),
        "sha256_cbor" => Ok(PrefixCachingHashArg::Sha256Cbor),
        "sha256" | "xxhash" => Err(format!(
            "{RIGHT}: {text} hashes Python's own form of its objects, which differs between versions of Python"
        )),
        "xxhash_cbor" => Err(format!(
            "{RIGHT}: {text} has collisions that can be made on purpose, by which one caller reads another's prompt"
        )),
        _ => Err(RIGHT.to_owned()),
    }
}

impl EngineArgs {
    /// The hash of blocks. The seed is vLLM's, from the environment.
    pub(super) fn hash_algo(&self) -> PrefixCachingHashAlgo {
        match self.prefix_caching_hash_algo {
            PrefixCachingHashArg::Blake3 => PrefixCachingHashAlgo::Blake3,
            PrefixCachingHashArg::Sha256Cbor => PrefixCachingHashAlgo::Sha256Cbor {
                seed: std::env::var(SEED).unwrap_or_default(),
            },
        }
    }

    /// How events are published, where they are.
    pub fn kv_events(&self) -> Option<&KVEventsConfig> {
        self.kv_events_config
            .as_ref()
            .filter(|config| config.is_enabled)
    }

    /// Refuses a hash without a seed, and events of no cache or from more cores than there are addresses for.
    pub(super) fn verify_prefix_cache(&self) -> Result<(), ValidationError> {
        let seed = std::env::var(SEED).ok();
        self.verify_prefix_cache_with(seed.as_deref())
    }

    fn verify_prefix_cache_with(&self, seed: Option<&str>) -> Result<(), ValidationError> {
        let needs_seed = self.prefix_caching_hash_algo == PrefixCachingHashArg::Sha256Cbor;
        if needs_seed && seed.is_none_or(str::is_empty) {
            let message = format!(
                "--prefix-caching-hash-algo: sha256_cbor begins with the environment variable {SEED}, which is not set; \
                 give all replicas the same, such as {SEED}=0"
            );
            return Err(ValidationError::new(message));
        }
        let Some(config) = self.kv_events() else {
            return Ok(());
        };
        let refuse = |why: String| {
            let message = format!("--kv-events-config: {why}");
            Err(ValidationError::new(message))
        };
        if self.no_enable_prefix_caching {
            return refuse(
                "events are those of the prefix cache, which --no-enable-prefix-caching turns off; leave one of the two \
                 out"
                .to_owned(),
            );
        }
        config.verify_for(self.data_parallel_size).or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_cannot_be_equal_are_refused_by_name() {
        let read = prefix_caching_hash_algo;
        assert_eq!(read("sha256_cbor"), Ok(PrefixCachingHashArg::Sha256Cbor));
        assert_eq!(read("blake3"), Ok(PrefixCachingHashArg::Blake3));
        for (text, says) in [
            ("sha256", "sha256 hashes Python's own form"),
            ("xxhash", "xxhash hashes Python's own form"),
            ("xxhash_cbor", "xxhash_cbor has collisions"),
            ("md5", "must be blake3, or sha256_cbor"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mut args = EngineArgs {
            prefix_caching_hash_algo: PrefixCachingHashArg::Sha256Cbor,
            ..EngineArgs::default()
        };
        for seed in [None, Some("")] {
            let problem = args.verify_prefix_cache_with(seed).unwrap_err().to_string();
            assert!(problem.contains("PYTHONHASHSEED=0"), "{problem}");
        }
        assert_eq!(args.verify_prefix_cache_with(Some("0")), Ok(()));

        let config = r#"{"enable_kv_cache_events": true, "replay_endpoint": "tcp://*:5558"}"#;
        args.kv_events_config = Some(KVEventsConfig::from_json(config).unwrap());
        assert_eq!(args.verify_prefix_cache_with(Some("0")), Ok(()));
        args.data_parallel_size = 2;
        let problem = args.verify_prefix_cache_with(Some("0")).unwrap_err();
        assert!(
            problem.to_string().contains("at least 2 apart"),
            "{problem}"
        );
        args.data_parallel_size = 1;
        args.no_enable_prefix_caching = true;
        let problem = args.verify_prefix_cache_with(Some("0")).unwrap_err();
        assert!(
            problem.to_string().contains("--no-enable-prefix-caching"),
            "{problem}"
        );
        // Events that are off go with anything.
        let off = r#"{"enable_kv_cache_events": false, "replay_endpoint": "tcp://*:5558"}"#;
        args.kv_events_config = Some(KVEventsConfig::from_json(off).unwrap());
        assert_eq!(args.verify_prefix_cache_with(Some("0")), Ok(()));
    }
}
