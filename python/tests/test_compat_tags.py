"""Structural tags of `formwork.compat.xgrammar`: the models' own formats, and schemas in them. Without torch."""

import json

import pytest

pytest.importorskip("pydantic", reason="pydantic is not installed: formwork.compat.xgrammar is not tested")

import formwork.compat.xgrammar as xgr  # noqa: E402
from formwork.compat.xgrammar import structural_tag as st  # noqa: E402
from formwork.compat.xgrammar.testing import _is_grammar_accept_string as accepts  # noqa: E402

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
SEARCH = {"type": "web_search", "name": "browser.search", "parameters": {"type": "object"}}

JSON_CALL = '{"city": "Rome"}'
# The one call that each model writes where it has to, and where it has done with its reasoning.
CALLS = {
    "llama": '{"name": "weather", "parameters": ' + JSON_CALL + "}",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    + JSON_CALL
    + "<|tool_call_end|><|tool_calls_section_end|>",
    "kimi_k3": "Let me see.<|close|>response<|sep|><|open|>tools<|sep|>"
    '<|open|>call tool="weather" index="0"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Rome<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
    "deepseek_r1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
    + JSON_CALL
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v3_1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
    + JSON_CALL
    + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v3_2": '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
    '<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "deepseek_v4": '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n'
    '<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "qwen_3": '<tool_call>\n{"name": "weather", "arguments": ' + JSON_CALL + "}\n</tool_call>",
    "qwen_3_5": "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "qwen_3_coder": "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "mimo": "<tool_call><function=weather><parameter=city>Rome</parameter></function></tool_call>",
    "minimax": '\n</think>\n\n\n\n\n<minimax:tool_call>\n<invoke name="weather">\n'
    '<parameter name="city">Rome</parameter>\n</invoke>\n</minimax:tool_call>',
    "glm_4_7": "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
    "cohere": '<cofl:tool_calls><cofl:tool_call id="0" name="weather">'
    '<cofl:value name="city" type="raw">Rome</cofl:value></cofl:tool_call></cofl:tool_calls>',
    "exaone": '<tool_call>{"name": "weather", "arguments": ' + JSON_CALL + "}</tool_call>",
    "harmony": "<|channel|>commentary to=functions.weather<|constrain|>json<|message|>"
    + JSON_CALL
    + "<|call|>",
}


@pytest.mark.parametrize("model", CALLS)
def test_a_model_calls_a_function_as_it_writes(model):
    tag = xgr.get_model_structural_tag(model, [WEATHER], "required", reasoning="disabled")
    grammar = xgr.Grammar.from_structural_tag(tag)
    call = CALLS[model]
    assert accepts(grammar, call)
    assert not accepts(grammar, call.replace("weather", "whether"))
    assert not accepts(grammar, call.replace("city", "town"))
    assert not accepts(grammar, call[:-1])


@pytest.mark.parametrize("model", ["qwen_3", "deepseek_v3_1", "glm_4_7", "mimo"])
def test_reasoning_comes_first_where_it_is_asked_for(model):
    call = CALLS[model]
    texts = {
        mode: xgr.get_model_structural_tag(model, [WEATHER], "required", mode) for mode in ("enabled", "auto")
    }
    suffix = "\n\n" if model == "qwen_3" else ""
    begun = "<think>" if model == "mimo" else ""
    enabled = xgr.Grammar.from_structural_tag(texts["enabled"])
    assert accepts(enabled, f"{begun}Hm.</think>{suffix}{call}")
    assert not accepts(enabled, call)
    auto = xgr.Grammar.from_structural_tag(texts["auto"])
    assert accepts(auto, call)
    assert accepts(auto, f"<think>Hm.</think>{suffix}{call}")
    assert not accepts(auto, f"<think><think>Hm.</think>{suffix}{call}")


def test_text_and_calls_take_turns_but_after_the_only_one():
    call = CALLS["qwen_3"]
    many, one = (
        xgr.Grammar.from_structural_tag(
            xgr.get_model_structural_tag("qwen_3", [WEATHER], "auto", False, parallel_tool_calls=parallel)
        )
        for parallel in (True, False)
    )
    for grammar, text, expected in [
        (many, f"a{call}b{call}c", True),
        (many, "only text", True),
        (many, "a<think>b", False),
        (one, f"a{call}", True),
        (one, f"a{call}b", False),
        (one, call + call, False),
    ]:
        assert accepts(grammar, text) is expected, text


def test_marks_are_text_where_a_caller_says_so():
    tag = xgr.get_model_structural_tag("qwen_3", [], "auto", False, exclude_special_tokens=False)
    assert accepts(xgr.Grammar.from_structural_tag(tag), "a<think>b")


def test_a_models_own_tool_and_a_choice_among_tools():
    tag = xgr.get_model_structural_tag("harmony", [WEATHER, SEARCH], {"type": "web_search"}, "disabled")
    grammar = xgr.Grammar.from_structural_tag(tag)
    assert accepts(grammar, " to=browser.search<|channel|>commentary code<|message|>{}<|call|>")
    assert not accepts(grammar, CALLS["harmony"])
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
    functions, builtins, choice = xgr.normalize_tool_choice(
        [WEATHER, SEARCH], {"type": "allowed_tools", "allowed_tools": allowed}
    )
    assert ([f.function.name for f in functions], builtins, choice) == (["weather"], [], "required")
    assert xgr.normalize_tool_choice([WEATHER], None)[2] == "auto"
    assert xgr.normalize_tool_choice([WEATHER, SEARCH], "none") == ([], [], "auto")


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (("nobody", [WEATHER]), "Unknown format type: nobody"),
        (("llama", [], "required"), "list is empty"),
        (("llama", "tools"), "must be a list"),
        (("llama", [WEATHER], {"type": "function", "function": {"name": "f"}}), "'f' is not found"),
        (("llama", [WEATHER], {"type": "web_search"}), "exactly one builtin tool, got 0"),
        (("llama", [SEARCH], "required"), "at least one function"),
        (("mimo", [SEARCH]), "MiMo does not support builtin tools"),
        (("llama", [WEATHER], "auto", "much"), "not 'much'"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        xgr.get_model_structural_tag(*arguments)


def test_a_model_can_be_registered():
    @xgr.register_model_structural_tag("shouting")
    def _shouting(tools, builtin_tools, tool_choice, reasoning, **_):
        return st.StructuralTag(format=st.RegexFormat(pattern="[A-Z]+"))

    grammar = xgr.Grammar.from_structural_tag(xgr.get_model_structural_tag("shouting"))
    assert accepts(grammar, "HEY") and not accepts(grammar, "hey")


def test_schemas_in_tags_are_strict():
    tag = st.TagFormat(
        begin="<a>",
        content=st.JSONSchemaFormat(json_schema={"properties": {"x": {"type": "integer"}}}),
        end="</a>",
    )
    grammar = xgr.Grammar.from_structural_tag(st.StructuralTag(format=tag))
    assert accepts(grammar, '<a>{"x": 1}</a>')
    assert not accepts(grammar, '<a>{"y": 1}</a>')
    bare = xgr.Grammar.from_json_schema({"type": "object"})
    assert accepts(bare, '{"y": [1]}')
    pair = xgr.Grammar.from_json_schema({"prefixItems": [{"const": 1}, {"const": 2}]})
    assert accepts(pair, "[1, 2]") and not accepts(pair, "[1, 2, 3]")


A, B = {"properties": {"a": {}}}, {"properties": {"b": {}}}


@pytest.mark.parametrize(
    "schema, right, wrong",
    [
        ({**A, "allOf": [B]}, ['{"a": 1, "b": 1}', "{}"], ['{"a": 1, "c": 1}']),
        ({"allOf": [A, B]}, ['{"a": 1, "b": 1}'], ['{"c": 1}']),
        ({"anyOf": [A, B]}, ['{"a": 1}', '{"b": 1}'], ['{"a": 1, "b": 1}', '{"c": 1}']),
        ({**A, "anyOf": [B, {"required": ["a"]}]}, ['{"a": 1, "b": 1}'], ['{"c": 1}']),
        ({"allOf": [{"anyOf": [A, B]}]}, ['{"a": 1}'], ['{"c": 1}']),
        ({"$ref": "#/$defs/x", "$defs": {"x": A}}, ['{"a": 1}'], ['{"c": 1}']),
        ({"allOf": [{"properties": {"a": A}}]}, ['{"a": {"a": 1}}'], ['{"a": {"c": 1}}', '{"c": 1}']),
        ({**A, "additionalProperties": True}, ['{"c": 1}'], []),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "anyOf": [A]}, ['{"a": 1}'], ['{"c": 1}']),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]}, ["[1]"], ["[1, 2]"]),
    ],
)
def test_strict_schemas_with_branches(schema, right, wrong):
    grammar = xgr.Grammar.from_json_schema({**schema, "type": ["object", "array"]})
    for text, expected in [(t, True) for t in right] + [(t, False) for t in wrong]:
        assert accepts(grammar, text) is expected, text


# Strings, keys, nested ones, and free values, by a check of the decoded value that knows nothing of schemas.
VALUES = [
    {"a": "no", "o": {"k": ["no", {"x": None}]}},
    {"a": "a<|x|>", "o": {}},
    {"a": "", "o": {"<|x|>": 1}},
    {"a": "", "o": {"k": [[{"q": "<|x|>"}]]}},
    {"a": "<|x", "o": {"k": "|><|"}},
    {"a": "c.d", "o": {}},
]


@pytest.mark.parametrize("value", VALUES)
def test_excluded_marks_are_in_no_string_and_no_key(value):
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "o": {"type": "object"}}}
    tag = st.StructuralTag(format=st.JSONSchemaFormat(json_schema=schema, excludes=["<|x|>", "c.d"]))
    text = json.dumps(value)
    expected = "<|x|>" not in text and "c.d" not in text
    assert accepts(xgr.Grammar.from_structural_tag(tag), text) is expected


def test_excluded_marks_in_listed_values_and_own_patterns():
    schema = {"properties": {"a": {"enum": ["<x>", "y"]}, "b": {"type": "string", "pattern": "^<x>$"}}}
    tag = st.StructuralTag(format=st.JSONSchemaFormat(json_schema=schema, excludes=["<x>"]))
    grammar = xgr.Grammar.from_structural_tag(tag)
    assert accepts(grammar, '{"a": "y", "b": "<x>"}') and not accepts(grammar, '{"a": "<x>"}')


def test_older_tags_and_malformed_ones():
    item = xgr.StructuralTagItem(begin="<f>", schema={"type": "object"}, end="</f>")
    grammar = xgr.Grammar.from_structural_tag([item], ["<f>"])
    assert accepts(grammar, "a <f>{}</f> b") and not accepts(grammar, "<f>[]</f>")
    with pytest.raises(xgr.InvalidJSONError, match="no JSON"):
        xgr.Grammar.from_structural_tag("{")
    with pytest.raises(xgr.InvalidStructuralTagError, match="`elements` is missing") as caught:
        xgr.Grammar.from_structural_tag({"type": "structural_tag", "format": {"type": "or"}})
    assert isinstance(caught.value, RuntimeError) and caught.value.pointer == "/format"
    with pytest.raises(xgr.InvalidStructuralTagError, match="no token `<x>`"):
        xgr.Grammar.from_structural_tag(
            {"type": "structural_tag", "format": {"type": "token", "token": "<x>"}}
        )
    with pytest.raises(TypeError, match="not int"):
        xgr.Grammar.from_structural_tag(1)
