//! Downloads from a Hub on this machine, which cuts connections, lies, and asks for tokens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
// The processes' tests use the rest of it.
#[allow(dead_code)]
mod fake_hub;

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use bench::{Bench, WEIGHTS, fetch, names, range};
use fake_hub::{Access, COMMIT, Fault, etag};
use hub::{FetchProgress, Hub, HubError, HubName, HubSettings, Token, cached_models};

#[test]
fn a_name_becomes_a_folder_in_the_layout_of_huggingface_hub() {
    let bench = Bench::new();
    let told = Mutex::new(Vec::new());
    let name = HubName::parse("org/tiny").unwrap();
    let hub = Hub::new(bench.settings());
    let folder = hub
        .fetch(&name, &|progress| told.lock().unwrap().push(progress))
        .unwrap();
    assert_eq!(folder, bench.snapshot());
    assert_eq!(
        names(&folder),
        [
            "config.json",
            WEIGHTS,
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
    let blob = etag(WEIGHTS, &bench.weights);
    let target = Path::new("../../blobs").join(&blob);
    assert_eq!(fs::read_link(folder.join(WEIGHTS)).unwrap(), target);
    let mut blobs = vec![
        blob,
        etag("config.json", b"{}"),
        etag("tokenizer.json", b"{\"model\": {}}"),
        etag("tokenizer_config.json", b"{ }"),
    ];
    blobs.sort();
    assert_eq!(names(&bench.repository().join("blobs")), blobs);
    let main = fs::read_to_string(bench.repository().join("refs/main")).unwrap();
    assert_eq!(main, COMMIT);
    let bytes = 100_000 + 2 + 13 + 3;
    let whole = FetchProgress {
        done_bytes: bytes,
        total_bytes: bytes,
    };
    assert_eq!(told.lock().unwrap().last(), Some(&whole));
    // The second time the Hub is asked for the commit alone.
    bench.hub.take_seen();
    assert_eq!(bench.fetch("org/tiny").unwrap(), folder);
    let paths: Vec<String> = bench
        .hub
        .take_seen()
        .into_iter()
        .map(|seen| seen.path)
        .collect();
    assert_eq!(paths, ["/api/models/org/tiny/revision/main"]);
    let listed = cached_models(bench.cache.path()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].bytes, &listed[0].references[..]),
        (bytes, &["main".to_owned()][..])
    );
}

#[test]
fn a_revision_is_a_branch_or_a_commit() {
    let bench = Bench::new();
    assert_eq!(bench.fetch("org/tiny@refs/pr/1").unwrap(), bench.snapshot());
    let reference = bench.repository().join("refs/refs/pr/1");
    assert_eq!(fs::read_to_string(reference).unwrap(), COMMIT);
    assert_eq!(
        bench.fetch(&format!("org/tiny@{COMMIT}")).unwrap(),
        bench.snapshot()
    );
    assert_eq!(names(&bench.repository().join("refs")), ["refs"]);
    let error = bench.fetch("org/tiny@v9").unwrap_err().to_string();
    assert_eq!(
        error,
        "org/tiny has no revision \"v9\": it is a branch, a tag or a commit"
    );
}

#[test]
fn a_cut_download_goes_on_where_it_was_cut() {
    let bench = Bench::new();
    bench.hub.set_fault(WEIGHTS, Some(Fault::CutAfter(30_000)));
    let folder = bench.fetch("org/tiny").unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
    assert_eq!(
        bench.ranges(),
        [None, range(30_000), range(60_000), range(90_000)]
    );
    assert!(!bench.part().exists());
}

#[test]
fn a_download_that_is_cut_again_and_again_ends_and_the_next_one_goes_on() {
    let bench = Bench::new();
    bench.hub.set_fault(WEIGHTS, Some(Fault::CutAfter(10)));
    let error = bench.fetch("org/tiny").unwrap_err();
    let HubError::Interrupted { attempts, file, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*attempts, file.as_str()), (6, WEIGHTS));
    assert!(
        error
            .to_string()
            .contains("the same command goes on where it ended"),
        "{error}"
    );
    assert_eq!(fs::metadata(bench.part()).unwrap().len(), 60);
    assert!(!bench.repository().join("refs/main").exists());
    bench.hub.set_fault(WEIGHTS, None);
    bench.ranges();
    let folder = bench.fetch("org/tiny").unwrap();
    assert_eq!(bench.ranges(), [range(60)]);
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
}

#[test]
fn a_server_without_ranges_begins_again() {
    let bench = Bench::new();
    bench.hub.set_fault(WEIGHTS, Some(Fault::NoRanges(2)));
    let folder = bench.fetch("org/tiny").unwrap();
    assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
    assert_eq!(bench.ranges(), [None, range(50_000), range(50_000)]);
}

#[test]
fn servers_that_are_busy_are_asked_again() {
    let bench = Bench::new();
    for status in [429, 403, 500, 503] {
        bench.hub.set_fault(WEIGHTS, Some(Fault::Status(status, 2)));
        bench.fetch("org/tiny").unwrap();
        assert_eq!(bench.ranges(), [None, None, None], "{status}");
        fs::remove_dir_all(bench.repository()).unwrap();
    }
}

#[test]
fn lies_about_lengths_are_told_and_nothing_is_taken() {
    let bench = Bench::new();
    for (fault, announced, found) in [
        (Fault::Length(-5), 100_000, 99_995),
        (Fault::Length(7), 100_000, 100_007),
        (Fault::LinkedSize(-1), 99_999, 100_000),
        (Fault::LinkedSize(1), 100_001, 100_000),
    ] {
        bench.hub.set_fault(WEIGHTS, Some(fault));
        let error = bench.fetch("org/tiny").unwrap_err().to_string();
        let expected = format!(
            "model.safetensors of org/tiny: the server has {found} bytes, and the Hub announces {announced}; \
             run the same command again, and if it comes again look at the proxy or mirror in between"
        );
        assert_eq!(error, expected, "{fault:?}");
        assert!(!bench.snapshot().join(WEIGHTS).exists(), "{fault:?}");
    }
}

#[test]
fn damaged_files_are_thrown_away() {
    let bench = Bench::new();
    for (file, kind) in [(WEIGHTS, "SHA-256"), ("config.json", "Git's SHA-1")] {
        bench.hub.set_fault(file, Some(Fault::WrongBytes));
        let error = bench.fetch("org/tiny").unwrap_err();
        let told = error.to_string();
        assert!(
            told.starts_with(&format!(
                "{file} of org/tiny arrived damaged: its {kind} is "
            )),
            "{told}"
        );
        assert!(!bench.snapshot().join(file).exists());
        assert!(!bench.part().exists());
        bench.hub.set_fault(file, None);
        bench.fetch("org/tiny").unwrap();
        fs::remove_dir_all(bench.repository()).unwrap();
    }
}

#[test]
fn a_damaged_beginning_of_an_earlier_download_is_replaced() {
    let bench = Bench::new();
    fs::create_dir_all(bench.part().parent().unwrap()).unwrap();
    for (begun, ranges) in [
        (vec![0; 40_000], vec![range(40_000), None]),
        (vec![0; 100_000], vec![None]),
        (vec![0; 100_001], vec![None]),
    ] {
        fs::write(bench.part(), begun).unwrap();
        let folder = bench.fetch("org/tiny").unwrap();
        assert_eq!(fs::read(folder.join(WEIGHTS)).unwrap(), bench.weights);
        assert_eq!(bench.ranges(), ranges);
        fs::remove_dir_all(bench.repository().join("snapshots")).unwrap();
        let blob = bench.part().with_extension("");
        fs::remove_file(blob).unwrap();
    }
}

#[test]
fn a_blob_that_is_downloaded_elsewhere_is_waited_for() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| bench.fetch("org/tiny").unwrap());
        }
    });
    assert_eq!(bench.ranges(), [None]);
}

#[test]
fn the_token_goes_to_the_endpoint_alone() {
    let bench = Bench::new();
    let settings = HubSettings {
        token: Some(Token::new("secret", "HF_TOKEN")),
        ..bench.settings()
    };
    for name in ["org/gated", "org/private"] {
        fetch(settings.clone(), name).unwrap();
        let seen = bench.hub.take_seen();
        assert!(seen.iter().any(|seen| seen.is_cdn), "{name}");
        for seen in seen {
            let expected = (!seen.is_cdn).then_some("Bearer secret");
            assert_eq!(seen.authorization.as_deref(), expected, "{seen:?}");
        }
    }
}

#[test]
fn a_repository_that_cannot_be_read_says_what_to_do() {
    let bench = Bench::new();
    let without = |name: &str| bench.fetch(name).unwrap_err().to_string();
    let other = HubSettings {
        token: Some(Token::new("other", "HF_TOKEN")),
        ..bench.settings()
    };
    let with = |name: &str| fetch(other.clone(), name).unwrap_err().to_string();
    let gated = "org/gated is gated: accept its licence at https://huggingface.co/org/gated, then set HF_TOKEN \
                 to a token of yours";
    assert_eq!(without("org/gated"), gated);
    assert_eq!(
        with("org/gated"),
        format!("{gated} (the one that was sent may not read it)")
    );
    for name in ["org/private", "org/nothing"] {
        let hidden = format!(
            "the Hub at {} has no model {name}, or it is private: check the name, and for a private repository \
             set HF_TOKEN to a token that may read it",
            bench.hub.endpoint
        );
        assert_eq!(without(name), hidden);
        assert_eq!(with(name), hidden);
    }
    assert!(!bench.cache.path().join("models--org--gated").exists());
}

#[test]
fn without_a_network_the_cache_is_used() {
    let bench = Bench::new();
    let offline = HubSettings {
        is_offline: true,
        ..bench.settings()
    };
    let missing = |name: &str| fetch(offline.clone(), name).unwrap_err().to_string();
    assert_eq!(
        missing("org/tiny"),
        format!(
            "HF_HUB_OFFLINE is set, and the revision main of org/tiny is not in the cache {}: unset it, or run \
             `formwork pull org/tiny` where there is a network",
            bench.cache.path().display()
        )
    );
    let folder = bench.fetch("org/tiny").unwrap();
    bench.hub.take_seen();
    assert_eq!(fetch(offline.clone(), "org/tiny").unwrap(), folder);
    assert_eq!(bench.hub.take_seen(), []);
    bench.hub.go_down();
    assert_eq!(bench.fetch("org/tiny").unwrap(), folder);
    let nobody = HubSettings {
        endpoint: "http://127.0.0.1:1".to_owned(),
        ..bench.settings()
    };
    assert_eq!(fetch(nobody.clone(), "org/tiny").unwrap(), folder);
    let error = fetch(nobody, "org/other").unwrap_err().to_string();
    assert!(
        error.starts_with("can't reach the Hub at http://127.0.0.1:1: "),
        "{error}"
    );
    fs::remove_file(folder.join(WEIGHTS)).unwrap();
    assert!(missing("org/tiny").contains("the file model.safetensors of org/tiny"));
}

#[test]
fn shards_are_those_of_the_index() {
    let bench = Bench::new();
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let files: [(&str, &[u8]); 6] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"one"),
        ("model-2.safetensors", b"two"),
        ("consolidated.safetensors", b"all again"),
    ];
    bench.hub.add("org/shards", Access::Everybody, &files);
    let folder = bench.fetch("org/shards").unwrap();
    assert_eq!(
        names(&folder),
        [
            "config.json",
            "model-1.safetensors",
            "model-2.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json"
        ]
    );
    bench.hub.add("org/torn", Access::Everybody, &files[..4]);
    let error = bench.fetch("org/torn").unwrap_err().to_string();
    assert_eq!(
        error,
        "org/torn has no model-2.safetensors, which its model.safetensors.index.json names, so Formwork can't run it"
    );
}

#[test]
fn a_gguf_file_comes_alone() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 4] = [
        ("n-q4.gguf", b"four"),
        ("big/n-00001-of-00002.gguf", b"part 1"),
        ("big/n-00002-of-00002.gguf", b"part 2"),
        ("config.json", b"{}"),
    ];
    bench.hub.add("org/n-GGUF", Access::Everybody, &files);
    let path = bench.fetch("org/n-GGUF:n-q4.gguf").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"four");
    let folder = path.parent().unwrap();
    assert_eq!(names(folder), ["n-q4.gguf"]);
    let part = bench.fetch("org/n-GGUF:big/n-00001-of-00002.gguf").unwrap();
    assert_eq!(part, folder.join("big/n-00001-of-00002.gguf"));
    assert_eq!(names(&folder.join("big")).len(), 2);
    let error = bench.fetch("org/n-GGUF").unwrap_err().to_string();
    assert!(
        error.ends_with("name one, as in org/n-GGUF:big/n-00001-of-00002.gguf"),
        "{error}"
    );
    let error = bench.fetch("org/n-GGUF:q5.gguf").unwrap_err().to_string();
    assert!(
        error.starts_with("org/n-GGUF has no file q5.gguf; its GGUF files are "),
        "{error}"
    );
}

#[test]
fn names_that_lead_out_of_the_folder_are_never_written() {
    let bench = Bench::new();
    let files: [(&str, &[u8]); 4] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        (
            "model.safetensors.index.json",
            br#"{"weight_map": {"a": "../../evil.safetensors"}}"#,
        ),
        ("../../evil.safetensors", b"evil"),
    ];
    bench.hub.add("org/evil", Access::Everybody, &files);
    let error = bench.fetch("org/evil").unwrap_err().to_string();
    assert!(
        error.contains("\"../../evil.safetensors\" is no name of a file"),
        "{error}"
    );
    assert!(
        !bench
            .hub
            .take_seen()
            .iter()
            .any(|seen| seen.path.contains("evil.safetensors"))
    );
}
