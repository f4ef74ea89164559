//! What is in a large file, without reading all of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use blake3::Hasher;

/// Blocks that are read of a file's tensors, from the first byte to the last at equal distances.
const NUM_SAMPLES: u64 = 256;

/// Bytes of such a block: a page, so that each takes one access to a disk.
pub const SAMPLE_BYTES: u64 = 4096;

/// Hashes a model's file of `len` bytes: its header, and blocks of what follows, so that a change of at least a 255th of
/// that is seen. All of it where it is no more than the blocks.
///
/// # Errors
/// The file can't be read, or is shorter.
pub fn hash_content(file: &File, header_len: u64, len: u64, hasher: &mut Hasher) -> io::Result<()> {
    let header_len = header_len.min(len);
    hash_range(file, 0, header_len, hasher)?;
    let data_len = len - header_len;
    if data_len <= NUM_SAMPLES * SAMPLE_BYTES {
        return hash_range(file, header_len, data_len, hasher);
    }
    let last = data_len - SAMPLE_BYTES;
    for sample in 0..NUM_SAMPLES {
        // In 128 bits, since the product of a file's size may exceed 64.
        let at = u128::from(last) * u128::from(sample) / u128::from(NUM_SAMPLES - 1);
        hash_range(file, header_len + at as u64, SAMPLE_BYTES, hasher)?;
    }
    Ok(())
}

fn hash_range(file: &File, start: u64, len: u64, hasher: &mut Hasher) -> io::Result<()> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut chunk = vec![0; len.min(CHUNK_BYTES) as usize];
    let (mut at, end) = (start, start.saturating_add(len));
    while at < end {
        let part = &mut chunk[..(end - at).min(CHUNK_BYTES) as usize];
        file.read_exact_at(part, at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn content_of(bytes: &[u8], header_len: u64) -> blake3::Hash {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut hasher = blake3::Hasher::new();
        hash_content(&file, header_len, bytes.len() as u64, &mut hasher).unwrap();
        hasher.finalize()
    }

    #[test]
    fn changes_of_a_255th_of_the_tensors_are_seen_wherever_they_are() {
        let header_len = 1_500_000;
        // The longest header is read whole, and so are few bytes of tensors.
        let sampled = (NUM_SAMPLES * SAMPLE_BYTES) as usize;
        for data_len in [0, 1, sampled, sampled + 1, 5_000_000] {
            let bytes = vec![1; header_len + data_len];
            let first = content_of(&bytes, header_len as u64);
            let mut changes = vec![(0, 1), (header_len / 2, 1), (header_len - 1, 1)];
            if data_len > 0 {
                changes.push((header_len, 1));
                changes.push((header_len + data_len - 1, 1));
                let long = data_len.div_ceil(NUM_SAMPLES as usize - 1);
                let steps = (0..data_len - long + 1).step_by(1 + data_len / 23);
                changes.extend(steps.map(|start| (header_len + start, long)));
            }
            for (start, len) in changes {
                let mut bytes = bytes.clone();
                bytes[start..start + len].fill(2);
                let second = content_of(&bytes, header_len as u64);
                assert_ne!(first, second, "{data_len}: {start}, {len}");
            }
        }
    }
}
