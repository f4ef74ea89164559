//! Paged attention.

use cuda_device::{Device, Heads, KvCache, KvFormat, Paging, Scores, Slots};

use crate::support::{
    Numbers, assert_close, assert_same, devices, download, room, rounded, upload, upload_u32,
};

/// Positions of a part of one of the kernels; the other's pieces are a quarter of it.
const PART: usize = 256;

/// Requests with all their keys and values, and queries of some of their positions.
struct Batch {
    heads: Heads,
    block_size: usize,
    /// Per request, `[len, qkv_width]`.
    requests: Vec<Vec<f32>>,
    /// Rows: request and position.
    rows: Vec<(usize, usize)>,
}

impl Batch {
    fn new(heads: Heads, block_size: usize, lens: &[usize], rows: &[(usize, usize)]) -> Self {
        let mut numbers = Numbers::new(13);
        let requests = lens
            .iter()
            .map(|len| numbers.values(len * heads.qkv_width()))
            .collect();
        Self {
            heads,
            block_size,
            requests,
            rows: rows.to_vec(),
        }
    }

    fn blocks_per_request(&self) -> usize {
        let width = self.heads.qkv_width();
        let longest = self.requests.iter().map(Vec::len).max().unwrap_or(0) / width;
        longest.div_ceil(self.block_size)
    }

    /// Block `b` of a request, the blocks of requests in turns and block 0 unused.
    fn block(&self, request: usize, block: usize) -> usize {
        1 + block * self.requests.len() + request
    }

    fn cache(&self, device: &Device, format: KvFormat) -> KvCache {
        let blocks = 1 + self.blocks_per_request() * self.requests.len();
        let mut cache =
            KvCache::allocate(device, format, self.heads, blocks, self.block_size).unwrap();
        for (request, rows) in self.requests.iter().enumerate() {
            let len = rows.len() / self.heads.qkv_width();
            let slots: Vec<u32> = (0..len)
                .map(|position| {
                    let block = self.block(request, position / self.block_size);
                    (block * self.block_size + position % self.block_size) as u32
                })
                .collect();
            let (positions, slots) = (
                upload_u32(device, &vec![0; len]),
                upload_u32(device, &slots),
            );
            let slots = Slots {
                positions: &positions,
                slots: &slots,
            };
            let mut qkv = upload(device, rows);
            device
                .rotary_and_kv_write(&mut qkv, len, self.heads, None, slots, &mut cache)
                .unwrap();
        }
        cache
    }

    fn query(&self, (request, position): (usize, usize)) -> &[f32] {
        let width = self.heads.qkv_width();
        &self.requests[request][position * width..][..width]
    }

    fn run(
        &self,
        device: &Device,
        cache: &KvCache,
        scores: Scores,
        rows: &[(usize, usize)],
        prefill_rows: (usize, usize),
    ) -> Vec<f32> {
        let qkv = rows
            .iter()
            .map(|row| self.query(*row))
            .collect::<Vec<_>>()
            .concat();
        let list = |of: &dyn Fn(&(usize, usize)) -> usize| {
            upload_u32(
                device,
                &rows.iter().map(|row| of(row) as u32).collect::<Vec<_>>(),
            )
        };
        let (positions, requests) = (list(&|row| row.1), list(&|row| row.0));
        let stride = self.blocks_per_request();
        let tables: Vec<u32> = (0..self.requests.len())
            .flat_map(|request| (0..stride).map(move |block| (request, block)))
            .map(|(request, block)| self.block(request, block) as u32)
            .collect();
        let tables = upload_u32(device, &tables);
        let paging = Paging {
            positions: &positions,
            requests: &requests,
            block_tables: &tables,
            num_requests: self.requests.len(),
            table_stride: stride,
            max_len: 1 + rows.iter().map(|row| row.1).max().unwrap_or(0),
            prefill_rows,
        };
        let count = rows.len() * self.heads.q_width();
        let (qkv, mut out) = (upload(device, &qkv), room(device, count));
        device
            .paged_attention(
                &qkv,
                rows.len(),
                self.heads,
                cache,
                paging,
                scores,
                &mut out,
            )
            .unwrap();
        download(device, &out, count)
    }

    fn reference(&self, format: KvFormat, scores: Scores, row: (usize, usize)) -> Vec<f64> {
        let Heads {
            num_heads,
            num_kv_heads,
            head_dim,
        } = self.heads;
        let stored = |values: &[f32]| match format {
            KvFormat::F32 => values.to_vec(),
            KvFormat::Bf16 => rounded(values),
        };
        let mut out = Vec::new();
        let query = self.query(row);
        let first = scores
            .window
            .map_or(0, |window| (row.1 + 1).saturating_sub(window));
        for head in 0..num_heads {
            let kv_head = head / (num_heads / num_kv_heads);
            let query = &query[head * head_dim..][..head_dim];
            let mut weights = Vec::new();
            for position in first..=row.1 {
                let keys = &self.query((row.0, position))[num_heads * head_dim..];
                let key = stored(&keys[kv_head * head_dim..][..head_dim]);
                let pairs = query.iter().zip(&key);
                let dot: f64 = pairs.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                let mut score = dot * f64::from(scores.scale);
                if let Some(bound) = scores.softcap {
                    score = f64::from(bound) * (score / f64::from(bound)).tanh();
                }
                weights.push(score);
            }
            let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            weights
                .iter_mut()
                .for_each(|score| *score = (*score - largest).exp());
            let sum: f64 = weights.iter().sum();
            let mut result = vec![0.0; head_dim];
            for (position, weight) in (first..).zip(&weights) {
                let values =
                    &self.query((row.0, position))[(num_heads + num_kv_heads) * head_dim..];
                let values = stored(&values[kv_head * head_dim..][..head_dim]);
                for (result, value) in result.iter_mut().zip(values) {
                    *result += weight / sum * f64::from(value);
                }
            }
            out.extend(result);
        }
        out
    }

    /// Against the reference, and each row alone.
    fn check(&self, format: KvFormat, scores: Scores) {
        let rows = self.rows.iter();
        let expected: Vec<f64> = rows
            .flat_map(|row| self.reference(format, scores, *row))
            .collect();
        for device in devices() {
            let cache = self.cache(&device, format);
            let all = self.run(&device, &cache, scores, &self.rows, (0, 0));
            let what = format!("{:?} {format:?} {scores:?}", self.heads);
            assert_close(&all, &expected, tolerance(format), &what);
            // Some or all of them by the kernel for prefill.
            let len = self.rows.len();
            for prefill_rows in [(0, len), (1, len - 1)] {
                let found = self.run(&device, &cache, scores, &self.rows, prefill_rows);
                assert_same(&found, &all, &format!("{scores:?} {prefill_rows:?}"));
            }
            for (row, found) in self.rows.iter().zip(all.chunks(self.heads.q_width())) {
                let what = format!("{:?} {format:?} {scores:?} {row:?}", self.heads);
                assert_same(
                    &self.run(&device, &cache, scores, &[*row], (0, 0)),
                    found,
                    &what,
                );
            }
        }
    }
}

/// Caches of bfloat16 are multiplied with queries and weights of bfloat16.
fn tolerance(format: KvFormat) -> f64 {
    match format {
        KvFormat::F32 => 2e-6,
        KvFormat::Bf16 => 4e-3,
    }
}

fn heads(num_heads: usize, num_kv_heads: usize, head_dim: usize) -> Heads {
    Heads {
        num_heads,
        num_kv_heads,
        head_dim,
    }
}

const PLAIN: Scores = Scores {
    scale: 0.3,
    softcap: None,
    window: None,
};

#[test]
fn heads_of_all_widths_and_groups() {
    for (num_heads, num_kv_heads, head_dim) in [
        (1, 1, 64),
        (4, 2, 80),
        (3, 1, 96),
        (4, 1, 128),
        (5, 1, 256),
        (6, 1, 8),
        (7, 1, 64),
        (8, 1, 16),
        (12, 1, 24),
        (2, 2, 1),
    ] {
        let heads = heads(num_heads, num_kv_heads, head_dim);
        let batch = Batch::new(
            heads,
            16,
            &[21, 40],
            &[(0, 0), (0, 20), (1, 15), (1, 16), (1, 39)],
        );
        batch.check(KvFormat::F32, PLAIN);
        batch.check(KvFormat::Bf16, PLAIN);
    }
}

#[test]
fn positions_of_several_parts() {
    let last = 2 * PART + 3;
    let rows = [
        (0, PART - 1),
        (0, PART),
        (1, last - 1),
        (0, 2 * PART),
        (1, 2 * PART - 1),
        (1, 5),
    ];
    let batch = Batch::new(heads(4, 2, 32), 16, &[last, last], &rows);
    for format in [KvFormat::F32, KvFormat::Bf16] {
        batch.check(format, PLAIN);
        for window in [1, 100, PART + 1, last + 5] {
            batch.check(
                format,
                Scores {
                    window: Some(window),
                    ..PLAIN
                },
            );
        }
    }
}

#[test]
fn softcaps_and_odd_blocks() {
    let rows = [(0, 269), (0, 270), (1, 3), (1, 299)];
    let batch = Batch::new(heads(2, 1, 40), 7, &[271, 300], &rows);
    for format in [KvFormat::F32, KvFormat::Bf16] {
        for window in [None, Some(30)] {
            let scores = Scores {
                scale: 2.0,
                softcap: Some(3.0),
                window,
            };
            batch.check(format, scores);
        }
    }
}

/// A batch that is large enough is computed without splitting its rows' parts.
#[test]
fn a_large_batch_has_the_results_of_each_row() {
    let len = PART + 140;
    let rows: Vec<(usize, usize)> = (len - 140..len).map(|position| (0, position)).collect();
    let batch = Batch::new(heads(8, 8, 8), 16, &[len], &rows);
    for format in [KvFormat::F32, KvFormat::Bf16] {
        for device in devices() {
            let cache = batch.cache(&device, format);
            let all = batch.run(&device, &cache, PLAIN, &rows, (0, 0));
            let prefill = batch.run(&device, &cache, PLAIN, &rows, (0, rows.len()));
            assert_same(&prefill, &all, "prefill");
            for (at, row) in rows.iter().enumerate().step_by(23) {
                let found = &all[at * 64..][..64];
                let expected = batch.reference(format, PLAIN, *row);
                assert_close(found, &expected, tolerance(format), "large");
                assert_same(
                    &batch.run(&device, &cache, PLAIN, &[*row], (0, 0)),
                    found,
                    "alone",
                );
            }
            let some = batch.run(&device, &cache, PLAIN, &rows[30..70], (2, 35));
            assert_same(&some, &all[30 * 64..70 * 64], "a chunk");
        }
    }
}
