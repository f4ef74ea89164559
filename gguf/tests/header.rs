//! Files that are read, and broken ones that are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod writer;

use gguf::{GgufFile, Header, TensorType, Value};
use proptest::prelude::*;
use writer::GgufWriter;

/// A small file with an entry of each kind and two tensors.
fn sample() -> GgufWriter {
    let mut writer = GgufWriter::new("llama");
    writer
        .u32("llama.block_count", 2)
        .f32("llama.rope.freq_base", 5e5)
        .bool("tokenizer.ggml.add_bos_token", true)
        .strings("tokenizer.ggml.tokens", &["a", "ä", ""])
        .i32s("tokenizer.ggml.token_type", &[1, 3, -6])
        .f32s("tokenizer.ggml.scores", &[0.0, -1.5, f32::NEG_INFINITY])
        .entry("small", 1, &[0xff])
        .entry("large", 10, &u64::MAX.to_le_bytes())
        .entry("double", 12, &0.1_f64.to_le_bytes())
        .tensor("one", &[3, 2], 0, &[7; 24])
        .tensor("two", &[2, 32], 8, &[9; 68]);
    writer
}

fn error_of(bytes: &[u8]) -> String {
    Header::parse(bytes).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read() {
    let header = Header::parse(&sample().bytes()).unwrap();
    let metadata = &header.metadata;
    assert_eq!(
        metadata.required_str("general.architecture").unwrap(),
        "llama"
    );
    assert_eq!(metadata.u64("llama.block_count").unwrap(), Some(2));
    assert_eq!(metadata.f64("llama.rope.freq_base").unwrap(), Some(5e5));
    assert_eq!(metadata.f64("llama.block_count").unwrap(), Some(2.0));
    assert_eq!(
        metadata.bool("tokenizer.ggml.add_bos_token").unwrap(),
        Some(true)
    );
    assert_eq!(
        metadata.required_strings("tokenizer.ggml.tokens").unwrap(),
        ["a", "ä", ""]
    );
    assert_eq!(
        metadata
            .numbers("tokenizer.ggml.token_type")
            .unwrap()
            .unwrap(),
        [1.0, 3.0, -6.0]
    );
    assert_eq!(
        metadata.numbers("tokenizer.ggml.scores").unwrap().unwrap(),
        [0.0, -1.5, f64::NEG_INFINITY]
    );
    assert_eq!(metadata.get("small"), Some(&Value::Signed(-1)));
    assert_eq!(metadata.u64("large").unwrap(), Some(u64::MAX));
    assert_eq!(metadata.get("double"), Some(&Value::Float(0.1)));
    assert_eq!(metadata.str("missing").unwrap(), None);
    let info = header.tensor("two").unwrap();
    assert_eq!(
        (info.tensor_type, info.shape.as_slice()),
        (TensorType::Q8_0, &[2, 32][..])
    );
    assert_eq!(header.tensors().count(), 2);
}

#[test]
fn tensors_are_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    sample().write(&path).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.tensor("one").unwrap().data, [7; 24]);
    assert_eq!(file.tensor("two").unwrap().data, [9; 68]);
    assert!(file.tensor("three").is_none());
    assert_eq!(file.metadata().u64("llama.block_count").unwrap(), Some(2));

    std::fs::write(&path, "").unwrap();
    let error = GgufFile::open(&path).err().unwrap().to_string();
    assert_eq!(
        error,
        "not a GGUF file: it begins with nothing, not with \"GGUF\""
    );
    assert!(GgufFile::open(folder.path()).is_err());
    assert!(GgufFile::open(&folder.path().join("none")).is_err());
}

#[test]
fn numbers_of_every_width_are_read() {
    let array = |kind: u32, elements: &[u8], len: u64| {
        let value = [&kind.to_le_bytes()[..], &len.to_le_bytes(), elements].concat();
        let bytes = GgufWriter::new("llama").entry("key", 9, &value).bytes();
        let metadata = Header::parse(&bytes).unwrap().metadata;
        metadata.numbers("key").unwrap().unwrap()
    };
    for (kind, minus_two, numbers) in [
        (0, &[254][..], [254.0, 1.0]),
        (1, &[254], [-2.0, 1.0]),
        (2, &[254, 255], [65534.0, 1.0]),
        (3, &[254, 255], [-2.0, 1.0]),
        (4, &(-2_i32).to_le_bytes(), [4_294_967_294.0, 1.0]),
        (5, &(-2_i32).to_le_bytes(), [-2.0, 1.0]),
        (10, &(1_i64 << 40).to_le_bytes(), [1_099_511_627_776.0, 1.0]),
        (11, &(-2_i64).to_le_bytes(), [-2.0, 1.0]),
    ] {
        let mut one = vec![0; minus_two.len()];
        one[0] = 1;
        let found = array(kind, &[minus_two, &one].concat(), 2);
        assert_eq!(found, numbers, "{kind}");
    }
    let floats = [(-2_f64).to_le_bytes(), 0.1_f64.to_le_bytes()].concat();
    assert_eq!(array(12, &floats, 2), [-2.0, 0.1]);
    let floats = [(-2_f32).to_le_bytes(), 0.5_f32.to_le_bytes()].concat();
    assert_eq!(array(6, &floats, 2), [-2.0, 0.5]);
    assert_eq!(array(3, &[], 0), [0.0; 0]);
}

#[test]
fn what_takes_more_memory_than_bytes_is_counted() {
    let strings = |len: usize| {
        let mut value = 8_u32.to_le_bytes().to_vec();
        value.extend((len as u64).to_le_bytes());
        value.resize(value.len() + 8 * len, 0);
        value
    };
    let half = strings(1 << 21);
    let mut writer = GgufWriter::new("llama");
    writer.entry("a", 9, &half).entry("b", 9, &half);
    assert!(Header::parse(&writer.bytes()).is_ok());
    writer.entry("c", 9, &strings(1));
    assert_eq!(
        error_of(&writer.bytes()),
        "metadata c: all arrays must have at most 4194304 strings"
    );
    for (place, tensors, entries) in [
        (
            "the number of tensors: 262145 must be at most 262144",
            1 << 18 | 1,
            0,
        ),
        (
            "the number of metadata entries: 65537 must be at most 65536",
            0,
            1 << 16 | 1,
        ),
    ] {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(u64::to_le_bytes(tensors));
        bytes.extend(u64::to_le_bytes(entries));
        bytes.resize(8 << 20, 0);
        assert_eq!(error_of(&bytes), place);
    }
}

#[test]
fn other_files_and_versions() {
    assert_eq!(
        error_of(b"PK\x03\x04....."),
        "not a GGUF file: it begins with \"PK\\x03\\x04\", not with \"GGUF\""
    );
    let mut bytes = sample().bytes();
    for (version, bytes_of) in [(1, 1_u32.to_le_bytes()), (50331648, 3_u32.to_be_bytes())] {
        bytes[4..8].copy_from_slice(&bytes_of);
        assert_eq!(
            error_of(&bytes),
            format!(
                "GGUF version {version} is not supported; versions 2 and 3 (little-endian) are"
            )
        );
    }
    bytes[4..8].copy_from_slice(&2_u32.to_le_bytes());
    assert!(Header::parse(&bytes).is_ok());
}

#[test]
fn values_of_another_type_are_named() {
    let header = Header::parse(&sample().bytes()).unwrap();
    let metadata = &header.metadata;
    let texts = [
        metadata.u64("small").unwrap_err(),
        metadata.str("large").unwrap_err(),
        metadata.u64("general.architecture").unwrap_err(),
        metadata.strings("tokenizer.ggml.scores").unwrap_err(),
        metadata.required_str("general.name").unwrap_err(),
        metadata.wrong("llama.block_count", "3"),
    ]
    .map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "metadata small: -1 must be a whole number from 0 on",
            "metadata large: 18446744073709551615 must be a string",
            "metadata general.architecture: \"llama\" must be a whole number from 0 on",
            "metadata tokenizer.ggml.scores: an array of 3 fractions must be an array of strings",
            "the metadata lacks general.name (a string is needed)",
            "metadata llama.block_count: 2 must be 3",
        ]
    );
}

#[test]
fn broken_entries_are_named() {
    let entry = |kind: u32, value: &[u8]| {
        error_of(&GgufWriter::new("llama").entry("key", kind, value).bytes())
    };
    let array = |kind: u32, len: u64| [&kind.to_le_bytes()[..], &len.to_le_bytes()].concat();
    assert_eq!(
        entry(13, &[]),
        "metadata key: type 13 must be one of 0 to 12"
    );
    assert_eq!(entry(7, &[2]), "metadata key: the boolean 2 must be 0 or 1");
    assert_eq!(
        entry(9, &array(9, 0)),
        "metadata key: an array of arrays is not supported"
    );
    assert_eq!(
        entry(9, &array(77, 0)),
        "metadata key: type 77 must be one of 0 to 12"
    );
    for len in [1 << 30, 1 << 61, u64::MAX] {
        let error = entry(9, &array(10, len));
        assert!(
            error.contains("can hold") && error.contains(&len.to_string()),
            "{error}"
        );
        let error = entry(8, &len.to_le_bytes());
        assert!(error.contains("the length of metadata key"), "{error}");
    }
    let text = [&2_u64.to_le_bytes()[..], b"a\xff"].concat();
    assert!(entry(8, &text).contains("no UTF-8 from byte 1 on"));
    let twice = GgufWriter::new("a")
        .str("general.architecture", "b")
        .bytes();
    assert_eq!(
        error_of(&twice),
        "metadata general.architecture: the key occurs twice"
    );
}

#[test]
fn broken_tensors_are_named() {
    let with = |shape: &[usize], kind: u32, data: &[u8]| {
        error_of(
            &GgufWriter::new("llama")
                .tensor("t", shape, kind, data)
                .bytes(),
        )
    };
    assert_eq!(
        with(&[], 0, &[0; 4]),
        "tensor t: 0 dimensions must be 1 to 4"
    );
    assert_eq!(
        with(&[1; 5], 0, &[0; 4]),
        "tensor t: 5 dimensions must be 1 to 4"
    );
    assert_eq!(
        with(&[2, 0], 0, &[0; 4]),
        "tensor t: the dimension 0 must be at least 1"
    );
    assert_eq!(
        with(&[2, 40], 8, &[0; 85]),
        "tensor t: rows of 40 values must be a multiple of 32 in Q8_0"
    );
    assert!(with(&[1 << 40, 1 << 40], 0, &[]).contains("is too large"));
    assert!(with(&[1 << 40], 0, &[0; 64]).starts_with("the file ends at byte "));
    let mut writer = sample();
    let twice = writer.tensor("one", &[1], 0, &[0; 4]).bytes();
    assert_eq!(error_of(&twice), "tensor one: the name occurs twice");
    // The second tensor's offset, behind its name, dimension and type.
    let mut shared = GgufWriter::new("llama")
        .tensor("first", &[16], 0, &[0; 64])
        .tensor("second", &[8], 0, &[0; 32])
        .bytes();
    let name = shared.windows(6).position(|text| text == b"second");
    let offset = name.unwrap() + 6 + 4 + 8 + 4;
    assert_eq!(shared[offset..offset + 8], 64_u64.to_le_bytes());
    for wrong in [0_u64, 32] {
        shared[offset..offset + 8].copy_from_slice(&wrong.to_le_bytes());
        assert_eq!(
            error_of(&shared),
            "tensor second: its bytes are also those of tensor first"
        );
    }
    // Formats that aren't read are no error before they are used.
    let other = GgufWriter::new("llama").tensor("t", &[5], 23, &[]).bytes();
    let header = Header::parse(&other).unwrap();
    assert_eq!(
        header.tensor("t").unwrap().tensor_type.to_string(),
        "IQ4_XS"
    );

    for (alignment, right) in [(0, false), (24, false), (1 << 21, false), (8, true)] {
        let mut writer = sample();
        let bytes = writer.u32("general.alignment", alignment).bytes();
        assert_eq!(Header::parse(&bytes).is_ok(), right, "{alignment}");
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let bytes = sample().bytes();
    // Up to the padding after the last tensor.
    for len in 0..bytes.len() - 28 {
        let error = error_of(&bytes[..len]);
        assert!(!error.is_empty() && error.len() < 300, "{len}: {error}");
    }
    assert!(Header::parse(&bytes[..bytes.len() - 28]).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Whatever stands in a file, it is read or refused, in memory that its size bounds.
    #[test]
    fn changed_bytes_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().bytes();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = Header::parse(&bytes) {
            prop_assert!(error.to_string().len() < 1000);
        }
    }

    #[test]
    fn any_bytes_after_the_magic_are_read_or_refused(rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [b"GGUF\x03\0\0\0".to_vec(), rest].concat();
        let _ = Header::parse(&bytes);
    }
}
