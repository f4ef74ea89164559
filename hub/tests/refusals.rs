//! A Hub that refuses, hangs or has mirrors, and caches that are damaged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod bench;
// The processes' tests use the rest of it.
#[allow(dead_code)]
mod fake_hub;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use bench::{Bench, WEIGHTS, fetch, range};
use fake_hub::{Access, ApiFault, Fault, etag};
use hub::{HubSettings, Token, cached_models, remove_model};

const BUSY: &[(&str, &str)] = &[("Retry-After", "100")];
const UNKNOWN_TOKEN: &[(&str, &str)] = &[(
    "X-Error-Message",
    "Invalid credentials in Authorization header",
)];

#[test]
fn a_model_in_the_cache_needs_no_word_of_the_hub() {
    let bench = Bench::new();
    let folder = bench.fetch("org/tiny").unwrap();
    for fault in [
        ApiFault::Status(401, UNKNOWN_TOKEN),
        ApiFault::Status(403, &[("X-Error-Code", "GatedRepo")]),
        ApiFault::Status(404, &[("X-Error-Code", "RepoNotFound")]),
        ApiFault::Status(429, BUSY),
        ApiFault::Status(503, &[]),
        ApiFault::LoginPage,
    ] {
        bench.hub.set_api_fault(Some(fault));
        bench.hub.take_seen();
        assert_eq!(bench.fetch("org/tiny").unwrap(), folder, "{fault:?}");
        assert_eq!(bench.hub.take_seen().len(), 1, "{fault:?}");
        bench.fetch("org/other").unwrap_err();
    }
    let broken = HubSettings {
        token: Some(Token::new("a\nb", "HF_TOKEN")),
        ..bench.settings()
    };
    assert_eq!(fetch(broken.clone(), "org/tiny").unwrap(), folder);
    let error = fetch(broken, "org/other").unwrap_err().to_string();
    assert!(
        error.starts_with("the token of HF_TOKEN is none: "),
        "{error}"
    );
}

#[test]
fn a_hub_that_hangs_is_waited_for_as_long_as_the_settings_say() {
    let bench = Bench::new();
    let folder = bench.fetch("org/tiny").unwrap();
    bench.hub.set_api_fault(Some(ApiFault::Silence));
    let hasty = HubSettings {
        answer_timeout: Duration::from_millis(200),
        ..bench.settings()
    };
    let start = Instant::now();
    assert_eq!(fetch(hasty, "org/tiny").unwrap(), folder);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_refusal_says_what_the_hub_says() {
    let bench = Bench::new();
    let endpoint = bench.hub.endpoint.clone();
    let told = |fault| {
        bench.hub.set_api_fault(Some(fault));
        bench.fetch("org/nope").unwrap_err().to_string()
    };
    assert_eq!(
        told(ApiFault::Status(401, &[])),
        format!(
            "the Hub at {endpoint} has no model org/nope, or it is private: check the name, and for a private \
             repository set HF_TOKEN to a token that may read it"
        )
    );
    assert!(
        told(ApiFault::Status(401, UNKNOWN_TOKEN)).contains("doesn't know the token of HF_TOKEN")
    );
    bench.hub.take_seen();
    assert_eq!(
        told(ApiFault::Status(429, BUSY)),
        format!(
            "the Hub at {endpoint} answers 429 Too Many Requests: try again in 100 s; with a token in HF_TOKEN it \
             answers more often"
        )
    );
    // Nobody waits as long without a word.
    assert_eq!(bench.hub.take_seen().len(), 1);
    let busy = told(ApiFault::Status(503, &[]));
    assert!(
        busy.ends_with("answers 503 Service Unavailable: try again later"),
        "{busy}"
    );
    assert_eq!(bench.hub.take_seen().len(), 3);
    let disabled = [
        ("X-Error-Code", "DisabledRepo"),
        ("X-Error-Message", "Access to this resource is disabled."),
    ];
    let disabled = told(ApiFault::Status(403, Box::leak(Box::new(disabled))));
    assert!(
        disabled.contains("(403, Access to this resource is disabled.)"),
        "{disabled}"
    );
}

#[test]
fn a_file_that_is_listed_and_gone_is_named() {
    let bench = Bench::new();
    bench.hub.set_fault(WEIGHTS, Some(Fault::Status(404, 1)));
    let error = bench.fetch("org/tiny").unwrap_err().to_string();
    assert!(
        error.starts_with("org/tiny has no file model.safetensors"),
        "{error}"
    );
}

#[test]
fn damaged_content_in_the_cache_is_downloaded_again() {
    let bench = Bench::new();
    let folder = bench.fetch("org/tiny").unwrap();
    let weights = folder.join(WEIGHTS);
    for length in [0, 50_000, 200_000] {
        let file = fs::File::options().write(true).open(&weights).unwrap();
        file.set_len(length).unwrap();
        bench.ranges();
        bench.fetch("org/tiny").unwrap();
        assert_eq!(bench.ranges(), [None], "{length}");
        assert_eq!(fs::read(&weights).unwrap(), bench.weights);
    }
    // A file that somebody put in the link's place is theirs.
    let config = folder.join("config.json");
    fs::remove_file(&config).unwrap();
    fs::write(&config, "{\"mine\": 1}").unwrap();
    bench.fetch("org/tiny").unwrap();
    assert_eq!(fs::read_to_string(config).unwrap(), "{\"mine\": 1}");
}

#[test]
fn an_etag_that_is_no_checksum_names_no_content() {
    let bench = Bench::new();
    bench
        .hub
        .set_api_fault(Some(ApiFault::MirrorEtag("mirror-1")));
    let folder = bench.fetch("org/tiny").unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
    assert_eq!(
        fs::read_to_string(folder.join("config.json")).unwrap(),
        "{}"
    );
    bench.hub.take_seen();
    bench.fetch("org/tiny").unwrap();
    assert_eq!(bench.hub.take_seen().len(), 1);
}

#[test]
fn room_for_all_files_is_looked_for_before_the_first_byte() {
    let bench = Bench::new();
    let more = 1 << 60;
    bench.hub.set_fault(WEIGHTS, Some(Fault::LinkedSize(more)));
    let error = bench.fetch("org/tiny").unwrap_err().to_string();
    let expected = format!(
        "no room for org/tiny: {} more bytes are needed in ",
        more + 100_000
    );
    assert!(
        error.starts_with(&expected) && error.contains(" are free; "),
        "{error}"
    );
    assert_eq!(bench.ranges(), []);
}

#[test]
fn a_tag_is_resolved_with_and_without_a_network() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 3] = [
        ("n-Q4_K_M.gguf", b"four"),
        ("n-Q8_0.gguf", b"8"),
        ("x", b""),
    ];
    bench.hub.add("org/n-GGUF", Access::Everybody, &files);
    let path = bench.fetch("org/n-GGUF:Q4_K_M").unwrap();
    assert!(path.ends_with("n-Q4_K_M.gguf"));
    let offline = HubSettings {
        is_offline: true,
        ..bench.settings()
    };
    assert_eq!(fetch(offline.clone(), "org/n-GGUF:q4_k_m").unwrap(), path);
    fetch(offline, "org/n-GGUF:Q8_0").unwrap_err();
}

#[test]
fn a_download_that_was_cut_is_listed_and_removed_with_all_that_has_come() {
    let bench = Bench::new();
    bench.hub.set_fault(WEIGHTS, Some(Fault::CutAfter(10)));
    bench.fetch("org/tiny").unwrap_err();
    let listed = cached_models(bench.cache.path()).unwrap();
    let told: Vec<(bool, u64)> = listed.iter().map(|m| (m.is_complete, m.bytes)).collect();
    assert_eq!(told, [(false, 2 + 13 + 3), (false, 60)]);
    let removed = remove_model(bench.cache.path(), &"org/tiny".parse().unwrap()).unwrap();
    assert_eq!(removed.bytes, 2 + 13 + 3 + 60);
}

#[test]
fn a_folder_elsewhere_takes_downloads_too() {
    let bench = Bench::new();
    let disk = tempfile::tempdir().unwrap();
    symlink(disk.path(), bench.repository()).unwrap();
    let folder = bench.fetch("org/tiny").unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
    let blob = etag(WEIGHTS, &bench.weights);
    assert!(disk.path().join("blobs").join(blob).exists());
    // A beginning that lies there is gone on with.
    fs::remove_dir_all(disk.path().join("snapshots")).unwrap();
    fs::rename(bench.part().with_extension(""), bench.part()).unwrap();
    fs::File::options()
        .write(true)
        .open(bench.part())
        .unwrap()
        .set_len(7)
        .unwrap();
    bench.ranges();
    bench.fetch("org/tiny").unwrap();
    assert_eq!(bench.ranges(), [range(7)]);
}
