#!/usr/bin/env python3
"""Writes one tiny Llama in the forms of published quantizers, each by the quantizer's own package, beside what that
package reads in its file.

usage: make.py OUT_FOLDER [FORM...]
needs: torch 2.15, transformers 5.24, compressed-tensors 0.20, auto-round 0.16, bitsandbytes 0.50 (all on the CPU), and
for AWQ the folder `awq/utils` of autoawq 0.2.9's source in AUTOAWQ_UTILS.

OUT_FOLDER/FORM has config.json, model.safetensors and expected.json: {"ids": a prompt, "last_logits": the logits behind
it, in float32}. The logits are transformers' on the weights as the package multiplies them out.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

VOCAB_SIZE = 96
IDS = [i * 7 % VOCAB_SIZE for i in range(40)]
BLOCK = 128


def plain(dtype):
    """The same random model at each call."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=None, eos_token_id=0,
        pad_token_id=None, initializer_range=0.08)
    return LlamaForCausalLM(config).eval().to(dtype)


def with_weights(dtype, weights):
    """A plain model in float32 with `weights` (by module) in place of its own, which were rounded to `dtype`."""
    model = plain(dtype).float()
    for name, values in weights.items():
        model.get_submodule(name).weight.data = values.detach().float()
    return model


def finish(folder, model):
    """Writes what `model` computes, and takes away what an engine doesn't read."""
    with torch.no_grad():
        logits = torch.nn.Module.float(model)(torch.tensor([IDS])).logits[0, -1].tolist()
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump({"ids": IDS, "last_logits": [round(logit, 6) for logit in logits]}, file)
    for name in ("tokenizer.json", "tokenizer_config.json", "quantization_config.json", "generation_config.json"):
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))


def saved_plain(dtype):
    folder = tempfile.mkdtemp()
    plain(dtype).save_pretrained(folder)
    return folder


def compressed_tensors(folder, format, **weights):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config)
    from compressed_tensors.quantization.utils import calculate_qparams

    args = QuantizationArgs(**weights)
    model = plain(torch.bfloat16)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    apply_quantization_config(model, QuantizationConfig(
        config_groups={"group_0": scheme}, ignore=["lm_head"], format=format, quantization_status="initialized"))
    quantized = [name for name, module in model.named_modules() if getattr(module, "quantization_scheme", None)]
    for module in map(model.get_submodule, quantized):
        values = module.weight.data.float()
        rows, columns = values.shape
        tiles, axes = {
            "group": lambda: (values.reshape(rows, -1, args.group_size), (2,)),
            "channel": lambda: (values.reshape(rows, 1, columns), (2,)),
            "tensor": lambda: (values.reshape(1, -1), (1,)),
            "block": lambda: (values.reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK), (1, 3)),
        }[weights["strategy"]]()
        scale, zero = calculate_qparams(tiles.amin(axes), tiles.amax(axes), args)
        module.weight_scale.data = scale.reshape(module.weight_scale.shape).to(module.weight_scale.dtype)
        zero_point = getattr(module, "weight_zero_point", None)
        if zero_point is not None:
            zero_point.data = zero.reshape(zero_point.shape).to(zero_point.dtype)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    compressor.decompress_model(model)
    finish(folder, with_weights(torch.bfloat16, {name: model.get_submodule(name).weight.data for name in quantized}))


def fp8(folder):
    """The form of Qwen and DeepSeek, whose writer needs a GPU: made of `float_block`, and read by transformers."""
    from transformers import FineGrainedFP8Config

    source = tempfile.mkdtemp()
    compressed_tensors(source, "float-quantized", **EIGHT_BITS_FLOAT, strategy="block", block_structure=[BLOCK, BLOCK])
    tensors = {}
    for name, tensor in load_file(os.path.join(source, "model.safetensors")).items():
        is_scale = name.endswith("weight_scale")
        tensors[name + "_inv" * is_scale] = tensor.float() if is_scale else tensor
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    left_alone = ["lm_head"]
    config["quantization_config"] = {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": left_alone}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    read = AutoModelForCausalLM.from_pretrained(
        folder, device_map="cpu", dtype=torch.float32,
        quantization_config=FineGrainedFP8Config(dequantize=True, modules_to_not_convert=left_alone))
    finish(folder, read)


def bitsandbytes(folder, **options):
    import bitsandbytes as bnb
    from transformers import BitsAndBytesConfig

    model = AutoModelForCausalLM.from_pretrained(
        saved_plain(torch.float16), device_map="cpu", dtype=torch.float16,
        quantization_config=BitsAndBytesConfig(**options))
    model.save_pretrained(folder)
    read = {}
    for name, module in model.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            read[name] = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
        elif isinstance(module, bnb.nn.Linear8bitLt):
            codes = module.weight.CB if module.weight.CB is not None else module.weight.data
            read[name] = bnb.functional.int8_vectorwise_dequant(codes, module.weight.SCB)
    finish(folder, with_weights(torch.float16, read))


def auto_round(folder, format, **options):
    from auto_round import AutoRound
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoRoundConfig, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB_SIZE)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0")
    base = saved_plain(torch.float16)
    tokenizer.save_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float16)
    out = tempfile.mkdtemp()
    rounding = AutoRound(model, tokenizer, iters=0, disable_opt_rtn=True, device_map="cpu", **options)
    rounding.quantize_and_save(out, format=format)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(out, os.listdir(out)[0]), folder)
    if format == "auto_awq":
        sys.path.insert(0, os.environ["AUTOAWQ_UTILS"])
        from packing_utils import dequantize_gemm

        tensors = load_file(os.path.join(folder, "model.safetensors"))
        read = {}
        for name in [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]:
            parts = [tensors[f"{name}.{part}"] for part in ("qweight", "qzeros", "scales")]
            read[name] = dequantize_gemm(*parts, options["bits"], options["group_size"]).t().contiguous()
        finish(folder, with_weights(torch.float16, read))
        return
    again = tempfile.mkdtemp()
    shutil.copytree(folder, again, dirs_exist_ok=True)
    os.remove(os.path.join(again, "quantization_config.json"))
    with open(os.path.join(again, "config.json")) as file:
        config = json.load(file)
    config["quantization_config"] |= {"packing_format": f"auto_round:{format}", "quant_method": "auto-round"}
    with open(os.path.join(again, "config.json"), "w") as file:
        json.dump(config, file)
    read = AutoModelForCausalLM.from_pretrained(
        again, device_map="cpu", dtype=torch.float16, quantization_config=AutoRoundConfig(backend="torch"))
    # Without its kernels the package leaves layers random.
    assert any("qlinear_torch" in type(module).__module__ for module in read.modules())
    finish(folder, read)


FOUR_BITS = {"num_bits": 4, "type": "int"}
EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
EIGHT_BITS_FLOAT = {"num_bits": 8, "type": "float", "symmetric": True}
BLOCKS = {"strategy": "block", "block_structure": [BLOCK, BLOCK]}
FORMS = {
    "auto_awq_4": lambda folder: auto_round(folder, "auto_awq", bits=4, group_size=32, sym=False),
    "auto_gptq_4": lambda folder: auto_round(folder, "auto_gptq", bits=4, group_size=32, sym=True),
    "auto_gptq_8": lambda folder: auto_round(folder, "auto_gptq", bits=8, group_size=64, sym=True),
    "bitsandbytes_8": lambda folder: bitsandbytes(folder, load_in_8bit=True),
    "bitsandbytes_nf4": lambda folder: bitsandbytes(folder, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "bitsandbytes_nf4_nested": lambda folder: bitsandbytes(
        folder, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "float_block": lambda folder: compressed_tensors(folder, "float-quantized", **EIGHT_BITS_FLOAT, **BLOCKS),
    "float_channel": lambda folder: compressed_tensors(
        folder, "float-quantized", **EIGHT_BITS_FLOAT, strategy="channel"),
    "float_tensor": lambda folder: compressed_tensors(folder, "float-quantized", **EIGHT_BITS_FLOAT, strategy="tensor"),
    "fp8_block": fp8,
    "int_channel": lambda folder: compressed_tensors(folder, "int-quantized", **EIGHT_BITS, strategy="channel"),
    "packed_4": lambda folder: compressed_tensors(
        folder, "pack-quantized", **FOUR_BITS, symmetric=True, strategy="group", group_size=32),
    "packed_4_zeros": lambda folder: compressed_tensors(
        folder, "pack-quantized", **FOUR_BITS, symmetric=False, strategy="group", group_size=64),
    "packed_8_channel": lambda folder: compressed_tensors(folder, "pack-quantized", **EIGHT_BITS, strategy="channel"),
}

if __name__ == "__main__":
    for form in sys.argv[2:] or FORMS:
        FORMS[form](os.path.join(sys.argv[1], form))
