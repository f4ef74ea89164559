"""Requests that are dear in one way each: what it is, the route, the body or a function that makes it."""

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MIB = 1 << 20


def completion(**fields):
    return {"prompt": "Hi", "max_tokens": 2, **fields}


def chat(**fields):
    return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, **fields}


def tools(count, properties):
    schema = {"type": "object",
              "properties": {f"p{i}": {"type": "string"} for i in range(properties)}}
    return [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}}
            for i in range(count)]


def nested_schema(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": {"type": "string"}}}
    return schema


def wide_schema(count):
    properties = {f"p{i}": {"type": "string", "pattern": "^[a-z]{1,20}$"} for i in range(count)}
    return {"type": "object", "properties": properties}


def messages(count, content):
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i in range(count)]


HOSTILE = [
    ("an ordinary completion", COMPLETIONS, completion()),
    ("an ordinary prompt of 2,000 tokens", COMPLETIONS, completion(prompt=list(range(2000)))),
    ("a prompt of 4 MiB of ones", COMPLETIONS, lambda: completion(prompt="1" * 4 * MIB)),
    ("a prompt of 4 MiB of spaces", COMPLETIONS, lambda: completion(prompt=" " * 4 * MIB)),
    ("a prompt of 4 MiB of letters", "/tokenize", lambda: {"prompt": "a" * 4 * MIB}),
    ("a prompt of 4 MiB of emoji", "/tokenize", lambda: {"prompt": "\U0001f1e6" * MIB}),
    ("a prompt of 100 KiB of one letter", COMPLETIONS, lambda: completion(prompt="a" * 102_400)),
    ("a prompt of 240 KiB of words", COMPLETIONS, lambda: completion(prompt="word " * 49_000)),
    ("1,024 prompts of 1 KiB", COMPLETIONS, lambda: completion(prompt=["word " * 200] * 1024)),
    ("1,024 prompts of token lists", COMPLETIONS,
     lambda: completion(prompt=[list(range(300))] * 1024)),
    ("a million token ids", COMPLETIONS, lambda: completion(prompt=[1] * 999_000)),
    ("prompt_logprobs 20 on 2,000 tokens", COMPLETIONS,
     completion(prompt=list(range(2000)), prompt_logprobs=20)),
    ("echo with logprobs 20", COMPLETIONS,
     completion(prompt=list(range(2000)), echo=True, logprobs=20)),
    ("n 256 with logprobs 20", COMPLETIONS, completion(n=256, logprobs=20, max_tokens=16)),
    ("n 256", COMPLETIONS, completion(n=256, max_tokens=64, ignore_eos=True)),
    ("400 predicates", "/v1/decisions", {"input": "word " * 100, "questions": [
        {"type": "predicate", "name": f"q{i}", "instructions": f"Is it the number {i}?"} for i in range(400)]}),
    ("n 16,384", COMPLETIONS, completion(n=16_384)),
    ("n 4,000 with penalties", COMPLETIONS, completion(n=4000, frequency_penalty=1.0)),
    ("128 stop strings", COMPLETIONS, completion(stop=["x" * 120 + str(i) for i in range(128)])),
    ("10,000 bad words", COMPLETIONS, completion(bad_words=[f"word{i}" for i in range(10_000)])),
    ("bad words of 1 MiB", COMPLETIONS, lambda: completion(bad_words=["ab " * (MIB // 3)])),
    ("logit_bias for all tokens, n 64", COMPLETIONS,
     completion(logit_bias={str(i): 1 for i in range(4096)}, n=64, max_tokens=32)),
    ("logit_bias with 200,000 keys", COMPLETIONS,
     lambda: completion(logit_bias={str(i): 1 for i in range(200_000)})),
    ("allowed_token_ids, n 64", COMPLETIONS,
     completion(allowed_token_ids=list(range(4000)) * 50, n=64, max_tokens=16)),
    ("stop_token_ids, n 64", COMPLETIONS,
     completion(stop_token_ids=list(range(3000)) * 50, n=64, max_tokens=16)),
    ("logprob_token_ids", COMPLETIONS,
     completion(logprob_token_ids=list(range(4000)) * 20, logprobs=1, n=16)),
    ("repetition_detection on 1,000 tokens", COMPLETIONS,
     completion(max_tokens=1000, ignore_eos=True, repetition_detection={
         "max_pattern_size": 1000, "min_pattern_size": 1, "min_count": 2})),
    ("a schema of 20,000 properties", COMPLETIONS,
     lambda: completion(guided_json=wide_schema(20_000))),
    ("a schema 100 deep", COMPLETIONS, completion(guided_json=nested_schema(100))),
    ("an enum of 100,000", COMPLETIONS,
     lambda: completion(guided_json={"enum": [f"value{i}" for i in range(100_000)]})),
    ("a regex that counts", COMPLETIONS, completion(guided_regex="(.{0,5000}x){200}")),
    ("a regex of 1 MiB", COMPLETIONS, lambda: completion(guided_regex="(a|b)*c" * 150_000)),
    ("choices of 1 MiB", COMPLETIONS,
     lambda: completion(guided_choice=[f"choice {i}" for i in range(60_000)])),
    ("a grammar of 20,000 rules", COMPLETIONS, lambda: completion(
        guided_grammar="root ::= r0\n" + "".join(
            f'r{i} ::= "w{i}" r{(i + 1) % 20_000}?\n' for i in range(20_000)))),
    ("a schema with n 256", COMPLETIONS, completion(guided_json=wide_schema(300), n=256)),
    ("10,000 messages", CHAT, lambda: chat(messages=messages(10_000, "Hi"))),
    ("100,000 messages", CHAT, lambda: chat(messages=messages(100_000, "Hi"))),
    ("a message of 4 MiB", CHAT, lambda: chat(messages=messages(1, "a" * 4 * MIB))),
    ("300 tools of 30 properties", CHAT, lambda: chat(tools=tools(300, 30), tool_choice="auto")),
    ("10,000 tools", CHAT, lambda: chat(tools=tools(10_000, 0), tool_choice="auto")),
    ("300 tools, n 256", CHAT, lambda: chat(tools=tools(300, 5), tool_choice="auto", n=256)),
    ("documents of a million values", CHAT, lambda: chat(documents=[{"a": [0] * 990_000}])),
    ("chat_template_kwargs of 200,000 keys", CHAT,
     lambda: chat(chat_template_kwargs={f"k{i}": i for i in range(200_000)})),
    ("a template that loops", CHAT, chat(
        chat_template="{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}")),
    ("a template of 256 KiB", CHAT, chat(chat_template="{{ 1 }}" * 37_000)),
    ("1,000 conversations with documents", CHAT + "/batch",
     {"messages": [messages(1, "Hi")] * 1000, "max_tokens": 1,
      "documents": [{"title": "a", "text": "word " * 800}]}),
    ("1,500 tokens with logprobs 20", RESPONSES,
     {"input": "Hi", "max_output_tokens": 1500, "ignore_eos": True, "top_logprobs": 20,
      "include": ["message.output_text.logprobs"]}),
    ("10,000 input items", RESPONSES,
     lambda: {"input": messages(10_000, "Hi"), "max_output_tokens": 2}),
    ("instructions of 4 MiB", RESPONSES,
     lambda: {"input": "Hi", "instructions": "a " * 2 * MIB, "max_output_tokens": 2}),
    ("a million tokens to text", "/detokenize", lambda: {"tokens": [300] * 999_000}),
    ("4 MiB of brackets", COMPLETIONS, lambda: b"[" * 4 * MIB),
    ("a million empty lists", COMPLETIONS, lambda: b"[" + b"[]," * 999_000 + b"[]]"),
    ("250,000 keys", COMPLETIONS,
     lambda: b"{" + b",".join(b'"k%d":0' % i for i in range(250_000)) + b"}"),
    ("a number of 4 MiB", COMPLETIONS, lambda: b'{"prompt": ' + b"7" * 4 * MIB + b"}"),
    ("an unknown field of 4 MiB", COMPLETIONS, lambda: completion(**{"k" * 4 * MIB: 1})),
    ("a model's name of 4 MiB", COMPLETIONS, lambda: completion(model="m" * 4 * MIB)),
]
