//! Quantized checkpoints as their quantizers write them: read exactly, multiplied by our kernels, and refused
//! where they contradict themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod quantized_checkpoint;
mod random_checkpoint;

use std::path::Path;

use engine_core::model_executor::ModelDtype;
use model_runner::{LIMITS, Runner, Sequence, WeightOptions, cosine, load, load_with};
use protocol::{BackendKind, Dtype, KvCacheDtype, Quantization};
use quantized_checkpoint::{Form, Order, Tensor, convert, read, write};
use random_checkpoint::RandomCheckpoint;
use serde_json::{Value, json};

/// A small model whose sizes are whole groups, and not all whole blocks of 128 or groups of 256.
fn small(architecture: &'static str) -> RandomCheckpoint {
    RandomCheckpoint {
        hidden_size: 128,
        intermediate_size: 320,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 32,
        num_hidden_layers: 2,
        ..RandomCheckpoint::tiny(architecture, 3)
    }
}

/// A model in a form, and one of the same values in f32.
struct Pair {
    quantized: tempfile::TempDir,
    plain: tempfile::TempDir,
}

impl Pair {
    fn of(model: &RandomCheckpoint, form: Form) -> Self {
        let [from, quantized, plain] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        model.write(from.path()).unwrap();
        convert(from.path(), form, quantized.path(), plain.path());
        Self { quantized, plain }
    }
}

fn logits(folder: &Path, backend: BackendKind, quantization: Quantization) -> Vec<f32> {
    let options = WeightOptions(Dtype::Float32, quantization);
    let ids: Vec<u32> = (0..60).map(|id| id * 7 % 203).collect();
    let mut sequence = Sequence::new(&ids, &[5, 2, 9, 4]);
    Runner::new(folder, backend, options, 2).prefill(&mut sequence, 50)
}

const GPTQ: Form = Form::Gptq {
    bits: 4,
    group: Some(64),
    order: Order::Own,
};

/// bitsandbytes' NF4 with double quantization, and the tensor with its metadata.
const NF4: Form = Form::Nf4 { nested: true };
const NF4_STATE: &str = "weight.quant_state.bitsandbytes__nf4";

/// Forms of 4 bits, whose groups are kept.
const FOUR_BITS: [Form; 8] = [
    GPTQ,
    Form::Gptq {
        bits: 4,
        group: Some(32),
        order: Order::PerInput,
    },
    Form::Gptq {
        bits: 4,
        group: Some(64),
        order: Order::PerMatrix,
    },
    Form::Gptq {
        bits: 4,
        group: None,
        order: Order::Own,
    },
    Form::Awq { group: 64 },
    Form::Awq { group: 32 },
    Form::Packed {
        bits: 4,
        group: Some(64),
        symmetric: true,
    },
    Form::Packed {
        bits: 4,
        group: Some(32),
        symmetric: false,
    },
];

/// Forms of 8 bits, and floats of 4, which are rounded to groups of 256.
const EIGHT_BITS: [Form; 8] = [
    Form::Gptq {
        bits: 8,
        group: Some(64),
        order: Order::PerInput,
    },
    Form::Packed {
        bits: 8,
        group: None,
        symmetric: true,
    },
    Form::Packed {
        bits: 8,
        group: Some(32),
        symmetric: false,
    },
    Form::Fp8Tensor,
    Form::Fp8Block,
    Form::Fp8Channel,
    Form::Nf4 { nested: false },
    Form::Nf4 { nested: true },
];

#[test]
fn four_bits_are_read_exactly_and_multiplied_as_they_are() {
    for architecture in ["LlamaForCausalLM", "Qwen3MoeForCausalLM"] {
        let mut model = small(architecture);
        if architecture.starts_with("Qwen3Moe") {
            model.extra["moe_intermediate_size"] = json!(64);
            // Each token goes through all experts: no rounding chooses another.
            model.extra["num_experts_per_tok"] = model.extra["num_experts"].clone();
        }
        for form in FOUR_BITS {
            let what = format!("{architecture} {form:?}");
            let pair = Pair::of(&model, form);
            let plain = logits(pair.plain.path(), BackendKind::Candle, Quantization::None);
            let ours = logits(pair.quantized.path(), BackendKind::Cpu, Quantization::None);
            let likeness = cosine(&ours, &plain);
            println!("{what}: {likeness:.6}");
            assert!(likeness > 0.999, "{what}: {likeness}");
            // Experts in another order of columns are rounded to 8 bits.
            let ordered = matches!(form, Form::Gptq { order, .. } if order != Order::Own);
            if !(architecture.starts_with("Qwen3Moe") && ordered) {
                let read = logits(
                    pair.quantized.path(),
                    BackendKind::Candle,
                    Quantization::None,
                );
                assert_eq!(read, plain, "{what}");
            }
        }
    }
}

#[test]
fn eight_bits_are_read_exactly_and_rounded_as_plain_weights_are() {
    for form in EIGHT_BITS {
        let pair = Pair::of(&small("LlamaForCausalLM"), form);
        let plain = logits(pair.plain.path(), BackendKind::Cpu, Quantization::Q8_0);
        let ours = logits(pair.quantized.path(), BackendKind::Cpu, Quantization::Q8_0);
        assert_eq!(ours, plain, "{form:?}");
        let exact = logits(pair.plain.path(), BackendKind::Cpu, Quantization::None);
        let ours = logits(pair.quantized.path(), BackendKind::Cpu, Quantization::None);
        let likeness = cosine(&ours, &exact);
        println!("{form:?}: {likeness:.6}");
        assert!(likeness > 0.998, "{form:?}: {likeness}");
    }
}

#[test]
fn signed_bytes_with_a_scale_per_row_are_kept_as_they_are() {
    for form in [Form::Int8Channel, Form::LlmInt8] {
        let pair = Pair::of(&small("LlamaForCausalLM"), form);
        let plain = logits(pair.plain.path(), BackendKind::Candle, Quantization::None);
        let read = logits(
            pair.quantized.path(),
            BackendKind::Candle,
            Quantization::None,
        );
        // But for the scales, which are rounded to half precision.
        assert!(cosine(&read, &plain) > 0.999_99, "{form:?}");
        let ours = logits(pair.quantized.path(), BackendKind::Cpu, Quantization::None);
        assert!(cosine(&ours, &plain) > 0.999, "{form:?}");
    }
}

/// Checkpoints of published quantizers, which `quantizers/make.py` wrote by their own packages, beside the logits that
/// transformers computes with the weights as these packages read them.
#[test]
fn files_of_published_quantizers_are_read_as_their_own_packages_read_them() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/quantizers");
    let mut forms: Vec<_> = (std::fs::read_dir(folders).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    forms.sort();
    assert_eq!(forms.len(), 14);
    for folder in forms {
        let expected = std::fs::read(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let ids: Vec<u32> = serde_json::from_value(expected["ids"].clone()).unwrap();
        let expected: Vec<f32> = serde_json::from_value(expected["last_logits"].clone()).unwrap();
        let likeness = [BackendKind::Candle, BackendKind::Cpu].map(|backend| {
            let options = WeightOptions(Dtype::Float32, Quantization::None);
            let mut sequence = Sequence::new(&ids, &[5, 2, 9]);
            let mut runner = Runner::new(&folder, backend, options, 2);
            cosine(&runner.prefill(&mut sequence, ids.len()), &expected)
        });
        let name = folder.file_name().unwrap().to_str().unwrap();
        println!("{name}: {likeness:?}");
        assert!(likeness[0] > 0.9997, "{name}: {likeness:?}");
        assert!(likeness[1] > 0.999, "{name}: {likeness:?}");
    }
}

#[test]
fn the_same_on_a_gpu_in_the_models_dtype() {
    for form in [GPTQ, Form::Awq { group: 32 }, Form::Fp8Block] {
        let pair = Pair::of(&small("Qwen2ForCausalLM"), form);
        let of = |folder: &Path| logits(folder, BackendKind::CudaSimulator, Quantization::None);
        let likeness = cosine(&of(pair.quantized.path()), &of(pair.plain.path()));
        assert!(likeness > 0.998, "{form:?}: {likeness}");
    }
}

#[test]
fn half_precision_is_kept_in_16_bits_and_multiplied_exactly() {
    for architecture in ["LlamaForCausalLM", "Qwen3MoeForCausalLM"] {
        let folder = tempfile::tempdir().unwrap();
        let model = RandomCheckpoint {
            dtype: safetensors::Dtype::F16,
            ..RandomCheckpoint::tiny(architecture, 3)
        };
        model.write(folder.path()).unwrap();
        let of = |dtype| {
            let loaded = load_with(
                folder.path(),
                BackendKind::Cpu,
                dtype,
                KvCacheDtype::Bf16,
                2,
            );
            let loaded = loaded.unwrap();
            let format = loaded.dtype();
            let ids: Vec<u32> = (0..60).map(|id| id * 7 % 203).collect();
            let mut sequence = Sequence::new(&ids, &[5, 2, 9, 4]);
            let model = loaded.into_model(&LIMITS).unwrap();
            (format, Runner { model }.prefill(&mut sequence, 50))
        };
        let (format, logits) = of(Dtype::Auto);
        assert_eq!(format, ModelDtype::Float16);
        // The same products and sums as of numbers of 32 bits.
        assert_eq!(logits, of(Dtype::Float32).1, "{architecture}");
        assert_ne!(logits, of(Dtype::BFloat16).1, "{architecture}");
    }
}

#[test]
fn half_precision_on_a_gpu_is_bfloat16() {
    let folder = tempfile::tempdir().unwrap();
    let model = RandomCheckpoint {
        dtype: safetensors::Dtype::F16,
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 3)
    };
    model.write(folder.path()).unwrap();
    let of = |dtype| load(folder.path(), BackendKind::CudaSimulator, dtype, 1);
    assert_eq!(of(Dtype::Auto).unwrap().dtype(), ModelDtype::BFloat16);
    assert_eq!(
        of(Dtype::Float16).err().unwrap().to_string(),
        "dtype: float16 is not there on a GPU: auto, bfloat16 or float32"
    );
}

/// The error of loading a checkpoint that was changed.
fn error_after(form: Form, change: impl FnOnce(&mut Value, &mut Vec<Tensor>)) -> String {
    let pair = Pair::of(&small("LlamaForCausalLM"), form);
    let (mut config, mut tensors) = read(pair.quantized.path());
    change(&mut config["quantization_config"], &mut tensors);
    write(pair.quantized.path(), &config, &tensors);
    match load(pair.quantized.path(), BackendKind::Cpu, Dtype::Auto, 1) {
        Ok(_) => panic!("a damaged checkpoint was loaded"),
        Err(error) => error.to_string(),
    }
}

const UP: &str = "model.layers.1.mlp.up_proj";

fn tensor<'a>(tensors: &'a mut [Tensor], suffix: &str) -> &'a mut Tensor {
    let name = format!("{UP}.{suffix}");
    tensors.iter_mut().find(|t| t.name == name).unwrap()
}

#[test]
fn configs_that_ask_for_something_else_are_refused_by_field() {
    let set = |form: Form, pointer: &'static str, value: Value| {
        error_after(form, |config, _| match config.pointer_mut(pointer) {
            Some(field) => *field = value,
            None => config[&pointer[1..]] = value,
        })
    };
    let packed = FOUR_BITS[6];
    for (form, pointer, value, field, right) in [
        (
            GPTQ,
            "/quant_method",
            json!("aqlm"),
            "quant_method: \"aqlm\"",
            "\"gptq\"",
        ),
        (
            GPTQ,
            "/quant_method",
            json!(null),
            "quant_method: missing",
            "\"gptq\"",
        ),
        (GPTQ, "/bits", json!(3), "bits: 3", "4 or 8"),
        (
            GPTQ,
            "/group_size",
            json!(100),
            "group_size: 100",
            "a multiple of 32",
        ),
        (
            GPTQ,
            "/group_size",
            json!("128"),
            "group_size: \"128\"",
            "a multiple of 32",
        ),
        (
            GPTQ,
            "/checkpoint_format",
            json!("marlin"),
            "\"marlin\"",
            "gptq or gptq_v2",
        ),
        (GPTQ, "/desc_act", json!(1), "desc_act: 1", "true or false"),
        (
            GPTQ,
            "/dynamic",
            json!({"-:(": {}}),
            "dynamic: \"(\"",
            "a regular expression",
        ),
        (
            FOUR_BITS[4],
            "/version",
            json!("gemv"),
            "version: \"gemv\"",
            "gemm",
        ),
        (FOUR_BITS[4], "/bits", json!(8), "bits: 8", "4"),
        (
            Form::Fp8Block,
            "/fmt",
            json!("e5m2"),
            "fmt: \"e5m2\"",
            "e4m3",
        ),
        (
            Form::Fp8Block,
            "/weight_block_size",
            json!([128]),
            "weight_block_size: [128]",
            "two",
        ),
        (
            NF4,
            "/bnb_4bit_quant_type",
            json!("int4"),
            "bnb_4bit_quant_type: \"int4\"",
            "\"nf4\" or \"fp4\"",
        ),
        (
            NF4,
            "/bnb_4bit_quant_storage",
            json!("bfloat16"),
            "bnb_4bit_quant_storage: \"bfloat16\"",
            "uint8",
        ),
        (
            NF4,
            "/load_in_4bit",
            json!(false),
            "load_in_4bit: must be true",
            "load_in_8bit",
        ),
        (
            packed,
            "/format",
            json!("nvfp4-pack-quantized"),
            "format",
            "\"pack-quantized\"",
        ),
        (
            packed,
            "/config_groups",
            json!(null),
            "config_groups: missing",
            "groups of layers",
        ),
        (
            packed,
            "/quantization_status",
            json!("calibration"),
            "quantization_status",
            "compressed",
        ),
        (
            packed,
            "/config_groups/group_0/weights/strategy",
            json!("tensor"),
            "config_groups.weights.strategy: \"tensor\"",
            "\"group\"",
        ),
        (
            packed,
            "/config_groups/group_0/weights/num_bits",
            json!(2),
            "config_groups.weights.num_bits: 2",
            "4 or 8",
        ),
        (
            FOUR_BITS[4],
            "/modules_to_not_convert",
            json!(vec!["x"; 16_385]),
            "modules_to_not_convert: too long",
            "16384",
        ),
        (
            packed,
            "/ignore",
            json!(vec!["re:x"; 257]),
            "ignore: too long",
            "256",
        ),
    ] {
        let error = set(form, pointer, value);
        assert!(
            error.contains("config.json: quantization_config."),
            "{error}"
        );
        assert!(
            error.contains(field) && error.contains(right),
            "{field}: {error}"
        );
    }
}

#[test]
fn tensors_that_contradict_the_config_are_refused_by_name_and_field() {
    type Change = Box<dyn FnOnce(&mut Value, &mut Vec<Tensor>)>;
    let without = |suffix: &'static str| -> Change {
        let name = format!("{UP}.{suffix}");
        Box::new(move |_, tensors| tensors.retain(|tensor| tensor.name != name))
    };
    let set = |field: &'static str, value: Value| -> Change {
        Box::new(move |config, _| config[field] = value)
    };
    // Changes what the tensor with bitsandbytes' metadata says.
    let state = |changes: Value| -> Change {
        Box::new(move |_, tensors| {
            let tensor = tensor(tensors, NF4_STATE);
            let mut state: Value = serde_json::from_slice(&tensor.data).unwrap();
            for (field, value) in changes.as_object().unwrap() {
                state[field] = value.clone();
            }
            tensor.data = state.to_string().into_bytes();
            tensor.shape = vec![tensor.data.len()];
        })
    };
    let ordered = FOUR_BITS[1];
    let cases: Vec<(Form, Change, String)> = vec![
        (GPTQ, without("qweight"), format!("{UP}.qweight is missing; I32 [16, 320] is needed (config.json: quantization_config.bits)")),
        (GPTQ, without("qzeros"), format!("{UP}.qzeros is missing; I32 [2, 40] is needed (config.json: quantization_config.group_size)")),
        (GPTQ, without("scales"), format!("{UP}.scales is missing; F16 or BF16 or F32 [2, 320] is needed (config.json: quantization_config.group_size)")),
        (ordered, without("g_idx"), format!("{UP}.g_idx is missing; I32 [128] is needed (config.json: quantization_config.desc_act)")),
        (Form::Fp8Block, without("weight_scale_inv"), format!("{UP}.weight_scale_inv is missing; F16 or BF16 or F32 [3, 1] is needed (config.json: quantization_config.weight_block_size)")),
        (Form::Fp8Tensor, without("weight_scale"), format!("{UP}.weight_scale is missing; F16 or BF16 or F32 [] is needed (config.json: quantization_config.quant_method)")),
        (Form::Fp8Channel, without("weight"), format!("{UP}.weight is missing; F8_E4M3 [320, 128] is needed (config.json: quantization_config.quant_method)")),
        (FOUR_BITS[7], without("weight_zero_point"), format!("{UP}.weight_zero_point is missing; I32 [40, 4] is needed (config.json: quantization_config.config_groups)")),
        (NF4, without("weight"), format!("{UP}.weight is missing; U8 [20480, 1] is needed (config.json: quantization_config.bnb_4bit_quant_type)")),
        (NF4, without("weight.absmax"), format!("{UP}.weight.absmax is missing; U8 [640] is needed")),
        (NF4, without("weight.nested_absmax"), format!("{UP}.weight.nested_absmax is missing; F16 or BF16 or F32 [3] is needed")),
        (NF4, without("weight.quant_map"), format!("{UP}.weight.quant_map is missing; F16 or BF16 or F32 [16] is needed")),
        (NF4, without(NF4_STATE), format!("{UP}.{NF4_STATE} is missing; U8 [1] is needed")),
        (NF4, set("bnb_4bit_quant_type", json!("fp4")), "weight.quant_state.bitsandbytes__fp4 is missing".to_owned()),
        (NF4, state(json!({"blocksize": 0})), format!("{UP}.{NF4_STATE} says the blocksize 0, which must be even and divide the layer's 128 input features")),
        (NF4, state(json!({"blocksize": 256})), "says the blocksize 256, which must be even".to_owned()),
        (NF4, state(json!({"shape": [128, 320]})), "says the shape [128, 320] and must say [320, 128]".to_owned()),
        (NF4, state(json!({"nested_blocksize": 0})), "says the nested_blocksize 0, which must be above 0".to_owned()),
        (NF4, state(json!({"blocksize": "x"})), format!("{UP}.{NF4_STATE} must be JSON with blocksize and shape: invalid type")),
        (
            NF4,
            Box::new(|_, tensors| {
                tensor(tensors, "weight.nested_absmax").data[4..8].copy_from_slice(&f32::MAX.to_le_bytes());
                let map = &mut tensor(tensors, "weight.nested_quant_map").data;
                map.copy_from_slice(&2f32.to_le_bytes().repeat(256));
            }),
            format!("{UP}.weight.absmax stands for inf at 256 and must be finite"),
        ),
        (Form::LlmInt8, without("SCB"), format!("{UP}.SCB is missing; F16 or BF16 or F32 [320, 1] is needed (config.json: quantization_config.load_in_8bit)")),
        (
            Form::LlmInt8,
            set("llm_int8_skip_modules", json!(["layers.1.mlp"])),
            "model.layers.1.mlp.gate_proj.SCB is of a layer that must not be quantized (config.json: quantization_config.llm_int8_skip_modules)".to_owned(),
        ),
        // Half of the groups that the config asks for.
        (GPTQ, set("group_size", json!(32)), "scales has shape [2, 128] and must be [4, 128] (config.json: quantization_config.group_size)".to_owned()),
        (GPTQ, set("group_size", json!(96)), "qweight 96 must divide the layer's 128 input features (config.json: quantization_config.group_size)".to_owned()),
        (GPTQ, set("bits", json!(8)), "qweight has shape [16, 128] and must be [32, 128] (config.json: quantization_config.bits)".to_owned()),
        (
            GPTQ,
            Box::new(|_, tensors| tensor(tensors, "scales").dtype = safetensors::Dtype::I16),
            format!("{UP}.scales is I16 and must be F16 or BF16 or F32"),
        ),
        (
            GPTQ,
            Box::new(|_, tensors| tensor(tensors, "scales").data[2..4].copy_from_slice(&[0, 0x7c])),
            format!("{UP}.scales has inf at 1 and must be finite"),
        ),
        (
            ordered,
            Box::new(|_, tensors| tensor(tensors, "g_idx").data[..4].fill(0xff)),
            format!("{UP}.g_idx column 0 has group -1; there are 4 (config.json: quantization_config.desc_act)"),
        ),
        (
            ordered,
            Box::new(|_, tensors| tensor(tensors, "g_idx").data.fill(0)),
            format!("{UP}.g_idx group 0 has 128 columns instead of 32"),
        ),
        (
            FOUR_BITS[6],
            Box::new(|_, tensors| tensor(tensors, "weight_shape").data[0] ^= 1),
            format!("{UP}.weight_shape says [321, 128] and must say [320, 128]"),
        ),
        (
            Form::Fp8Tensor,
            Box::new(|_, tensors| tensor(tensors, "weight").data[129] = 0xff),
            format!("{UP}.weight has NaN at [1, 1] (config.json: quantization_config.quant_method)"),
        ),
        // Layers that are quantized though the config says that they aren't, and the other way round.
        (
            FOUR_BITS[4],
            set("modules_to_not_convert", json!(["layers.1.mlp"])),
            "model.layers.1.mlp.gate_proj.qweight is of a layer that must not be quantized (config.json: quantization_config.modules_to_not_convert)".to_owned(),
        ),
        (
            FOUR_BITS[6],
            set("ignore", json!(["re:.*up_proj"])),
            "model.layers.0.mlp.up_proj.weight_packed is of a layer that must not be quantized (config.json: quantization_config.ignore)".to_owned(),
        ),
        (
            Form::Fp8Block,
            Box::new(|_, tensors| {
                let weight = tensor(tensors, "weight");
                weight.dtype = safetensors::Dtype::F16;
                weight.data = vec![0; 2 * weight.data.len()];
            }),
            format!("{UP}.weight is not quantized, and the layer must be (fp8) unless it is listed (config.json: quantization_config.modules_to_not_convert)"),
        ),
    ];
    for (form, change, expected) in cases {
        let error = error_after(form, change);
        assert!(error.starts_with("tensor "), "{error}");
        assert!(error.contains(&expected), "{error}\nand not\n{expected}");
    }
}

#[test]
fn layers_that_are_left_alone_are_read_as_they_are() {
    let pair = Pair::of(&small("LlamaForCausalLM"), Form::Awq { group: 32 });
    let (mut config, mut tensors) = read(pair.quantized.path());
    let (_, plain) = read(pair.plain.path());
    tensors.retain(|tensor| !tensor.name.starts_with("model.layers.1.mlp."));
    let own = plain.into_iter();
    tensors.extend(own.filter(|tensor| tensor.name.starts_with("model.layers.1.mlp.")));
    config["quantization_config"]["modules_to_not_convert"] = json!(["layers.1.mlp"]);
    write(pair.quantized.path(), &config, &tensors);
    let expected = logits(pair.plain.path(), BackendKind::Candle, Quantization::None);
    let found = logits(
        pair.quantized.path(),
        BackendKind::Candle,
        Quantization::None,
    );
    assert_eq!(found, expected);
    assert!(
        cosine(
            &logits(pair.quantized.path(), BackendKind::Cpu, Quantization::None),
            &expected
        ) > 0.999
    );
}
