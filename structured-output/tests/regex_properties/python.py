"""Writes python.json beside this file: patterns, texts, and which of the texts Python's `re` matches as a whole.

Run it with Python 3.11 or later, which has atomic groups and possessive quantifiers.
"""

import itertools
import json
import pathlib
import random
import re
import warnings

warnings.simplefilter("ignore")
rng = random.Random(27)

SHORT = ["".join(t) for n in range(5) for t in itertools.product("ab\n", repeat=n)]
SIGNS = [chr(c) for c in [*range(9, 14), *range(28, 127), 0x85, 0xA0, 0xAA, 0xB2, 0xBD, 0xE9, 0x300, 0x660, 0x966]]
SIGNS += [chr(c) for c in [0x2003, 0x200D, 0x203F, 0x2160, 0x2460, 0x3007, 0x4E00, 0x1F600]]

CLASSES = r"""[\w.[\]-]+
[[a]
[[]
[^[]
[a-z&&b]
[&&]
[--a]
[+--]
[!--x]
[~~]
[||]
[A-[]
[]-a]
[^]-a]
[[=a=]b]
[\w-]
[\s]
[^\s]
\s
\S
\d
\D
\w
\W
(?a)\w
(?a)\s
(?i)[k-m]
[\d\s]
[^\W_]
[a\-z]
[\[\]]
.
(?s).""".split("\n")

TEXTS = r"""a$
a$\n
a$\n?
(a$|b)\n*
(?:a$\n?)*
(a|\n)*$
(?m)a$\n^b
(?m:^a$\n)*b?
a\Z
a\Z\n
(a\Z|b)\n?
^(?=.*b$)[ab\n]*
^(?=[ab]{1,3}$)[^x]*
^(?!b$)[ab\n]+
$
$\n
^$\n?
a{,2}
a{,}
a{2,}b{0}
a*+
a*+b
a*+a
a?+a
a++b++
a{1,2}+b
a{1,2}+a
[ab]*+b
[^b]*+b
(?>a|b)+
(?>ab|a)b
(?>a|ab)b
(?>a|b|)a
(?>a|)b
(?>|a)b
(?>a*)b
(?>a*?)b
(?>(?:a|b)*)
(?>(?:ab)*)a
(?>(?:ab)*)b
(?:a*+b)*+
(?:a*+b?)*+
(?:a++|b)*
(?>a+b*)\n
(?>a+b*)b
(?>a{2})a
(?>a{2}?)a
(?:(?>a+)b)+
(?=a*+b)[ab]*
(?!a*+b)[ab]*
(?=(?>a|ab)b)[ab]*
a*+(?!b)\n
a*+(?=b)[ab]*
(?>a(?=b)|b)*
(?>a*(?!b))\n?
(?>$|a)\n
(?>a|$)\n
(?>a|\b)b""".split("\n")


def part(depth):
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(["a", "b", r"\n", "[ab]", "[^a]", ".", "$", "^", r"\Z", r"\b", "ab", "(?=b)", "(?!a)"])
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(part(depth - 1) for _ in range(rng.randrange(1, 4)))
    if kind == 1:
        return "(?:" + "|".join(part(depth - 1) for _ in range(rng.randrange(1, 4))) + ")"
    if kind == 2:
        return "(?>" + "|".join(part(depth - 1) for _ in range(rng.randrange(1, 3))) + ")"
    inner = rng.choice(["a", "b", "[ab]", r"\n", "(?:" + part(depth - 1) + ")"])
    return inner + rng.choice(["*", "+", "?", "{2}", "{1,2}", "*?", "??", "*+", "++", "?+", "{0,2}+"])


def case(pattern, texts):
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    return [pattern, [i for i, text in enumerate(texts) if compiled.fullmatch(text)]]


def randoms():
    seen = set()
    while len(seen) < 800:
        pattern = part(3)
        if len(pattern) < 40 and pattern not in seen and (found := case(pattern, SHORT)):
            seen.add(pattern)
            yield found


answer = {
    "short": SHORT,
    "signs": SIGNS,
    "of_signs": [found for pattern in CLASSES if (found := case(pattern, SIGNS))],
    "of_short": [found for pattern in TEXTS if (found := case(pattern, SHORT))],
    "random": list(randoms()),
}
path = pathlib.Path(__file__).with_suffix(".json")
lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in answer.items())
path.write_text("{\n" + lines + "\n}\n")
print({key: len(value) for key, value in answer.items()})
