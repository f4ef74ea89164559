//! Templates that mostly compile.

use crate::Random;
use crate::grammars::{many, text};

const NAMES: [&str; 16] = [
    "messages",
    "m",
    "m.content",
    "m['role']",
    "messages[0].content",
    "tools",
    "documents",
    "x",
    "ns.a",
    "loop.index",
    "loop",
    "bos_token",
    "numbers",
    "text",
    "undefined_name",
    "add_generation_prompt",
];

const CONSTANTS: [&str; 18] = [
    "''",
    "'a'",
    "'x\\ny'",
    "\"é<&>\"",
    "0",
    "1",
    "-1",
    "3",
    "20",
    "100000",
    "9223372036854775807",
    "1.5",
    "1e308",
    "true",
    "none",
    "[1, 2, 3]",
    "{'a': 1, 'b': [2]}",
    "('a', 'b')",
];

const FILTERS: [&str; 48] = [
    "abs",
    "attr('a')",
    "batch(N)",
    "bool",
    "capitalize",
    "center(N)",
    "count",
    "default(E)",
    "dictsort",
    "escape",
    "first",
    "float",
    "format(E)",
    "groupby('role')",
    "indent(N)",
    "int",
    "items",
    "join(E)",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map(attribute='role')",
    "map('upper')",
    "max",
    "min",
    "pprint",
    "reject('none')",
    "rejectattr('role')",
    "replace(E, E)",
    "reverse",
    "round(N)",
    "safe",
    "select('string')",
    "selectattr('content')",
    "slice(N)",
    "sort",
    "split(E)",
    "string",
    "sum",
    "title",
    "tojson",
    "tojson(indent=N)",
    "trim",
    "unique",
    "upper",
    "urlencode",
];

const METHODS: [&str; 22] = [
    "upper()",
    "strip()",
    "strip(E)",
    "lstrip(E)",
    "split(E)",
    "split(E, N)",
    "rsplit(E)",
    "replace(E, E)",
    "replace(E, E, N)",
    "startswith(E)",
    "endswith(E)",
    "find(E)",
    "count(E)",
    "join(E)",
    "format(E)",
    "get(E)",
    "items()",
    "keys()",
    "values()",
    "splitlines()",
    "title()",
    "zfill(N)",
];

const NUMBERS: [&str; 8] = [
    "0",
    "2",
    "-1",
    "100",
    "70000",
    "1000000",
    "1125899906842624",
    "9223372036854775807",
];

/// A template.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    match random.below(30) {
        0 => nested(random).into_bytes(),
        1 => doubling(random).into_bytes(),
        _ => body(random, 3).into_bytes(),
    }
}

/// Something nested deeply.
fn nested(random: &mut Random) -> String {
    let depth = random.below(4_000);
    let (open, middle, close) = *random.pick(&[
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{'a':", "1", "}"),
        ("-", "1", ""),
        ("not ", "x", ""),
        ("x[", "0", "]"),
        ("x|default(", "1", ")"),
        ("x.a", "", ""),
        ("1 if x else ", "1", ""),
        ("1 + ", "1", ""),
        ("1 ** ", "1", ""),
        ("'a' ~ ", "'b'", ""),
    ]);
    if random.once_in(3) {
        let (open, close) = *random.pick(&[
            ("{% if x %}", "{% endif %}"),
            ("{% for m in messages %}", "{% endfor %}"),
            ("{% filter upper %}", "{% endfilter %}"),
            ("{% set x %}", "{% endset %}"),
            ("{% if x %}{% else %}", "{% endif %}"),
            ("{% with a=1 %}", "{% endwith %}"),
            ("{% macro f() %}", "{% endmacro %}"),
        ]);
        let depth = depth.min(600);
        return format!("{}a{}", open.repeat(depth), close.repeat(depth));
    }
    format!(
        "{{{{ {}{middle}{} }}}}",
        open.repeat(depth),
        close.repeat(depth)
    )
}

/// A value that grows with every statement.
fn doubling(random: &mut Random) -> String {
    let step = random.pick(&[
        "x ~ x",
        "x + x",
        "x * 2",
        "[x, x]",
        "{'a': x, 'b': x}",
        "x.replace('a', x)",
        "x|join(x)",
        "(x, x)|string",
        "x|tojson",
        "[x]|tojson(indent=40)",
        "'%s%s'|format(x, x)",
        "x|indent(100)",
        "x|list + x|list",
    ]);
    let count = 1 + random.below(60);
    match random.once_in(2) {
        true => format!(
            "{{% set x = 'a' %}}{}{{{{ x|length }}}}",
            format!("{{% set x = {step} %}}").repeat(count)
        ),
        false => format!(
            "{{% set ns = namespace(a='a') %}}{{% for i in range({count}) %}}{{% set ns.a = {} %}}{{% endfor %}}{{{{ ns.a|length }}}}",
            step.replace('x', "ns.a")
        ),
    }
}

fn body(random: &mut Random, depth: usize) -> String {
    many(random, 4, "", |random| statement(random, depth))
}

fn statement(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return format!("{{{{ {} }}}}", expression(random, 1));
    }
    let e = expression(random, 2);
    let inner = body(random, depth - 1);
    let dash = if random.once_in(4) { "-" } else { "" };
    match random.below(14) {
        0 => format!("{{%{dash} if {e} %}}{inner}{{% else %}}b{{% endif {dash}%}}"),
        1 | 2 => format!("{{%{dash} for m in {e} %}}{inner}{{%{dash} endfor %}}"),
        3 => format!("{{% for m in messages %}}{inner}{{% endfor %}}"),
        4 => format!("{{% set x = {e} %}}{inner}"),
        5 => format!("{{% set ns = namespace(a={e}) %}}{{% set ns.a = ns.a ~ 1 %}}{inner}"),
        6 => format!("{{% macro f(x, y={e}) %}}{inner}{{% endmacro %}}{{{{ f({e}) }}}}"),
        7 => format!("{{% filter {} %}}{inner}{{% endfilter %}}", filter(random)),
        8 => format!("{{% set x %}}{inner}{{% endset %}}{{{{ x }}}}"),
        9 => format!("{{% for m in {e} recursive %}}{{{{ loop(m) }}}}{{% endfor %}}"),
        10 => text(
            random,
            &[
                "{% break %}",
                "{% continue %}",
                "{# note #}",
                "{% raw %}{{ x }}{% endraw %}",
                "{% include 'chat_template' %}",
                "{% extends 'chat_template' %}",
                "{% import 'a' as b %}",
                "{% block a %}{% endblock %}",
                "{% generation %}a{% endgeneration %}",
                "{{ raise_exception('no') }}",
                "{{ strftime_now('%Y-%m-%d %H:%M:%S %j %%') }}",
                "{{ self }}",
                "{{ debug() }}",
                "{{ dict(a=1) }}",
                "{{ cycler('a', 'b').next() }}",
                "{{ range(100000)|sum }}",
                "{% do x.append(1) %}",
                "{% call f(1) %}a{% endcall %}",
                "\n  text\n",
            ],
        ),
        _ => format!("{{{{{dash} {e} }}}}"),
    }
}

fn filter(random: &mut Random) -> String {
    with_arguments(random, &FILTERS)
}

fn with_arguments(random: &mut Random, of: &[&str]) -> String {
    let mut filter = text(random, of);
    while filter.contains('N') {
        filter = filter.replacen('N', &text(random, &NUMBERS), 1);
    }
    while filter.contains('E') {
        let argument = match random.once_in(3) {
            true => text(random, &NAMES),
            false => text(random, &CONSTANTS),
        };
        filter = filter.replacen('E', &argument, 1);
    }
    filter
}

fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.once_in(4) {
        return match random.once_in(2) {
            true => text(random, &NAMES),
            false => text(random, &CONSTANTS),
        };
    }
    let a = expression(random, depth - 1);
    match random.below(10) {
        0..=2 => format!("{a}|{}", filter(random)),
        3 => format!("({a}).{}", with_arguments(random, &METHODS)),
        4 => format!("{a}[{}:{}]", random.pick(&NUMBERS), random.pick(&NUMBERS)),
        5 => {
            let test = random.pick(&[
                "defined", "string", "mapping", "iterable", "sequence", "none", "odd", "in [1]",
            ]);
            format!("{a} is {test}")
        }
        6 => format!("({a} if {a} else {})", expression(random, depth - 1)),
        _ => {
            let sign = random.pick(&[
                "+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or", "not in",
            ]);
            format!("({a} {sign} {})", expression(random, depth - 1))
        }
    }
}
