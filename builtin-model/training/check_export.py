"""Compares the exported folder, as `transformers` loads it, with the training's own code.

usage: python check_export.py [MODEL_FOLDER]

Checks the rendered chat template (with jinja2 in `transformers` and with minijinja, which Formwork uses), the token ids,
the logits in float32, and which tokens are special.
"""
import json
import pathlib
import sys

import minijinja
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import mixture
from encode import Encoder, prompt_text
from evaluate import load
from source import Source
from tasks import tool_call


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "model"
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    their_tokenizer = AutoTokenizer.from_pretrained(folder)
    ours, encoder = load(folder), Encoder(Tokenizer.from_file(str(folder / "tokenizer.json")))
    jinja = minijinja.Environment()
    jinja.add_filter("tojson", lambda value: json.dumps(value, ensure_ascii=False))
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    source, furthest = Source("check"), 0.0
    samples = [mixture.draw(source) for _ in range(60)]
    samples += [tool_call.after_result(source, []) for _ in range(4)]
    samples[-1].messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Ålesund"}'  # as the OpenAI API has it
    for sample in samples:
        text, thinking = prompt_text(sample), sample.thought is not None
        rendered = their_tokenizer.apply_chat_template(
            sample.messages, tools=sample.tools, add_generation_prompt=True, enable_thinking=thinking, tokenize=False)
        assert rendered == text, f"transformers renders\n{rendered}\nnot\n{text}"
        rendered = jinja.render_str(template, messages=sample.messages, tools=sample.tools, add_generation_prompt=True,
                                    enable_thinking=thinking)
        assert rendered == text, f"minijinja renders\n{rendered}\nnot\n{text}"
        ids = encoder.prompt(sample)
        assert their_tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        with torch.inference_mode():
            row = torch.tensor([ids])
            furthest = max(furthest, float((theirs(row).logits - ours.logits(ours(row))).abs().max()))
    assert furthest < 1e-3, f"logits differ by {furthest}"
    assert their_tokenizer.eos_token == "<|im_end|>" and their_tokenizer.pad_token == "<|endoftext|>"
    spoken = their_tokenizer.decode(their_tokenizer.encode("<think><tool_call><|im_end|>"), skip_special_tokens=True)
    assert spoken == "<think><tool_call>", spoken
    print(f"ok: templates and ids are the same, logits differ by at most {furthest:.1e}")


if __name__ == "__main__":
    main()
