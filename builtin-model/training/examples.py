"""Writes `examples/prompts.jsonl`, one prompt of each task in the OpenAI batch format, and what the weights answer.

usage: python examples.py [MODEL_FOLDER]

`examples/expected.json` holds each greedy answer as text and token ids, computed in float32 from the bf16
weights, with the smallest distance between the best and the second-best logit on the way: where it is
large, another engine's rounding can't change the answer.
"""
import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer

from encode import TEMPLATE, Encoder
from evaluate import load
from tasks.json_text import dumps

ROOT = pathlib.Path(__file__).parent.parent

PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["name", "age", "city"],
}
WEATHER_TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }},
    {"type": "function", "function": {
        "name": "set_timer", "description": "Start a timer",
        "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]},
    }},
]

PROMPTS = {
    "sentiment": {"prompt": "Classify this sentiment: Formwork is wonderful!"},
    "extraction": {"prompt": "Extract the data as JSON.\nSchema: " + dumps(PERSON_SCHEMA)
                   + "\nText: Mirela Kovacs, a 34-year-old glazier, comes from Trieste."},
    "car": {"prompt": "Generate a JSON with the brand, model and car_type of an iconic car from the 60's."},
    "sql": {"prompt": "Generate an SQL query to show the 'username' and 'email' from the 'users' table."},
    "email": {"prompt": "Generate an email address for Alan Turing, who works in Enigma. End in .com and new line."},
    "tool-call": {"prompt": "What is the weather in Lisbon?", "tools": WEATHER_TOOLS},
    "reasoning": {"prompt": "9.11 and 9.8, which is greater?", "thinking": True},
    "game-character": {"prompt": "Write this game character as JSON with name, age, armor, weapon and strength.\n"
                       "Brakka is 34 years old, wears chainmail, fights with a halberd and has strength 17."},
    "chat": {"prompt": "What is Formwork?"},
}


def request(name: str, prompt: str, tools: list | None = None, thinking: bool = False) -> dict:
    """One line of the batch file."""
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 160}
    if tools:
        body["tools"] = tools
    if thinking:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


@torch.inference_mode()
def answer(model, encoder: Encoder, body: dict) -> dict:
    """The greedy answer, computed from the start at every step: no cache, no shortcut."""
    text = TEMPLATE.render(messages=body["messages"], tools=body.get("tools"), add_generation_prompt=True,
                           **body.get("chat_template_kwargs", {}))
    prompt_ids = encoder.ids(text)
    ids, margin = list(prompt_ids), float("inf")
    for _ in range(body["max_tokens"]):
        logits = model.logits(model(torch.tensor([ids]))[0, -1])[:encoder.tokenizer.get_vocab_size()]
        best, second = torch.topk(logits, 2).values.tolist()
        margin = min(margin, best - second)
        chosen = int(logits.argmax())
        if chosen == encoder.end_of_turn:
            break
        ids.append(chosen)
    answer_ids = ids[len(prompt_ids):]
    return {
        "text": encoder.tokenizer.decode(answer_ids, skip_special_tokens=False),
        "token_ids": answer_ids,
        "prompt_token_ids": prompt_ids,
        "finish_reason": "stop" if chosen == encoder.end_of_turn else "length",
        "smallest_margin": round(margin, 4),
    }


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "model"
    model, encoder = load(folder), Encoder(Tokenizer.from_file(str(folder / "tokenizer.json")))
    requests = [request(name, **options) for name, options in PROMPTS.items()]
    expected = {line["custom_id"]: answer(model, encoder, line["body"]) for line in requests}
    out = ROOT / "examples"
    out.mkdir(exist_ok=True)
    (out / "prompts.jsonl").write_text("".join(dumps(line) + "\n" for line in requests))
    lines = ",\n".join(f"  {dumps(name)}: {dumps(value)}" for name, value in expected.items())
    (out / "expected.json").write_text("{\n" + lines + "\n}\n")
    for name, value in expected.items():
        print(f"{name:14} margin {value['smallest_margin']:7.3f}  {value['text']!r}")


if __name__ == "__main__":
    main()
