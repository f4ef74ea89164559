//! Templates that make more than a rendering may hold or write.

use serde_json::{Map, Value, json};
use tokenizer::{ChatTemplate, ChatTemplateRequest, TemplateMessage, TemplateVariables};

use super::allocated::most_held;
use super::{
    CONTAINERS, MAX_MEMORY, MAX_SOURCE, MEMORY, MEMORY_PER_BYTE, OUTPUT, VALUE, WORK, growing,
    limit, render,
};

#[test]
fn one_call_that_makes_a_huge_value_is_refused_before() {
    for call in [
        "'x\ny'|indent(1125899906842624)",
        "'x\ny'|indent(width=1125899906842624)",
        "'%999999999d'|format(1)",
        "'%*d'|format(999999999, 1)",
        "'%.999999999f'|format(1.5)",
        "'{:>999999999}'.format('x')",
        "'{:{}}'.format('x', 999999999)",
        "'{:.999999999f}'.format(1.5)",
        "[1]|batch(99999999, 0)",
        "[1]|slice(99999999)",
        "[1]|slice(99999999, 0)",
        "('x' * n) * n",
        "n * ('x' * n)",
        "[1] * 99999999 * n",
    ] {
        let found = limit(&format!("{{% set n = 1000000 %}}{{{{ {call} }}}}"));
        assert!([VALUE, MEMORY].contains(&found.as_str()), "{call}: {found}");
    }
    // Half a million characters of which each becomes half a million.
    let replaced = "{% set x = 'x' * 500000 %}{{ x|replace('x', x) }}";
    assert_eq!(limit(replaced), VALUE);
    let method = "{% set x = 'x' * 500000 %}{{ x.replace('x', x) }}";
    assert_eq!(limit(method), VALUE);
    let everywhere = "{% set x = 'x' * 500000 %}{{ x|replace('', x) }}";
    assert_eq!(limit(everywhere), VALUE);
    let joined = "{% set x = 'x' * 500000 %}{{ x|join(x) }}";
    assert_eq!(limit(joined), VALUE);
    let joined = "{% set x = 'x' * 500000 %}{{ x.join(x) }}";
    assert_eq!(limit(joined), VALUE);
    let indented = "{% set x = 'x' * 999999 %}{{ [range(1000)|list] * 9|tojson(indent=x) }}";
    assert_ne!(limit(indented), "Ok");
    let indented = "{% set x = 'x' * 999999 %}{{ range(9999)|list|tojson(indent=x) }}";
    assert_eq!(limit(indented), MEMORY);
}

#[test]
fn growth_step_by_step_ends_at_the_memory_of_a_rendering() {
    for (start, statement) in [
        ("'x'", "{% set ns.x = ns.x ~ ns.x %}"),
        ("'x'", "{% set ns.x = ns.x + ns.x %}"),
        ("'x'", "{% set ns.x = ns.x * 2 %}"),
        ("'x'", "{% set ns.x = ns.x|replace('x', 'xx') %}"),
        ("'x'", "{% set ns.x = ns.x.replace('x', 'xx') %}"),
        ("'x'", "{% set ns.x = [ns.x, ns.x]|join %}"),
        ("'x'", "{% set ns.x = ns.x.join(['x', 'x', 'x']) %}"),
        ("'x'", "{% set ns.x = '%s%s'|format(ns.x, ns.x) %}"),
        ("'x'", "{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        (
            "'\n'",
            "{% set ns.x = (ns.x ~ '\n' ~ ns.x)|indent(9, true, true) %}",
        ),
        ("'\"'", "{% set ns.x = ns.x|tojson %}"),
        ("'<'", "{% set ns.x = (ns.x ~ '<')|escape ~ ns.x %}"),
        ("[1]", "{% set ns.x = ns.x + ns.x %}"),
        ("[1]", "{% set ns.x = ns.x * 2 %}"),
        ("(1, 2)", "{% set ns.x = ns.x * 2 %}"),
        ("(1, 2)", "{% set ns.x = ns.x + ns.x %}"),
        ("[1]", "{% set ns.x = ns.x|chain(ns.x)|list %}"),
        ("[1]", "{% set ns.x = [ns.x, ns.x]|sum(start=[]) %}"),
        ("'x'", "{% set ns.x = ns.x ~ [ns.x, ns.x] %}"),
    ] {
        let found = limit(&growing(start, statement));
        assert!(
            [MEMORY, VALUE, WORK].contains(&found.as_str()),
            "{statement}: {found}"
        );
    }
    // Parts of a text are texts of their own.
    for call in [
        "split('y')",
        "splitlines()",
        "rsplit('y')",
        "partition('y')",
        "split('x', 1)",
    ] {
        let source = format!(
            "{{% set x = 'x' * 999999 %}}{{% set ns = namespace(all=[]) %}}\
             {{% for i in range(999) %}}{{% set ns.all = [ns.all, x.{call}] %}}{{% endfor %}}"
        );
        let found = limit(&source);
        assert!([MEMORY, WORK].contains(&found.as_str()), "{call}: {found}");
    }
    for statement in [
        "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}",
        "{% set ns.x %}{% filter upper %}{{ ns.x }}{{ ns.x }}{% endfilter %}{% endset %}",
        "{% macro f() %}{{ ns.x }}{{ ns.x }}{% endmacro %}{% set ns.x = f() %}",
        "{% macro f() %}{{ ns.x }}{{ caller() }}{% endmacro %}{% set ns.x %}{% call f() %}\
         {{ ns.x }}{% endcall %}{% endset %}",
        "{% autoescape true %}{{ ns.x }}{{ ns.x }}{% set ns.x = ns.x ~ '<' %}{% endautoescape %}\
         {% set ns.x = ns.x ~ ns.x %}",
    ] {
        let found = limit(&growing("'x'", statement));
        assert!(
            [OUTPUT, MEMORY].contains(&found.as_str()),
            "{statement}: {found}"
        );
    }
}

#[test]
fn text_of_the_template_itself_counts_where_it_is_caught() {
    let text = "x".repeat(MAX_SOURCE - 200);
    let caught =
        format!("{{% set y %}}{{% for i in range(99999) %}}{text}{{% endfor %}}{{% endset %}}");
    assert_eq!(limit(&caught), OUTPUT);
    let macros = format!(
        "{{% macro f() %}}{text}{{% endmacro %}}{{% for i in range(99999) %}}{{% set y = f() %}}{{% endfor %}}"
    );
    assert_eq!(limit(&macros), OUTPUT);
}

#[test]
fn many_lists_end_at_their_number() {
    for statement in [
        "{% set y = [i] %}",
        "{% set y = (i, i) %}",
        "{% set y = {'a': i} %}",
        "{% set y = namespace() %}",
        "{% set y = 'a b'.split() %}",
        "{% set y = [1, 2, i][1:] %}",
        "{% set y = dict(a=i) %}",
    ] {
        let statement = statement.repeat(3);
        let source = format!("{{% for i in range(99999) %}}{statement}{{% endfor %}}");
        let found = limit(&source);
        assert!(
            [CONTAINERS, MEMORY].contains(&found.as_str()),
            "{statement}: {found}"
        );
    }
}

#[test]
fn what_is_dropped_stops_counting() {
    // A prompt of 100 KB that grows by pieces of 100 bytes: 50 MB are copied, 100 KB are there.
    let source = "{% set ns = namespace(x='') %}{% for i in range(1000) %}\
                  {% set ns.x = ns.x ~ 'x' * 100 %}{% endfor %}{{ ns.x }}";
    assert_eq!(render(source).unwrap().len(), 100_000);
    // A thousand slices of five hundred items on average.
    let source = "{% set x = range(1000)|list %}{% for i in x %}{% set y = x[i:]|reverse|list %}\
                  {% endfor %}{{ x|length }}";
    assert_eq!(render(source).unwrap(), "1000");
}

#[test]
fn ordinary_formats_are_within_their_bound() {
    for (source, expected) in [
        ("{{ '%d'|format(1700000000) }}", "1700000000"),
        (
            "{{ '**%s** 5551234567'|format(1700000000) }}",
            "**1700000000** 5551234567",
        ),
        ("{{ '%05.1f|%-4s|%%'|format(2.25, 'a') }}", "002.2|a   |%"),
        (
            "{{ 'at 5551234567: {}'.format(1700000000) }}",
            "at 5551234567: 1700000000",
        ),
        (
            "{{ '{:>4}|{:<3}|{:04d}'.format('a', 'b', 7) }}",
            "   a|b  |0007",
        ),
    ] {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }
}

#[test]
fn the_budget_grows_with_the_request() {
    let template = "{% for m in messages %}{% set c = m.content|trim %}{{ c ~ '\n' }}{% endfor %}";
    let bytes = 20 << 20;
    let (prompt, most) = most_held(|| {
        let message = json!({"role": "user", "content": "x".repeat(bytes)});
        let messages = TemplateMessage::list(vec![message])?;
        let request = ChatTemplateRequest {
            messages: &messages,
            ..ChatTemplateRequest::default()
        };
        ChatTemplate::new(template, Vec::new())?.render(&request)
    });
    assert!(most <= MAX_MEMORY + MEMORY_PER_BYTE * bytes, "{most}");
    assert_eq!(prompt.unwrap().len(), bytes + 1);
}

/// Variables are many times as large as their JSON, and what a template makes of them comes on top.
#[test]
fn what_is_made_of_many_values_fits_beside_them() {
    // As many as a request may have.
    for (value, count) in [
        (json!(0), 440_000),
        (json!({}), 600_000),
        (json!([]), 600_000),
        (json!({"": 0}), 120_000),
    ] {
        for source in [
            "{{ x|length }}",
            "{{ x|tojson }}{{ x|tojson }}",
            "{{ x|tojson(sort_keys=True) }}",
            "{% set a = x|list %}{% set b = x|list %}{{ a|length }}",
            "{% set a = x[::-1] %}{% set b = a[::-1] %}{{ b|length }}",
            "{{ x[::-1][::-1][::-1]|reverse|length }}",
            "{% set a = (x|tojson).split(',') %}{{ a|length }}",
            "{% set a = x|tojson %}{% set b = x|string %}{% set c = x|list %}{{ a }}{{ b }}",
            "{% set ns = namespace(a='xxxxxxxx') %}{% for i in range(21) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}\
             {{ ns.a }}{{ ns.a }}{{ ns.a }}",
        ] {
            let num_bytes = count * (value.to_string().len() + 1);
            let (rendered, most) = most_held(|| {
                let values = Value::Array(vec![value.clone(); count]);
                let kwargs = Map::from_iter([("x".to_owned(), values)]);
                let kwargs = TemplateVariables::from(kwargs);
                let request = ChatTemplateRequest {
                    chat_template_kwargs: Some(&kwargs),
                    ..ChatTemplateRequest::default()
                };
                ChatTemplate::new(source, Vec::new())?.render(&request)
            });
            let outcome = rendered.map(|text| text.len());
            let allowed = MAX_MEMORY + MEMORY_PER_BYTE * num_bytes;
            let what = format!("{most} of {allowed} bytes, {outcome:?}: {value} in {source}");
            assert!(most <= allowed, "{what}");
        }
    }
}
