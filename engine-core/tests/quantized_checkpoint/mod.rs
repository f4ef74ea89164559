//! Quantized checkpoints made of plain ones, each in the layout of its quantizer, with the values that are in
//! them: a second reading of the published formats, that shares nothing with the engine's.
//!
//! Test and benchmark support: `#[path]` it from wherever one is needed.

#![allow(unreachable_pub, reason = "support of several test files")]
#![allow(dead_code, reason = "each user needs a part of it")]

use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

/// A form of quantized checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Gptq {
        bits: u32,
        group: Option<usize>,
        order: Order,
    },
    Awq {
        group: usize,
    },
    Packed {
        bits: u32,
        group: Option<usize>,
        symmetric: bool,
    },
    /// `fp8` with a scale per tensor.
    Fp8Tensor,
    /// `fp8` in blocks of 128 by 128.
    Fp8Block,
    /// compressed-tensors' `float-quantized` with a scale per row.
    Fp8Channel,
    /// compressed-tensors' `int-quantized` with a scale per row.
    Int8Channel,
    /// bitsandbytes' NF4 in blocks of 64, whose scales may be quantized too.
    Nf4 {
        nested: bool,
    },
    /// bitsandbytes' 8 bits.
    LlmInt8,
}

/// In which order columns fall into groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    Own,
    /// Another, the same for matrices with the same input.
    PerInput,
    /// Another for each matrix.
    PerMatrix,
}

/// One tensor of a file.
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// Writes `tensors` and `config` as a checkpoint.
pub fn write(folder: &Path, config: &Value, tensors: &[Tensor]) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.data);
        (tensor.name.clone(), view.unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

/// All tensors of a folder with one file.
pub fn read(folder: &Path) -> (Value, Vec<Tensor>) {
    let config = std::fs::read(folder.join("config.json")).unwrap();
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<Tensor> = (file.iter())
        .map(|(name, view)| Tensor {
            name: name.to_owned(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            data: view.data().to_vec(),
        })
        .collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    (serde_json::from_slice(&config).unwrap(), tensors)
}

/// Writes the checkpoint `from` in `form` to one folder, and the values that it then has, in f32, to another.
pub fn convert(from: &Path, form: Form, quantized: &Path, plain: &Path) {
    let (mut config, tensors) = read(from);
    let (mut codes, mut values) = (Vec::new(), Vec::new());
    for tensor in tensors {
        let module = tensor.name.strip_suffix(".weight");
        match module.filter(|name| name.ends_with("_proj")) {
            Some(module) => {
                let shape = [tensor.shape[0], tensor.shape[1]];
                let (parts, dequantized) = quantize(form, module, shape, &floats(&tensor));
                codes.extend(parts);
                values.push(floats_of(&tensor.name, &tensor.shape, &dequantized));
            }
            None => {
                values.push(floats_of(&tensor.name, &tensor.shape, &floats(&tensor)));
                codes.push(tensor);
            }
        }
    }
    write(plain, &config, &values);
    config["quantization_config"] = form.config();
    write(quantized, &config, &codes);
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let halves = || tensor.data.as_chunks::<2>().0.iter();
    match tensor.dtype {
        Dtype::F16 => halves().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::BF16 => halves().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        _ => (tensor.data.as_chunks::<4>().0.iter())
            .map(|b| f32::from_le_bytes(*b))
            .collect(),
    }
}

fn floats_of(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
    Tensor {
        name: name.to_owned(),
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

impl Form {
    /// `quantization_config`.
    pub fn config(self) -> Value {
        let size = |group: Option<usize>| group.map_or(json!(-1), |size| json!(size));
        let compressed = |format: &str, weights: Value| {
            json!({
                "quant_method": "compressed-tensors", "format": format,
                "quantization_status": "compressed", "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                    "input_activations": null}},
            })
        };
        match self {
            Self::Gptq { bits, group, order } => json!({
                "quant_method": "gptq", "bits": bits, "group_size": size(group),
                "desc_act": order != Order::Own, "sym": bits == 8, "checkpoint_format": "gptq",
                "lm_head": false,
            }),
            Self::Awq { group } => json!({
                "quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
                "zero_point": true, "modules_to_not_convert": null,
            }),
            Self::Packed {
                bits,
                group,
                symmetric,
            } => {
                let strategy = if group.is_some() { "group" } else { "channel" };
                compressed(
                    "pack-quantized",
                    json!({"num_bits": bits, "type": "int", "symmetric": symmetric,
                        "strategy": strategy, "group_size": group, "actorder": null}),
                )
            }
            Self::Fp8Tensor => json!({"quant_method": "fp8", "activation_scheme": "dynamic"}),
            Self::Fp8Block => json!({
                "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"],
            }),
            Self::Fp8Channel => compressed(
                "float-quantized",
                json!({"num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel"}),
            ),
            Self::Int8Channel => compressed(
                "int-quantized",
                json!({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"}),
            ),
            Self::Nf4 { nested } => json!({
                "quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false,
                "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested,
                "bnb_4bit_quant_storage": "uint8", "llm_int8_skip_modules": null,
            }),
            Self::LlmInt8 => json!({
                "quant_method": "bitsandbytes", "load_in_4bit": false, "load_in_8bit": true,
                "llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0,
            }),
        }
    }
}

/// The tensors of a layer, and the values that they stand for.
fn quantize(form: Form, module: &str, shape: [usize; 2], w: &[f32]) -> (Vec<Tensor>, Vec<f32>) {
    let [rows, cols] = shape;
    let tensor = |suffix: &str, dtype, shape: &[usize], data| Tensor {
        name: format!("{module}.{suffix}"),
        dtype,
        shape: shape.to_vec(),
        data,
    };
    match form {
        Form::Gptq { bits, group, order } => {
            let size = group.unwrap_or(cols);
            let index = group_index(module, cols, size, order);
            let whole = Whole::of(w, shape, bits, &index, bits == 8);
            let (n, groups) = (32 / bits as usize, cols / size);
            // Codes of consecutive columns in a word, words by row of the layer's output.
            let qweight = words(cols / n, rows, n, bits, |i, row, at| {
                whole.code(row, i * n + at)
            });
            let qzeros = words(groups, rows / n, n, bits, |group, i, at| {
                // One less than it is.
                whole.zero(i * n + at, group) - 1
            });
            let scales = (0..groups).flat_map(|g| (0..rows).map(move |row| (row, g)));
            let parts = vec![
                tensor("qweight", Dtype::I32, &[cols / n, rows], qweight),
                tensor("qzeros", Dtype::I32, &[groups, rows / n], qzeros),
                tensor(
                    "scales",
                    Dtype::F16,
                    &[groups, rows],
                    halves(scales, &whole),
                ),
                tensor("g_idx", Dtype::I32, &[cols], le_bytes(&index)),
            ];
            (parts, whole.values())
        }
        Form::Awq { group } => {
            const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
            let index = group_index(module, cols, group, Order::Own);
            let whole = Whole::of(w, shape, 4, &index, false);
            let groups = cols / group;
            let qweight = words(cols, rows / 8, 8, 4, |col, i, at| {
                whole.code(i * 8 + ORDER[at], col)
            });
            let qzeros = words(groups, rows / 8, 8, 4, |group, i, at| {
                whole.zero(i * 8 + ORDER[at], group)
            });
            let scales = (0..groups).flat_map(|g| (0..rows).map(move |row| (row, g)));
            let parts = vec![
                tensor("qweight", Dtype::I32, &[cols, rows / 8], qweight),
                tensor("qzeros", Dtype::I32, &[groups, rows / 8], qzeros),
                tensor(
                    "scales",
                    Dtype::F16,
                    &[groups, rows],
                    halves(scales, &whole),
                ),
            ];
            (parts, whole.values())
        }
        Form::Packed {
            bits,
            group,
            symmetric,
        } => {
            let size = group.unwrap_or(cols);
            let index = group_index(module, cols, size, Order::Own);
            let whole = Whole::of(w, shape, bits, &index, symmetric);
            let (n, groups) = (32 / bits as usize, cols / size);
            let packed = words(rows, cols.div_ceil(n), n, bits, |row, i, at| {
                if i * n + at < cols {
                    whole.code(row, i * n + at)
                } else {
                    0
                }
            });
            let scales = (0..rows).flat_map(|row| (0..groups).map(move |g| (row, g)));
            let mut parts = vec![
                tensor(
                    "weight_packed",
                    Dtype::I32,
                    &[rows, cols.div_ceil(n)],
                    packed,
                ),
                tensor(
                    "weight_scale",
                    Dtype::F16,
                    &[rows, groups],
                    halves(scales, &whole),
                ),
                tensor("weight_shape", Dtype::I64, &[2], {
                    let shape = shape.map(|size| (size as i64).to_le_bytes());
                    shape.concat()
                }),
            ];
            if !symmetric {
                let zeros = words(rows.div_ceil(n), groups, n, bits, |i, group, at| {
                    if i * n + at < rows {
                        whole.zero(i * n + at, group)
                    } else {
                        0
                    }
                });
                let shape = [rows.div_ceil(n), groups];
                parts.push(tensor("weight_zero_point", Dtype::I32, &shape, zeros));
            }
            (parts, whole.values())
        }
        Form::Fp8Tensor => {
            let (codes, scales, values) = bytes(w, shape, shape, 448.0, nearest_e4m3);
            let scale = le_floats(&scales);
            let parts = vec![
                tensor("weight", Dtype::F8_E4M3, &shape, codes),
                tensor("weight_scale", Dtype::F32, &[], scale),
            ];
            (parts, values)
        }
        Form::Fp8Block => {
            let (codes, scales, values) = bytes(w, shape, [128, 128], 448.0, nearest_e4m3);
            let blocks = [rows.div_ceil(128), cols.div_ceil(128)];
            let parts = vec![
                tensor("weight", Dtype::F8_E4M3, &shape, codes),
                tensor("weight_scale_inv", Dtype::F32, &blocks, le_floats(&scales)),
            ];
            (parts, values)
        }
        Form::Fp8Channel => {
            let (codes, scales, values) = bytes(w, shape, [1, cols], 448.0, nearest_e4m3);
            let parts = vec![
                tensor("weight", Dtype::F8_E4M3, &shape, codes),
                tensor("weight_scale", Dtype::F32, &[rows, 1], le_floats(&scales)),
            ];
            (parts, values)
        }
        Form::Int8Channel => {
            let nearest = |value: f32| {
                let whole = value.round().clamp(-127.0, 127.0);
                (whole as i8 as u8, whole)
            };
            let (codes, scales, values) = bytes(w, shape, [1, cols], 127.0, nearest);
            let parts = vec![
                tensor("weight", Dtype::I8, &shape, codes),
                tensor("weight_scale", Dtype::F32, &[rows, 1], le_floats(&scales)),
            ];
            (parts, values)
        }
        Form::Nf4 { nested } => {
            let mut state = json!({
                "quant_type": "nf4", "blocksize": NF4_BLOCK, "dtype": "bfloat16", "shape": shape,
            });
            let mut scales: Vec<f32> = (w.chunks(NF4_BLOCK))
                .map(|block| block.iter().fold(0.0, |most, value| value.abs().max(most)))
                .collect();
            let mut parts = Vec::new();
            let blocks = scales.len();
            if nested {
                let offset = scales.iter().sum::<f32>() / blocks as f32;
                let map: Vec<f32> = (0..=255).map(|code| code as f32 / 127.5 - 1.0).collect();
                let (mut codes, mut outer) = (Vec::new(), Vec::new());
                for block in scales.chunks_mut(NESTED_BLOCK) {
                    let off = |scale: &f32| (scale - offset).abs();
                    let most = block.iter().map(off).fold(1e-9, f32::max);
                    for scale in block {
                        let code = nearest_of(&map, (*scale - offset) / most);
                        *scale = map[code] * most + offset;
                        codes.push(code as u8);
                    }
                    outer.push(most);
                }
                state["nested_blocksize"] = json!(NESTED_BLOCK);
                state["nested_dtype"] = json!("float32");
                state["nested_offset"] = json!(offset);
                parts.push(tensor("weight.absmax", Dtype::U8, &[blocks], codes));
                let (name, outer_len) = ("weight.nested_absmax", outer.len());
                parts.push(tensor(name, Dtype::F32, &[outer_len], le_floats(&outer)));
                let name = "weight.nested_quant_map";
                parts.push(tensor(name, Dtype::F32, &[256], le_floats(&map)));
            } else {
                let data = le_floats(&scales);
                parts.push(tensor("weight.absmax", Dtype::F32, &[blocks], data));
            }
            let codes: Vec<usize> = (w.iter().enumerate())
                .map(|(at, value)| nearest_of(&NF4, value / scales[at / NF4_BLOCK]))
                .collect();
            let values = codes.iter().enumerate();
            let values = values.map(|(at, code)| NF4[*code] * scales[at / NF4_BLOCK]);
            let packed = codes.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
            let (name, packed) = ("weight", packed.collect());
            parts.push(tensor(name, Dtype::U8, &[rows * cols / 2, 1], packed));
            parts.push(tensor(
                "weight.quant_map",
                Dtype::F32,
                &[16],
                le_floats(&NF4),
            ));
            let (name, state) = ("weight.quant_state.bitsandbytes__nf4", state.to_string());
            parts.push(tensor(name, Dtype::U8, &[state.len()], state.into_bytes()));
            (parts, values.collect())
        }
        Form::LlmInt8 => {
            let nearest = |value: f32| {
                let whole = value.round().clamp(-127.0, 127.0);
                (whole as i8 as u8, whole)
            };
            let (codes, scales, values) = bytes(w, shape, [1, cols], 127.0, nearest);
            let largest: Vec<f32> = scales.iter().map(|scale| scale * 127.0).collect();
            let parts = vec![
                tensor("weight", Dtype::I8, &shape, codes),
                tensor("SCB", Dtype::F32, &[rows], le_floats(&largest)),
                tensor("weight_format", Dtype::U8, &[], vec![0]),
            ];
            (parts, values)
        }
    }
}

/// Values of a block of bitsandbytes, and scales that share one of their own.
const NF4_BLOCK: usize = 64;
const NESTED_BLOCK: usize = 256;

/// The numbers of NF4, as the appendix of the QLoRA paper (arXiv 2305.14314) lists them.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_4,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The entry of a table that is nearest to a value.
fn nearest_of(table: &[f32], value: f32) -> usize {
    let error = |at: &usize| (table[*at] - value).abs();
    let nearest = (0..table.len()).min_by(|a, b| error(a).total_cmp(&error(b)));
    nearest.unwrap()
}

/// Rows of whole numbers with scales and zeros by group.
struct Whole<'a> {
    codes: Vec<u32>,
    scales: Vec<f16>,
    zeros: Vec<u32>,
    cols: usize,
    groups: usize,
    /// The group of each column.
    index: &'a [u32],
}

impl<'a> Whole<'a> {
    fn of(w: &[f32], [rows, cols]: [usize; 2], bits: u32, index: &'a [u32], middle: bool) -> Self {
        let groups = *index.iter().max().unwrap() as usize + 1;
        let most = (1u32 << bits) - 1;
        let mut whole = Self {
            codes: vec![0; rows * cols],
            scales: Vec::new(),
            zeros: Vec::new(),
            cols,
            groups,
            index,
        };
        for (row, w) in w.chunks(cols).enumerate() {
            for group in 0..groups {
                let own = || (0..cols).filter(|col| index[*col] as usize == group);
                let (least, largest) = own().fold((0f32, 0f32), |(least, largest), col| {
                    (least.min(w[col]), largest.max(w[col]))
                });
                let width = match middle {
                    true => 2.0 * largest.max(-least),
                    false => largest - least,
                };
                let scale = f16::from_f32(width.max(1e-4) / most as f32);
                let zero = match middle {
                    true => 1 << (bits - 1),
                    // GPTQ stores one less, so it has no 0.
                    false => ((-least / scale.to_f32()).round() as u32).clamp(1, most),
                };
                for col in own() {
                    let code = (w[col] / scale.to_f32()).round() + zero as f32;
                    whole.codes[row * cols + col] = code.clamp(0.0, most as f32) as u32;
                }
                whole.scales.push(scale);
                whole.zeros.push(zero);
            }
        }
        whole
    }

    fn code(&self, row: usize, col: usize) -> u32 {
        self.codes[row * self.cols + col]
    }

    fn zero(&self, row: usize, group: usize) -> u32 {
        self.zeros[row * self.groups + group]
    }

    fn values(&self) -> Vec<f32> {
        let value = |(at, code): (usize, &u32)| {
            let (row, col) = (at / self.cols, at % self.cols);
            let group = row * self.groups + self.index[col] as usize;
            let whole = *code as f32 - self.zeros[group] as f32;
            self.scales[group].to_f32() * whole
        };
        self.codes.iter().enumerate().map(value).collect()
    }
}

/// The group of each column.
fn group_index(module: &str, cols: usize, size: usize, order: Order) -> Vec<u32> {
    let seed = match order {
        Order::Own => None,
        Order::PerInput => Some(format!("{cols}{}", module.split('.').nth(3).unwrap_or(""))),
        Order::PerMatrix => Some(module.to_owned()),
    };
    let mut index: Vec<u32> = (0..cols).map(|col| (col / size) as u32).collect();
    if let Some(seed) = seed {
        let hash = |text: &[u8]| {
            text.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            })
        };
        let mut keyed: Vec<(u64, u32)> = index
            .iter()
            .enumerate()
            .map(|(col, group)| (hash(format!("{seed}{col}").as_bytes()), *group))
            .collect();
        keyed.sort_unstable();
        index = keyed.into_iter().map(|(_, group)| group).collect();
    }
    index
}

/// `[rows, cols]` words of `n` codes each, the first in the lowest bits.
fn words(
    rows: usize,
    cols: usize,
    n: usize,
    bits: u32,
    code: impl Fn(usize, usize, usize) -> u32,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in 0..rows {
        for col in 0..cols {
            let word = (0..n).fold(0, |word, at| {
                word | code(row, col, at) << (at as u32 * bits)
            });
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

/// Scales in this order of rows and groups.
fn halves(places: impl Iterator<Item = (usize, usize)>, whole: &Whole<'_>) -> Vec<u8> {
    places
        .flat_map(|(row, group)| whole.scales[row * whole.groups + group].to_le_bytes())
        .collect()
}

fn le_bytes(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn le_floats(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// A byte for each value: bytes, scales by block, and what they stand for.
fn bytes(
    w: &[f32],
    [rows, cols]: [usize; 2],
    block: [usize; 2],
    most: f32,
    nearest: impl Fn(f32) -> (u8, f32),
) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
    let blocks = cols.div_ceil(block[1]);
    let mut scales = vec![0f32; rows.div_ceil(block[0]) * blocks];
    let place = |at: usize| at / cols / block[0] * blocks + at % cols / block[1];
    for (at, value) in w.iter().enumerate() {
        let scale = &mut scales[place(at)];
        *scale = scale.max(value.abs() / most);
    }
    let both = w.iter().enumerate().map(|(at, value)| {
        let scale = scales[place(at)];
        let (code, number) = nearest(value / scale);
        (code, scale * number)
    });
    let (codes, values) = both.unzip();
    (codes, scales, values)
}

/// The nearest float of 8 bits, and its number.
fn nearest_e4m3(value: f32) -> (u8, f32) {
    let number = |code: u8| {
        let (exponent, mantissa) = (f64::from(code >> 3), f64::from(code & 7));
        match code >> 3 {
            0 => mantissa / 8.0 * 2f64.powf(-6.0),
            _ => (1.0 + mantissa / 8.0) * 2f64.powf(exponent - 7.0),
        }
    };
    let magnitude = f64::from(value.abs());
    let code = (0..0x7f)
        .min_by(|a, b| {
            let error = |code: u8| (number(code) - magnitude).abs();
            error(*a).total_cmp(&error(*b))
        })
        .unwrap();
    let sign = if value < 0.0 { 0x80 } else { 0 };
    (code | sign, (number(code) as f32).copysign(value))
}
