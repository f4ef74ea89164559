use std::os::fd::FromRawFd;

use super::*;

/// An empty file in memory that can be sealed.
fn memory_file() -> File {
    // SAFETY: the name ends with a zero, and the descriptor is new and nobody else's.
    unsafe {
        let file = libc::memfd_create(
            c"test".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        );
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}

fn matrix(name: &str, num_bytes: usize) -> CachedMatrix<'_> {
    CachedMatrix {
        name,
        format: "f32",
        out_features: 32,
        in_features: 8,
        num_bytes,
    }
}

fn buffer<T: Element>(values: &[T]) -> Buffer<T> {
    let mut buffer = Buffer::zeroed("test", values.len()).unwrap();
    buffer.copy_from_slice(values);
    buffer
}

fn open(file: &File, may_write: bool, fingerprint: &str) -> SharedWeights {
    SharedWeights::of(&shared(file, may_write, true), fingerprint).unwrap()
}

fn shared(file: &File, may_write: bool, is_last: bool) -> SharedWeightsFile {
    SharedWeightsFile {
        file: Arc::new(file.try_clone().unwrap()),
        may_write,
        is_last,
    }
}

/// What a matrix of these values is when it has to be packed.
fn share<T: Element>(weights: &SharedWeights, name: &str, values: &[T]) -> Weights<T> {
    let pool = ComputePool::new(2).unwrap();
    let pack = || Ok(buffer(values));
    weights
        .share(&pool, matrix(name, size_of_val(values)), pack)
        .unwrap()
}

/// A matrix that the file must have.
fn found<T: Element>(weights: &SharedWeights, name: &str, len: usize) -> Weights<T> {
    let pool = ComputePool::new(1).unwrap();
    let pack = || panic!("{name} is packed again");
    let found = weights.share(&pool, matrix(name, len * size_of::<T>()), pack);
    found.unwrap()
}

fn is_shared<T: Element>(weights: &Weights<T>) -> bool {
    matches!(weights, Weights::Shared(_))
}

#[test]
fn what_one_writes_all_others_have() {
    let file = memory_file();
    let first = open(&file, true, "m");
    let floats = [1.5_f32, -2.0, 0.0];
    // More than a thread copies at a time, and not whole pages.
    let bytes: Vec<u8> = (0..2 * CHUNK_BYTES + 5).map(|i| (i % 251) as u8).collect();
    let own = share(&first, "a", &floats);
    let long = share(&first, "b", &bytes);
    assert!(is_shared(&own) && is_shared(&long));
    // Tied weights are there once.
    assert!(!is_shared(&share(&first, "a", &[3.0_f32])));
    first.finish();
    assert!(*own == floats && *long == bytes[..]);

    for may_write in [false, true] {
        let other = open(&file, may_write, "m");
        assert!(*found::<f32>(&other, "a", 3) == floats);
        assert!(*found::<u8>(&other, "b", bytes.len()) == bytes[..]);
        // Of another size or name: its own.
        assert!(!is_shared(&share(&other, "a", &[7.0_f32])));
        assert!(!is_shared(&share(&other, "c", &floats)));
        other.finish();
    }
    assert!(file.metadata().unwrap().len() < 3 * CHUNK_BYTES as u64);
}

/// Both have a matrix of the same name, as a draft model and its target do.
#[test]
fn a_draft_models_weights_follow_the_targets() {
    let file = memory_file();
    let is_last = [false, true];
    let written = ["target", "draft"]
        .iter()
        .zip(is_last)
        .map(|(model, is_last)| {
            let first = SharedWeights::of(&shared(&file, true, is_last), model).unwrap();
            let weights = share(&first, "a", model.as_bytes());
            first.finish();
            assert_eq!(is_complete(&file), is_last, "{model}");
            weights
        });
    let written: Vec<_> = written.collect();
    assert!(written.iter().all(is_shared));
    assert!(*written[0] == *b"target" && *written[1] == *b"draft");
    for model in ["target", "draft"] {
        let other = open(&file, false, model);
        assert_eq!(*found::<u8>(&other, "a", model.len()), *model.as_bytes());
    }
}

#[test]
fn nobody_changes_what_is_sealed() {
    let file = memory_file();
    let first = open(&file, true, "m");
    let own = share(&first, "a", &[1_u8, 2, 3]);
    first.finish();
    assert!(file.write_all_at(&[9], 0).is_err());
    assert!(file.set_len(0).is_err());
    // SAFETY: the map is dropped unused.
    assert!(unsafe { memmap2::MmapMut::map_mut(&file) }.is_err());
    assert_eq!(*own, [1, 2, 3]);
}

#[test]
fn weights_that_are_half_written_are_not_used() {
    let file = memory_file();
    let first = open(&file, true, "m");
    share(&first, "a", &[1_u8]);
    // Not finished: the core died.
    for may_write in [false, true] {
        let other = open(&file, may_write, "m");
        assert!(!is_shared(&share(&other, "a", &[2_u8])));
    }
    first.finish();
    // All cores serve one model.
    for may_write in [false, true] {
        let refused = SharedWeights::of(&shared(&file, may_write, true), "changed");
        let message = refused.err().unwrap().to_string();
        assert!(
            message.contains("have changed since the first engine core"),
            "{message}"
        );
    }
    assert_eq!(*found::<u8>(&open(&file, false, "m"), "a", 1), [1]);
    // Nobody but the first core fills an empty file, and a file that can't be sealed serves nobody else.
    let empty = memory_file();
    assert!(!is_shared(&share(&open(&empty, false, "m"), "a", &[2_u8])));
    assert_eq!(empty.metadata().unwrap().len(), 0);
    let plain = tempfile::tempfile().unwrap();
    let first = open(&plain, true, "m");
    assert_eq!(*share(&first, "a", &[4_u8]), [4]);
    first.finish();
    assert!(!is_shared(&share(&open(&plain, true, "m"), "a", &[2_u8])));
}

#[test]
fn a_file_that_lies_about_its_table_is_refused() {
    for (content, len) in [(&b""[..], 3_u64), (b"{}", u64::MAX), (b"{", 1), (b"{}", 2)] {
        let file = memory_file();
        let mut bytes = content.to_vec();
        bytes.extend(len.to_le_bytes());
        file.write_all_at(&bytes, 0).unwrap();
        seal::seal(&file).unwrap();
        assert!(!is_shared(&share(&open(&file, true, "m"), "a", &[2_u8])));
    }
    // A place beyond the file's end.
    let file = memory_file();
    let place = Place {
        format: "f32".to_owned(),
        out_features: 32,
        in_features: 8,
        start: u64::MAX - 1,
        num_bytes: 1,
    };
    let matrices = [("a".to_owned(), place)].into();
    let table = Table {
        models: [("m".to_owned(), matrices)].into(),
    };
    let mut bytes = serde_json::to_vec(&table).unwrap();
    let len = bytes.len() as u64;
    bytes.extend(len.to_le_bytes());
    file.write_all_at(&bytes, 0).unwrap();
    seal::seal(&file).unwrap();
    assert_eq!(*share(&open(&file, false, "m"), "a", &[2_u8]), [2]);
}
