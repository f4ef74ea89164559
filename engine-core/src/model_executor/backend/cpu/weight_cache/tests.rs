use std::fs;
use std::path::Path;

use super::super::kernel_tests::{Random, bytes};
use super::super::quantized::{Layout, Q4, Q8, QuantizedMatrix};
use super::file::{CHUNK_BYTES, VERSION};
use super::*;
use crate::model_executor::weights::StoredTensor;

fn matrix(name: &str, num_bytes: usize) -> CachedMatrix<'_> {
    CachedMatrix {
        name,
        format: QuantizedFormat::Q8_0,
        out_features: num_bytes,
        in_features: 1,
        num_bytes,
    }
}

const SIZES: [(&str, usize); 4] = [
    ("a", 1),
    ("b", CHUNK_BYTES),
    ("c", CHUNK_BYTES + 5),
    ("nothing", 0),
];

fn panels(name: &str, len: usize) -> Vec<u8> {
    let seed = name.len() as u32;
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

fn cache(path: &Path, fingerprint: &str) -> WeightCache {
    WeightCache::at(path.to_owned(), fingerprint.to_owned())
}

fn write(path: &Path, fingerprint: &str) {
    let pool = ComputePool::new(2).unwrap();
    let cache = cache(path, fingerprint);
    for (name, len) in SIZES {
        assert!(cache.read(&pool, matrix(name, len)).unwrap().is_none());
        let panels = panels(name, len);
        cache.add(&pool, matrix(name, len), &panels).unwrap();
    }
    assert!(!path.exists(), "a file has its name once it is whole");
    cache.finish();
}

/// How many matrices the file gives; what it gives must be what was written.
fn read(path: &Path, fingerprint: &str) -> usize {
    let pool = ComputePool::new(2).unwrap();
    let cache = cache(path, fingerprint);
    let mut found = 0;
    for (name, len) in SIZES {
        if let Some(buffer) = cache.read(&pool, matrix(name, len)).unwrap() {
            assert!(buffer[..] == panels(name, len));
            found += 1;
        }
    }
    cache.finish();
    found
}

#[test]
fn what_was_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    write(&path, "f");
    assert_eq!(read(&path, "f"), SIZES.len());
    assert_eq!(read(&path, "f"), SIZES.len());
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_file_of_another_model_or_matrix_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    write(&path, "f");
    assert_eq!(read(&path, "g"), 0);
    assert_eq!(read(&path, "f"), SIZES.len());
    let pool = ComputePool::new(1).unwrap();
    let a = matrix("a", 1);
    for other in [
        CachedMatrix { name: "A", ..a },
        CachedMatrix {
            format: QuantizedFormat::Q4_0,
            ..a
        },
        CachedMatrix {
            out_features: 2,
            ..a
        },
        CachedMatrix {
            in_features: 2,
            ..a
        },
        CachedMatrix { num_bytes: 2, ..a },
    ] {
        let cache = cache(&path, "f");
        assert!(cache.read(&pool, other).unwrap().is_none(), "{other:?}");
        // Such a file can't be right about anything.
        assert!(cache.read(&pool, a).unwrap().is_none());
        cache.finish();
        assert!(!path.exists());
        write(&path, "f");
    }
}

#[test]
fn a_broken_file_is_never_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    write(&path, "f");
    let whole = fs::read(&path).unwrap();
    let data_len: usize = 16 + SIZES.iter().map(|(_, len)| len).sum::<usize>();
    let len = whole.len();
    let places = [
        0,
        15,
        16,
        17,
        40,
        data_len - 1,
        data_len,
        len - 57,
        len - 20,
        len - 1,
    ];
    for place in places {
        let mut broken = whole.clone();
        broken[place] ^= 16;
        fs::write(&path, &broken).unwrap();
        assert!(read(&path, "f") < SIZES.len(), "byte {place}");
        fs::write(&path, &whole[..place]).unwrap();
        assert_eq!(read(&path, "f"), 0, "cut at {place}");
    }
    let foreign = [&b"something else"[..], &[0; 4096], &[255; 4096]];
    for foreign in foreign {
        fs::write(&path, foreign).unwrap();
        assert_eq!(read(&path, "f"), 0);
    }
    // The next start makes another.
    fs::remove_file(&path).unwrap();
    write(&path, "f");
    assert!(fs::read(&path).unwrap() == whole);
}

#[test]
fn a_table_that_promises_too_much_is_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    let file = |matrix: serde_json::Value| {
        let table = serde_json::json!({
            "version": VERSION, "byte_order": "little", "model": "f", "matrices": [matrix],
        });
        let table = table.to_string().into_bytes();
        let mut file = b"formwork weights".to_vec();
        file.extend(&table);
        file.extend((table.len() as u64).to_le_bytes());
        file.extend(blake3::hash(&table).as_bytes());
        file.extend(b"formwork weights");
        fs::write(&path, file).unwrap();
    };
    let sum = blake3::hash(&[]).to_hex().to_string();
    for (start, sums) in [
        (0, vec![]),
        (u64::MAX, vec![sum.clone()]),
        (u64::MAX - 1, vec![sum; 2]),
    ] {
        file(serde_json::json!({
            "name": "a", "format": "q8_0", "out_features": 1, "in_features": 1,
            "start": start, "num_bytes": 1, "checksums": sums,
        }));
        assert_eq!(read(&path, "f"), 0);
    }
    for matrix in [serde_json::json!(1), serde_json::json!({"name": "a"})] {
        file(matrix);
        assert_eq!(read(&path, "f"), 0);
    }
}

#[test]
fn where_nothing_can_be_written_weights_are_loaded_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("w");
    let pool = ComputePool::new(1).unwrap();
    let cache = cache(&path, "f");
    cache.add(&pool, matrix("a", 1), &[1]).unwrap();
    assert!(matches!(*lock(&cache.state), State::Off));
    cache.add(&pool, matrix("b", 1), &[1]).unwrap();
    cache.finish();
    assert!(!path.exists());
}

#[test]
fn two_processes_do_not_write_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    let pool = ComputePool::new(1).unwrap();
    let first = cache(&path, "f");
    first.add(&pool, matrix("a", 1), &[1]).unwrap();
    let second = cache(&path, "f");
    second.add(&pool, matrix("a", 1), &[2]).unwrap();
    assert!(matches!(*lock(&second.state), State::Off));
    second.finish();
    first.finish();
    let third = cache(&path, "f");
    assert_eq!(third.read(&pool, matrix("a", 1)).unwrap().unwrap()[..], [1]);
}

#[test]
fn what_is_left_unfinished_is_removed_or_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    let pool = ComputePool::new(1).unwrap();
    let abandoned = cache(&path, "f");
    abandoned.add(&pool, matrix("a", 1), &[1]).unwrap();
    drop(abandoned);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // As a process leaves it that is killed.
    fs::write(folder.path().join("w.unfinished"), [7; 10_000]).unwrap();
    write(&path, "f");
    assert_eq!(read(&path, "f"), SIZES.len());
}

/// Panels of a random matrix of two tensors.
fn packed<L: Layout>() -> String {
    let pool = ComputePool::new(1).unwrap();
    let (n, k) = (40, 75);
    let data = bytes(&Random(3).values(n * k));
    let (upper, lower) = data.split_at(30 * k * 4);
    let parts = [
        StoredTensor::f32(30, k, upper),
        StoredTensor::f32(10, k, lower),
    ];
    let panels = QuantizedMatrix::<L>::pack(&pool, k, &parts).unwrap();
    blake3::hash(&panels).to_hex()[..16].to_owned()
}

#[test]
fn the_version_is_raised_with_what_is_written() {
    // Where these change, files of older builds hold something else: raise VERSION.
    let expected = (1, "c630f0e262130ad6", "d7e11efd53adfbd5");
    assert_eq!(
        (VERSION, packed::<Q8>().as_str(), packed::<Q4>().as_str()),
        expected
    );
}

#[test]
fn a_fingerprint_tells_files_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&a, [1; 3000]).unwrap();
    let of = |paths: &[&Path]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
        fingerprint(&paths)
    };
    let first = of(&[&a]);
    assert!(first.is_some());
    assert_eq!(first, of(&[&a]));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[&a, &b]), None);
    // Another time of change alone, another size, another content, another name.
    let times = fs::File::options().write(true).open(&a).unwrap();
    let changed = times.metadata().unwrap().modified().unwrap();
    times
        .set_modified(changed + std::time::Duration::from_nanos(1_000_000))
        .unwrap();
    assert_ne!(first, of(&[&a]));
    times.set_modified(changed).unwrap();
    assert_eq!(first, of(&[&a]));
    fs::copy(&a, &b).unwrap();
    fs::File::options()
        .write(true)
        .open(&b)
        .unwrap()
        .set_modified(changed)
        .unwrap();
    assert_ne!(first, of(&[&b]));
    for content in [vec![1; 3001], vec![2; 3000]] {
        fs::write(&a, content).unwrap();
        fs::File::options()
            .write(true)
            .open(&a)
            .unwrap()
            .set_modified(changed)
            .unwrap();
        assert_ne!(first, of(&[&a]));
    }
}
