//! A batch of events as MessagePack, byte for byte as msgspec writes vLLM's `KVEventBatch`: the batch an array, each
//! event a map that begins with its type and leaves out fields that have their defaults.

use protocol::{BlockStored, KVCacheEvent};

/// vLLM's `medium` of the memory that the model computes from, on whatever device that is. Subscribers take any other
/// name for memory that blocks have to be brought back from.
const MEDIUM: &str = "GPU";
/// The group of layers that blocks belong to. Here is one, of all layers.
const GROUP_IDX: u64 = 0;
/// vLLM's name for layers whose blocks are all kept. Those that a sliding window has passed are, too.
const KV_CACHE_SPEC_KIND: &str = "full_attention";

/// The batch `(ts, events, data_parallel_rank)`; `ts` is Unix time in seconds.
pub(super) fn encode_batch(ts: f64, events: &[KVCacheEvent], data_parallel_rank: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_array(&mut out, 3);
    out.push(0xcb);
    out.extend(ts.to_be_bytes());
    put_array(&mut out, events.len());
    for event in events {
        put_event(&mut out, event);
    }
    put_uint(&mut out, u64::from(data_parallel_rank));
    out
}

fn put_event(out: &mut Vec<u8>, event: &KVCacheEvent) {
    match event {
        KVCacheEvent::BlockStored(stored) => put_stored(out, stored),
        KVCacheEvent::BlockRemoved { block_hashes } => {
            put_map(out, 4, "BlockRemoved");
            put_str(out, "block_hashes");
            put_uints(out, block_hashes.iter().copied());
            put_str(out, "medium");
            put_str(out, MEDIUM);
            put_str(out, "group_idx");
            put_uint(out, GROUP_IDX);
        }
        KVCacheEvent::AllBlocksCleared => put_map(out, 1, "AllBlocksCleared"),
    }
}

fn put_stored(out: &mut Vec<u8>, stored: &BlockStored) {
    let BlockStored {
        block_hashes,
        parent_block_hash,
        token_ids,
        block_size,
        cache_salt,
    } = stored;
    put_map(out, 11, "BlockStored");
    put_str(out, "block_hashes");
    put_uints(out, block_hashes.iter().copied());
    put_str(out, "parent_block_hash");
    match parent_block_hash {
        Some(hash) => put_uint(out, *hash),
        None => put_nil(out),
    }
    put_str(out, "token_ids");
    put_uints(out, token_ids.iter().copied().map(u64::from));
    put_str(out, "block_size");
    put_uint(out, u64::from(*block_size));
    put_str(out, "lora_id");
    put_nil(out);
    put_str(out, "medium");
    put_str(out, MEDIUM);
    put_str(out, "lora_name");
    put_nil(out);
    // For each block a tuple, or nil.
    put_str(out, "extra_keys");
    put_array(out, block_hashes.len());
    for index in 0..block_hashes.len() {
        match cache_salt {
            Some(salt) if index == 0 => {
                put_array(out, 1);
                put_str(out, salt);
            }
            _ => put_nil(out),
        }
    }
    put_str(out, "group_idx");
    put_uint(out, GROUP_IDX);
    put_str(out, "kv_cache_spec_kind");
    put_str(out, KV_CACHE_SPEC_KIND);
}

/// A map's head, and its first entry: the type.
fn put_map(out: &mut Vec<u8>, len: u8, kind: &str) {
    // All are shorter than 16.
    out.push(0x80 | len);
    put_str(out, "type");
    put_str(out, kind);
}

fn put_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

fn put_uints(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>) {
    put_array(out, values.len());
    values.for_each(|value| put_uint(out, value));
}

#[allow(clippy::cast_possible_truncation, reason = "each is in its range")]
fn put_uint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend(value.to_be_bytes());
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "each is in its range")]
fn put_array(out: &mut Vec<u8>, len: usize) {
    match len {
        0..16 => out.push(0x90 | len as u8),
        16..=0xffff => {
            out.push(0xdc);
            out.extend((len as u16).to_be_bytes());
        }
        // A frame of the core is too short for more than 32 bits hold.
        _ => {
            out.push(0xdd);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "each is in its range")]
fn put_str(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..=0xff => out.extend([0xd9, len as u8]),
        len => {
            out.push(0xda);
            // Salts are the longest, with 128 characters.
            out.extend((len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}
