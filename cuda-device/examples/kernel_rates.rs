//! Times of the kernels at the shapes of two models, one line each:
//!
//! ```text
//! cargo run --release -p cuda-device --example kernel_rates -- --device 0 [--overlap]
//! ```
//! With `--overlap` kernels start while the one before them ends.
//!
//! Each line is the median of several runs of many launches, whose weights (or caches) take turns, so that they come from
//! memory and not from a cache. GB/s are those of weights, or of keys and values.

use cuda_device::{
    Act, Device, DeviceError, Event, Heads, KvCache, KvFormat, Masks, Matrix, Paging, Routing,
    Scores, Slots, Vector, WeightFormat,
};

/// Bytes of weights that take turns: several times a large GPU's cache.
const TURN_BYTES: usize = 400 << 20;
const ROWS: [usize; 7] = [1, 4, 8, 32, 128, 256, 2048];

fn main() -> Result<(), DeviceError> {
    let arguments: Vec<String> = std::env::args().collect();
    let named = arguments.iter().position(|argument| argument == "--device");
    let number = named.and_then(|at| arguments.get(at + 1));
    let ordinal = number.and_then(|number| number.parse().ok()).unwrap_or(0);
    let device = Device::driver(ordinal, None)?;
    device.set_overlapping_launches(arguments.iter().any(|argument| argument == "--overlap"));
    let (free, total) = device.free_and_total_bytes()?;
    println!("{}: {free} of {total} bytes free", device.name());
    for (model, hidden, inter, vocab, q, kv, dim) in [
        ("0.5B", 896, 4864, 151_936, 14, 2, 64),
        ("8B", 4096, 14_336, 128_256, 32, 8, 128),
    ] {
        let heads = Heads {
            num_heads: q,
            num_kv_heads: kv,
            head_dim: dim,
        };
        for (name, outputs, width) in [
            ("qkv", heads.qkv_width(), hidden),
            ("o", hidden, heads.q_width()),
            ("gate_up", 2 * inter, hidden),
            ("down", hidden, inter),
            ("head", vocab, hidden),
        ] {
            linear(&device, &format!("{model} {name}"), outputs, width)?;
        }
        attention(&device, model, heads)?;
        small(&device, model, hidden, inter, heads)?;
    }
    masks(&device)?;
    experts(&device)
}

/// Microseconds of one call, the median of 7 runs of as many as take about 5 ms.
fn time(
    device: &Device,
    mut call: impl FnMut(usize) -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    let mut run = |count: usize| -> Result<f64, DeviceError> {
        let first = device.record_event()?;
        for turn in 0..count {
            call(turn)?;
        }
        let last = device.record_event()?;
        Ok(elapsed(first, last)? * 1e3 / count as f64)
    };
    run(3)?;
    let estimate = run(5)?.max(0.5);
    let count = (5e3 / estimate).clamp(3.0, 500.0) as usize;
    let mut times = (0..7).map(|_| run(count)).collect::<Result<Vec<_>, _>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

fn elapsed(first: Option<Event>, last: Option<Event>) -> Result<f64, DeviceError> {
    match (first, last) {
        (Some(first), Some(last)) => Ok(f64::from(first.milliseconds_until(&last)?)),
        _ => Ok(0.0),
    }
}

fn print(name: &str, rows: usize, micros: f64, bytes: f64, operations: f64) {
    let (rate, flops) = (bytes / micros / 1e3, operations / micros / 1e6);
    println!("{name:<28} rows {rows:>5} {micros:>10.2} us {rate:>8.0} GB/s {flops:>8.1} TFLOP/s");
}

/// Values that look random.
fn numbers(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let values = (0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    });
    values.flat_map(f32::to_le_bytes).collect()
}

/// A weight of the same rows again and again.
fn matrix(device: &Device, outputs: usize, width: usize) -> Result<Matrix, DeviceError> {
    let mut upload = Matrix::upload(device, WeightFormat::Bf16, width, outputs)?;
    let rows = 64.min(outputs);
    let values: Vec<f32> = numbers(rows * width)
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    let mut bytes = Vec::new();
    for value in values {
        bytes.extend(half::bf16::from_f32(value).to_le_bytes());
    }
    for first in (0..outputs).step_by(rows) {
        upload.push_bf16(&bytes[..rows.min(outputs - first) * width * 2])?;
    }
    upload.finish(None)
}

fn linear(device: &Device, name: &str, outputs: usize, width: usize) -> Result<(), DeviceError> {
    let bytes = 2 * outputs * width;
    let turns = TURN_BYTES.div_ceil(bytes).clamp(1, 64);
    let matrices = (0..turns)
        .map(|_| matrix(device, outputs, width))
        .collect::<Result<Vec<_>, _>>()?;
    for rows in ROWS {
        // Logits of a prompt's rows are never asked for.
        if outputs > 100_000 && rows > 256 {
            continue;
        }
        let mut x = device.allocate(4 * rows * width)?;
        device.upload(&mut x, 0, &numbers(rows * width))?;
        let mut out = device.allocate(4 * rows * outputs)?;
        let micros = time(device, |turn| {
            device.linear(&x, rows, &matrices[turn % turns], &mut out)
        })?;
        let operations = 2.0 * rows as f64 * outputs as f64 * width as f64;
        print(name, rows, micros, bytes as f64, operations);
    }
    Ok(())
}

/// A buffer of indices.
fn list(
    device: &Device,
    values: impl Iterator<Item = u32>,
) -> Result<cuda_device::Buffer, DeviceError> {
    let bytes: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
    let mut buffer = device.allocate(bytes.len())?;
    device.upload(&mut buffer, 0, &bytes)?;
    Ok(buffer)
}

fn attention(device: &Device, model: &str, heads: Heads) -> Result<(), DeviceError> {
    const BLOCK: usize = 16;
    let scores = Scores {
        scale: 0.1,
        softcap: None,
        window: None,
    };
    // Decoding with a context each, and one prompt.
    for (requests, context, rows_each) in [
        (1, 1024, 1),
        (1, 8192, 1),
        (1, 32_768, 1),
        (8, 1024, 1),
        (32, 1024, 1),
        (128, 1024, 1),
        (256, 1024, 1),
        (1, 2048, 2048),
    ] {
        let blocks = context / BLOCK;
        let cache = KvCache::allocate(device, KvFormat::Bf16, heads, requests * blocks, BLOCK)?;
        let rows = requests * rows_each;
        let tables = list(device, 0..(requests * blocks) as u32)?;
        let positions = list(
            device,
            (0..rows).map(|row| (context - rows_each + row % rows_each) as u32),
        )?;
        let of = list(device, (0..rows).map(|row| (row / rows_each) as u32))?;
        let mut qkv = device.allocate(4 * rows * heads.qkv_width())?;
        device.upload(&mut qkv, 0, &numbers(rows * heads.qkv_width()))?;
        let mut out = device.allocate(4 * rows * heads.q_width())?;
        let paging = Paging {
            positions: &positions,
            requests: &of,
            block_tables: &tables,
            num_requests: requests,
            table_stride: blocks,
            max_len: context,
            prefill_rows: if rows_each > 1 { (0, rows) } else { (0, 0) },
        };
        let micros = time(device, |_| {
            device.paged_attention(&qkv, rows, heads, &cache, paging, scores, &mut out)
        })?;
        let bytes = requests * blocks * KvCache::bytes_per_block(KvFormat::Bf16, heads, BLOCK);
        let seen = if rows_each > 1 {
            context as f64 / 2.0
        } else {
            context as f64
        };
        let operations = 4.0 * rows as f64 * heads.q_width() as f64 * seen;
        let name = format!("{model} attention, {context}");
        print(&name, rows, micros, bytes as f64, operations);
    }
    Ok(())
}

/// What is bound by launches or by activations.
fn small(
    device: &Device,
    model: &str,
    hidden: usize,
    inter: usize,
    heads: Heads,
) -> Result<(), DeviceError> {
    for rows in [1, 256, 2048] {
        let weight = Vector::upload(device, &vec![1.0; hidden])?;
        let mut residual = device.allocate(4 * rows * hidden)?;
        let delta = device.allocate(4 * rows * hidden)?;
        let mut out = device.allocate(4 * rows * hidden)?;
        let micros = time(device, |_| {
            device.add_rms_norm(&mut residual, &delta, rows, &weight, 1e-6, &mut out)
        })?;
        print(
            &format!("{model} add_rms_norm"),
            rows,
            micros,
            (16 * rows * hidden) as f64,
            0.0,
        );
        let gate_up = device.allocate(8 * rows * inter)?;
        let mut mlp = device.allocate(4 * rows * inter)?;
        let micros = time(device, |_| {
            device.act_and_mul(Act::Silu, &gate_up, rows, inter, &mut mlp)
        })?;
        print(
            &format!("{model} act_and_mul"),
            rows,
            micros,
            (12 * rows * inter) as f64,
            0.0,
        );
        let mut cache = KvCache::allocate(device, KvFormat::Bf16, heads, rows.div_ceil(16), 16)?;
        let slots = list(device, 0..rows as u32)?;
        let mut qkv = device.allocate(4 * rows * heads.qkv_width())?;
        let at = Slots {
            positions: &slots,
            slots: &slots,
        };
        let micros = time(device, |_| {
            device.rotary_and_kv_write(&mut qkv, rows, heads, None, at, &mut cache)
        })?;
        let bytes = (4 * rows * heads.qkv_width()) as f64;
        print(&format!("{model} kv_write"), rows, micros, bytes, 0.0);
    }
    Ok(())
}

fn masks(device: &Device) -> Result<(), DeviceError> {
    let (vocab, words) = (151_936, 151_936 / 32);
    for rows in [1, 32, 256] {
        let mut logits = device.allocate(4 * rows * vocab)?;
        let pool = list(
            device,
            (0..8 * words as u32).map(|word| word.wrapping_mul(0x9e37_79b9)),
        )?;
        let slots = list(device, (0..rows as u32).map(|row| row % 8))?;
        let masks = Masks {
            pool: &pool,
            num_slots: 8,
            words,
            slots: &slots,
        };
        let micros = time(device, |_| {
            device.mask_logits(&mut logits, rows, vocab, masks)
        })?;
        let bytes = (4 * rows * vocab) as f64;
        print("mask_logits 151936", rows, micros, bytes, 0.0);
        let mut out = device.allocate(4 * rows)?;
        let micros = time(device, |_| {
            device.masked_argmax(&logits, rows, vocab, vocab, Some(masks), &mut out)
        })?;
        print("masked_argmax 151936", rows, micros, bytes, 0.0);
    }
    Ok(())
}

/// The routing and first product of a 30B-A3B's layer.
fn experts(device: &Device) -> Result<(), DeviceError> {
    let (num_experts, top_k, hidden, outputs) = (128, 8, 2048, 1536);
    let experts = matrix(device, num_experts * outputs, hidden)?;
    for rows in [1, 8, 32, 256, 2048] {
        let mut routing = Routing::allocate(device, num_experts, top_k, rows)?;
        let mut logits = device.allocate(4 * rows * num_experts)?;
        device.upload(&mut logits, 0, &numbers(rows * num_experts))?;
        let micros = time(device, |_| device.route(&logits, rows, true, &mut routing))?;
        print("route 128 x 8", rows, micros, 0.0, 0.0);
        let routed = rows * top_k;
        let x = device.allocate(4 * routed * hidden)?;
        let mut out = device.allocate(4 * routed * outputs)?;
        let micros = time(device, |_| {
            device.linear_experts(&x, &routing, &experts, &mut out)
        })?;
        let bytes = 2 * routed.min(num_experts) * outputs * hidden;
        let operations = 2.0 * routed as f64 * outputs as f64 * hidden as f64;
        print(
            "linear_experts 1536x2048",
            rows,
            micros,
            bytes as f64,
            operations,
        );
    }
    Ok(())
}
