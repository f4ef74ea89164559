//! The gates around a template's instructions change nothing of what it writes: minijinja without them
//! is the reference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value};
use serde_json::json;
use tokenizer::{ChatTemplate, ChatTemplateRequest, TemplateMessage};

/// What minijinja itself makes of a template; `None` where it fails.
fn reference(source: &str, messages: &[serde_json::Value]) -> Option<String> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.build().unwrap());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    let messages: Vec<Value> = messages.iter().map(value).collect();
    let variables = Value::from_pairs([
        ("messages", Value::from(messages)),
        ("tools", Value::from(())),
        ("bos_token", Value::from("<s>")),
    ]);
    environment.render_str(source, variables).ok()
}

fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Object(members) => Value::from_pairs(
            members
                .iter()
                .map(|(name, member)| (name.as_str(), value(member))),
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn templates_write_what_minijinja_alone_writes() {
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "  Hi\nthere <b>&</b> é\u{1f600}  "}),
        json!({"role": "assistant", "content": "x".repeat(300)}),
    ];
    let mut differ = Vec::new();
    for source in [
        // Operators.
        "{{ 1 + 2 * 3 - 4 / 5 // 1 % 7 ** 2 }} {{ -3 + 4.5 }} {{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none }}",
        "{{ [1] + [2, 3] }} {{ (1, 2) + (3,) }} {{ [1, 2] * 3 }} {{ 3 * 'ab' }} {{ (1,) * 2 }}",
        "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 > 2 }} {{ 1 == 1.0 != 2 }} {{ 'a' in 'abc' in ['abc'] }}",
        "{{ 1 not in [2] }} {{ 'role' in messages[0] }} {{ not true or false and true }}",
        "{{ messages == messages }} {{ messages[0] == messages[1] }} {{ [1, 2] < [1, 3] }}",
        "{{ 1 + 'a' }}",
        "{{ none ~ undefined_name }} {{ [undefined_name] ~ {} }}",
        // Items and slices.
        "{{ messages[0]['role'] }} {{ messages[-1].role }} {{ 'abc'[1] }} {{ 'abc'[-1] }} {{ 'abc'[9] }}",
        "{{ messages[1:]|length }} {{ messages[::-1][0].role }} {{ 'abcdef'[1:5:2] }} {{ 'abc'[::-1] }}",
        "{% set rest = messages[1:] %}{{ rest[0].role }} {{ rest is sequence }} {{ rest is iterable }} {{ rest }}",
        "{{ (1, 2, 3)[1:] }} {{ [1, 2, 3][:2] }} {{ range(5)[1:3] }} {{ range(3) is sequence }}",
        "{{ {'a': 1, 2: 'b', none: [1]}[2] }} {{ {'a': 1}.a }} {{ {'a': {'b': [7]}}.a.b[0] }}",
        "{{ {'a': 1, 'b': 'x\n\"\\''} }} {{ [1, 'a', none, true, 1.5, (1,), {}] }}",
        // Loops.
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}\
         {{ loop.previtem.role }}{{ loop.nextitem.role }}{{ m.role }};{% else %}none{% endfor %}",
        "{% for c in 'añb' %}{{ c }}.{% endfor %}{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}",
        "{% for k, v in messages[0]|items %}{{ k }}={{ v }};{% endfor %}{% for k, v in messages[0].items() %}{{ k }}{% endfor %}",
        "{% for i in range(9) if i is odd %}{% if i == 7 %}{% break %}{% endif %}{% if i == 3 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
        "{% for x in [1, [2, [3, [4]]]] recursive %}{% if x is sequence %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
        "{% for x in [[1], [[2]]] recursive %}{% if x is sequence %}{% set y = loop(x) %}<{{ y }}>{% else %}{{ x }}{% endif %}{% endfor %}",
        "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
        "{% for x in [] %}{% else %}empty{% endfor %}{% for x in undefined_name %}{% endfor %}",
        // Assignments.
        "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set c = (1, 2) %}{{ c }}{% set d = [a, b] %}{{ d }}",
        "{% set ns = namespace(a=1, b=[]) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b + [m.role] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns }}{{ ns.c is defined }}",
        "{% set ns = namespace({'a': 1}) %}{{ ns.a }}{% for k in ns %}{{ k }}{% endfor %}{{ ns is mapping }}{{ ns|length }}",
        "{% set x = 1 %}{% set x.y = 2 %}",
        "{% set text %}a{{ messages[2].content }}b{% endset %}{{ text|length }}{{ text }}",
        "{% set text | upper %}a{{ 1 }}b{% endset %}{{ text }}{% filter title %}some {{ 'text' }}{% endfilter %}",
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
        // Macros.
        "{% macro f(a, b='x', c=none) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ f(b=3, a=4) }}{{ f(*[1, 2]) }}{{ f(**{'a': 9}) }}{{ f() }}",
        "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f }}{{ f.name }}",
        "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}{{ messages[0].role }}{% endcall %}",
        "{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each([1, 2]) %}{{ x * 2 }},{% endcall %}",
        "{% set y = 5 %}{% macro f() %}{{ y }}{{ messages|length }}{% endmacro %}{{ f() }}{{ f()|length }}",
        "{% block a %}in {{ bos_token }}{% endblock %}{% block b scoped %}{{ 1 }}{% endblock %}",
        // Filters, tests, functions and methods.
        "{{ messages|map(attribute='role')|join(', ') }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
        "{{ messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|list }} {{ [3, 1, 2]|sort }} {{ [3, 1, 2]|sort(reverse=true) }}",
        "{{ ['a', 'B', 'a']|unique|list }} {{ [1, 2, 3]|sum }} {{ [[1], [2]]|sum(start=[]) }} {{ [1, 2]|min }}{{ [1, 2]|max }}",
        "{{ messages|groupby('role')|list|length }}{% for role, list in messages|groupby('role') %}{{ role }}{{ list|length }}{% endfor %}",
        "{{ range(7)|batch(3, 0)|list }} {{ range(7)|slice(3)|list }} {{ [1, 2]|zip(['a', 'b'])|list }} {{ [1]|chain([2], [3])|list }} {{ {'a': 1}|chain({'b': 2}) }}",
        "{{ messages[1].content|trim }}|{{ messages[1].content|upper }}|{{ messages[1].content|title }}|{{ 'aBC'|capitalize }}|{{ 'ABC'|lower }}",
        "{{ messages[1].content|replace('i', 'ii') }} {{ 'a-b-c'.replace('-', '+', 1) }} {{ 'aaa'|replace('', '-') }} {{ messages[1].content|indent(2, true) }}",
        "{{ 'a\nb\n\nc'|indent(width=3, blank=true) }}|{{ 'x y  z'|split }}|{{ 'a,b'|split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a b'.split() }}|{{ 'a\nb'|lines }}",
        "{{ '<b>&'|e }} {{ '<b>&'|escape|safe }} {{ 3.14159|round(2) }} {{ '7'|int + 1 }} {{ 'x'|int(5) }} {{ '1.5'|float }} {{ -3|abs }}",
        "{{ undefined_name|default('d') }} {{ ''|default('d', true) }} {{ messages|first|attr('role') }} {{ messages|last is mapping }} {{ 'abc'|first }}{{ 'abc'|last }}",
        "{{ 'abc'|list }} {{ 'abc'|reverse }} {{ [1, 2]|reverse|list }} {{ {'b': 1, 'a': 2}|dictsort }} {{ {'a': 1}|items|list }} {{ 5|string ~ 5 }} {{ 1|bool }}",
        "{{ '%s is %05.2f'|format('pi', 3.14159) }} {{ '{} {name:>5}'.format(1, name='x') }} {{ '%(a)s'|format(a=1) }}",
        "{{ 1 is odd }}{{ 2 is even }}{{ 4 is divisibleby 2 }}{{ 'a' is string }}{{ 1 is number }}{{ none is none }}{{ [] is iterable }}{{ x is undefined }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ 'a' is lower }}{{ 'abc' is startingwith 'a' }}{{ true is true }}{{ 1 is sameas 1 }}",
        "{{ dict(a=1, b=2) }} {{ dict({'a': 1}, c=3) }} {{ range(2, 8, 3)|list }} {{ range(3) }}",
        "{{ ' a '.strip() }}{{ 'xax'.strip('x') }}{{ 'ab'.upper() }}{{ 'aXb'.lower().title().capitalize() }}{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('b', 'c')) }}{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'abcb'.count('b') }}{{ ', '.join(['a', 1]) }}{{ '12'.isdigit() }}",
        "{{ {'a': 1}.keys()|list }}{{ {'a': 1}.values()|list }}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b', 'z') }}{{ [1, 1].count(1) }}{{ messages[0].get('role') }}",
        "{% autoescape true %}{{ '<a>' }}{{ '<a>'|safe }}{{ ['<'] }}{% endautoescape %}{{ '<a>' }}",
        // Conditions and white space.
        "{% if messages %}a{% elif tools %}b{% else %}c{% endif %}{{ 'x' if tools else 'y' }}{{ 'x' if tools }}",
        "a\n  {%- if true -%}\n  b\n  {% endif %}\nc\n{# comment #}\n  {% for x in [1] %}\n  {{ x }}\n  {% endfor %}\nd{% raw %}{{ x }}{% endraw %}\n",
        // Failures.
        "{{ undefined_name.x }}",
        "{{ 1|nothing }}",
        "{{ 'a'.nothing() }}",
        "{{ nothing() }}",
        "{{ [1]|join(1, 2, 3, 4) }}",
        "{{ 1 in 5 }}",
        "{% set a, b = [1] %}",
        "{{ 'a' * 'b' }}",
        "{{ {[1]: 2}[[1]] }}",
    ] {
        let template = ChatTemplate::new(source, vec![("bos_token".to_owned(), "<s>".to_owned())]);
        let request = ChatTemplateRequest {
            messages: &TemplateMessage::list(messages.to_vec()).unwrap(),
            ..ChatTemplateRequest::default()
        };
        let rendered = template.and_then(|template| template.render(&request));
        let expected = reference(source, &messages);
        if rendered.as_ref().ok() != expected.as_ref() {
            differ.push(format!("{source}\n  {rendered:?}\n  {expected:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
