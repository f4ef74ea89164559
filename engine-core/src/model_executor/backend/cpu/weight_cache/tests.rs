use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use super::super::kernel_tests::{Random, bytes};
use super::super::quantized::{Q4, Q8, QuantizedMatrix};
use super::super::wide::{Wide4, Wide8, WideMatrix};
use super::file::{CHUNK_BYTES, VERSION};
use super::*;
use crate::model_executor::checkpoint::SourceFile;
use crate::model_executor::weights::StoredTensor;

fn matrix(name: &str, num_bytes: usize) -> CachedMatrix<'_> {
    CachedMatrix {
        name,
        format: "q8_0",
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
            format: "q4_0",
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
fn a_file_that_others_can_write_to_is_replaced_and_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    write(&path, "f");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path) & 0o022, 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let other_name = folder.path().join("other name");
    fs::hard_link(&path, &other_name).unwrap();
    let before = fs::read(&other_name).unwrap();
    assert_eq!(read(&path, "f"), 0);
    // Nothing was added, so the file is as it was; what is made next takes its name.
    assert_eq!(mode(&path), 0o666);
    let pool = ComputePool::new(1).unwrap();
    let cache = cache(&path, "f");
    cache.add(&pool, matrix("a", 1), &panels("a", 1)).unwrap();
    cache.finish();
    assert_eq!(mode(&path) & 0o022, 0);
    assert_eq!(fs::read(&other_name).unwrap(), before);
}

#[test]
fn nothing_is_kept_where_anybody_can_exchange_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    write(&path, "f");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(read(&path, "f"), 0);
    fs::remove_file(&path).unwrap();
    let pool = ComputePool::new(1).unwrap();
    let cache = cache(&path, "f");
    cache.add(&pool, matrix("a", 1), &panels("a", 1)).unwrap();
    cache.finish();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
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

type Pack = fn(&ComputePool, usize, &[StoredTensor<'_>]) -> Result<Buffer<u8>, ModelError>;

/// Panels of a random matrix of two tensors, by what packs them.
fn packed(pack: Pack) -> String {
    let pool = ComputePool::new(1).unwrap();
    let (n, k) = (40, 331);
    let data = bytes(&Random(3).values(n * k));
    let (upper, lower) = data.split_at(30 * k * 4);
    let parts = [
        StoredTensor::f32(30, k, upper),
        StoredTensor::f32(10, k, lower),
    ];
    let panels = pack(&pool, k, &parts).unwrap();
    blake3::hash(&panels).to_hex()[..16].to_owned()
}

#[test]
fn the_version_is_raised_with_what_is_written() {
    // Where these change, files of older builds hold something else: raise VERSION.
    let packed = [
        packed(WideMatrix::<Wide8>::pack),
        packed(WideMatrix::<Wide4>::pack),
        packed(QuantizedMatrix::<Q8>::pack),
        packed(QuantizedMatrix::<Q4>::pack),
    ];
    let expected = [
        "4162d415d4dab780",
        "a80090a50b7582bd",
        "75e7ee2fee7ca4f8",
        "8db9637858dd2dcd",
    ];
    assert_eq!((VERSION, packed), (4, expected.map(str::to_owned)));
}

/// The fingerprint of files whose tensors begin after `header_len` bytes.
fn fingerprint_of(paths: &[&Path], header_len: usize) -> String {
    let files: Vec<(String, fs::File)> = paths
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            (name.into_owned(), fs::File::open(path).unwrap())
        })
        .collect();
    let sources = files.iter().map(|(name, file)| SourceFile {
        name,
        file,
        header_len,
    });
    fingerprint(&sources.collect::<Vec<_>>(), None).unwrap()
}

#[test]
fn a_fingerprint_tells_files_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&a, [1; 3000]).unwrap();
    let of = |paths: &[&Path]| fingerprint_of(paths, 8);
    let first = of(&[&a]);
    assert_eq!(first, of(&[&a]));
    assert_eq!(fingerprint(&[], None), None);
    fs::copy(&a, &b).unwrap();
    assert_ne!(of(&[&a, &b]), of(&[&b, &a]));
    assert_ne!(of(&[&a, &b]), first);
    // Another size, another content, another name, another file of the same name.
    for content in [vec![1; 3001], vec![2; 3000]] {
        fs::write(&a, content).unwrap();
        assert_ne!(first, of(&[&a]));
    }
    assert_ne!(first, of(&[&b]));
    fs::rename(&b, &a).unwrap();
    assert_ne!(first, of(&[&a]));
}

#[test]
fn a_change_whose_time_was_set_back_is_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, vec![1; 8 << 20]).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let changed = file.metadata().unwrap().modified().unwrap();
    let first = fingerprint_of(&[&path], 100);
    // Between two of the blocks that are read, so that only the system tells.
    let between = 100 + tokenizer::SAMPLE_BYTES + 7;
    file.write_all_at(&[2], between).unwrap();
    file.set_modified(changed).unwrap();
    assert_ne!(first, fingerprint_of(&[&path], 100));
}

#[test]
fn what_has_the_name_of_the_unfinished_file_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("w"), folder.path().join("victim"));
    let unfinished = folder.path().join("w.unfinished");
    let none = folder.path().join("none");
    let links: [&dyn Fn(); 3] = [
        &|| std::os::unix::fs::symlink(&victim, &unfinished).unwrap(),
        &|| std::os::unix::fs::symlink(&none, &unfinished).unwrap(),
        &|| fs::hard_link(&victim, &unfinished).unwrap(),
    ];
    for link in links {
        fs::write(&victim, "precious").unwrap();
        link();
        write(&path, "f");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!none.exists() && !unfinished.exists());
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(read(&path, "f"), SIZES.len());
        fs::remove_file(&path).unwrap();
    }
    // What can't be removed is reported, and nothing is kept.
    fs::create_dir(&unfinished).unwrap();
    let pool = ComputePool::new(1).unwrap();
    let cache = cache(&path, "f");
    cache.add(&pool, matrix("a", 1), &[1]).unwrap();
    assert!(matches!(*lock(&cache.state), State::Off));
}

/// A pipe that nobody writes to.
fn make_pipe(path: &Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn pipes_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    make_pipe(&path);
    make_pipe(&folder.path().join("w.unfinished"));
    let pool = ComputePool::new(1).unwrap();
    let cache = cache(&path, "f");
    assert!(cache.read(&pool, matrix("a", 1)).unwrap().is_none());
    cache.add(&pool, matrix("a", 1), &[1]).unwrap();
    cache.finish();
    assert!(path.symlink_metadata().unwrap().is_file());

    // So where a file of the model should be.
    let model = folder.path().join("model.safetensors");
    make_pipe(&model);
    let files = CheckpointFiles::Folder(folder.path().to_owned());
    let error = files.find("model.safetensors").err().unwrap().to_string();
    let why = format!("{} is a pipe, not a regular file", model.display());
    assert_eq!(error, format!("model.safetensors: {why}"));
    assert!(CheckpointFiles::at(&model).is_err());
}

#[test]
fn a_full_disk_ends_the_file_and_not_the_loading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    let pool = ComputePool::new(1).unwrap();
    // With the second matrix, or with the table after both.
    for at_the_end in [false, true] {
        let cache = cache(&path, "f");
        let add = |name| cache.add(&pool, matrix(name, 1), &[1]).unwrap();
        add("a");
        let fill_disk = || match &mut *lock(&cache.state) {
            State::Writing(file) => file.write_to(full_disk()),
            _ => panic!("the first matrix was written"),
        };
        if !at_the_end {
            fill_disk();
        }
        add("b");
        assert_eq!(matches!(*lock(&cache.state), State::Off), !at_the_end);
        if at_the_end {
            fill_disk();
        }
        cache.finish();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A device on which every write fails for want of space.
fn full_disk() -> fs::File {
    let mut file = fs::File::options().write(true).open("/dev/full").unwrap();
    let error = file.write_all(&[0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    file
}
