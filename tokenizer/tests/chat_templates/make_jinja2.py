#!/usr/bin/env python3
"""Writes jinja2.json: small templates, and what Jinja2 makes of them in the environment that transformers uses.

needs: jinja2 3.1
"""
import json
import os

from jinja2.sandbox import ImmutableSandboxedEnvironment

VALUES = [
    "undefined_name", "none", "true", "3", "(-7)", "2.5", "'aBc d'", "'<i>\"/'",
    "''", "[3, 1, 2]", "[]", "{'b': 1, 'a': 2}", "{}", "(1, 2)", "messages",
    "messages[0]", "messages[0].name", "[{'k': 1}, {'k': 2}]", "['b', 'A']",
]
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "number", "integer", "float", "string", "sequence",
    "iterable", "mapping", "eq(3)", "ne(3)", "in([3, 'aBc d'])", "sameas(none)",
]
FILTERS = [
    "length", "first", "last", "list", "string", "trim", "upper", "title", "join(', ')", "int", "int(5)", "float", "abs",
    "round", "items|list", "reverse|list", "sort", "unique|list", "default('d')", "default('d', true)", "safe", "e",
    "replace('a', 'X')", "indent(2)", "map(attribute='k')|map('string')|list", "selectattr('k', 'equalto', 1)|list",
    "select|list", "sum", "min", "max",
]
SLICES = ["[0]", "[-1]", "['a']", "[1:]", "[:1]", "[::-1]", ".a"]
SLICED = ("undefined_name", "'", "[", "(1", "messages")
# What differs, and is left so: mappings from their end, and `true` as a number.
LEFT_OUT = {f"{{{{ {value}|{filter} }}}}" for filter in ("last", "reverse|list")
            for value in ("{'b': 1, 'a': 2}", "{}", "messages[0]")} | {"{{ true|abs }}", "{{ true|round }}"}


TEXTS = ["'a'", "'a\\n'", "'a\\nb'", "'a\\n\\nb\\n'", "'\\n'", "''"]
INDENTS = ["indent", "indent(2)", "indent(2, true)", "indent(2, first=true)", "indent(2, blank=true)", "indent(2, true, true)"]


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def main():
    templates = []
    for value in VALUES:
        templates += [f"{{{{ {value} is {test} }}}}" for test in TESTS]
        templates += [f"{{{{ {value}|{filter} }}}}" for filter in FILTERS]
        if value.startswith(SLICED):
            templates += [f"{{{{ {value}{part} }}}}" for part in SLICES]
        templates += [f"{{% if {value} %}}yes{{% else %}}no{{% endif %}}", f"{{{{ {value} }}}}"]
    templates += [f"{{{{ {text}|{indent} }}}}|" for text in TEXTS for indent in INDENTS]
    cases = {}
    for source in templates:
        if source in LEFT_OUT:
            continue
        try:
            # Made anew: `indent` changes a list.
            messages = [{"role": "user", "content": "Hi"}]
            rendered = environment().from_string(source).render(messages=messages, tools=None)
        except Exception:
            # What Jinja2 refuses, minijinja may render: no template of a model has it.
            continue
        if " object at 0x" not in rendered:
            cases[source] = rendered
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja2.json")
    with open(path, "w") as file:
        json.dump(cases, file, ensure_ascii=False, indent=0)
        file.write("\n")


main()
