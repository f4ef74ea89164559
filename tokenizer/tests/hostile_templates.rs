//! Templates that ask for more than their share: each ends with an error, and takes little before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use structured_output::CancelFlag;
use tokenizer::{ChatTemplate, ChatTemplateError, ChatTemplateRequest};

const MAX_SOURCE: usize = 256 << 10;

fn render(source: &str) -> Result<String, ChatTemplateError> {
    ChatTemplate::new(source, Vec::new())?.render(&ChatTemplateRequest::default())
}

/// The limit that a template exceeds.
fn limit(source: &str) -> String {
    match render(source) {
        Err(ChatTemplateError::LimitExceeded { limit }) => limit.to_owned(),
        other => format!("{:?}", other.map(|text| text.len())),
    }
}

/// A loop that grows `ns.x` from `start` by the statement until a limit ends it.
fn growing(start: &str, statement: &str) -> String {
    format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(99999) %}}{statement}{{% endfor %}}"
    )
}

const VALUE: &str = "the size of a value";
const MEMORY: &str = "the memory of a rendering";
const WORK: &str = "the budget of work";
const OUTPUT: &str = "the size of its output";
const CONTAINERS: &str = "the number of lists and maps";

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
            "{% set ns.x = (ns.x ~ '\n')|indent(9, true, true) %}",
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
            [MEMORY, VALUE].contains(&found.as_str()),
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
        assert_eq!(limit(&source), MEMORY, "{call}");
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
fn values_that_are_in_themselves_many_times_are_not_looked_through() {
    // 2 to the power of 99: a line in memory, and without an end to whoever prints it.
    let tree = "{% set ns = namespace(x=['x']) %}{% for i in range(99) %}\
                {% set ns.x = [ns.x, ns.x] %}{% endfor %}{% set x = ns.x %}";
    for expression in [
        "x",
        "x ~ ''",
        "x == [x, 1]",
        "x < [x, 1]",
        "x == 1 == 2",
        "1 in x",
        "x in x",
        "{x: 1}",
        "{'a': 1}[x]",
        "x|tojson",
        "x|string",
        "x|upper",
        "x|trim",
        "x|join",
        "x|sort",
        "x|unique",
        "x|min",
        "x|sum(start=[])",
        "x|map('upper')|list",
        "x|select('eq', x)|list",
        "x is eq [x, 2]",
        "x is sameas [x, 2]",
        "x is in x",
        "'%s'|format(x)",
        "'{}'.format(x)",
        "','.join(x)",
        "x.count(x)",
        "raise_exception(x)",
        "strftime_now(x)",
        "dict(a=x)",
        "'a'|replace('a', x)",
    ] {
        assert_eq!(
            limit(&format!("{tree}{{{{ {expression} }}}}")),
            WORK,
            "{expression}"
        );
    }
    // It may be there, counted and passed on.
    let text = render(&format!(
        "{tree}{{{{ x|length }}}} {{{{ x|first|length }}}}"
    ));
    assert_eq!(text.unwrap(), "2 2");
}

#[test]
fn namespaces_that_hold_themselves_end() {
    let ns = "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}";
    for expression in [
        "ns == namespace(me=1)",
        "ns|tojson",
        "ns|string",
        "ns",
        "ns in [ns]",
        "{ns: 1}",
    ] {
        let error = render(&format!("{ns}{{{{ {expression} }}}}"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the nesting of a value exceeded") || error.contains("levels deep"),
            "{expression}: {error}"
        );
    }
    assert_eq!(
        render(&format!("{ns}{{{{ ns.me.me.list|length }}}}")).unwrap(),
        "1"
    );
}

#[test]
fn work_is_counted_in_bytes() {
    let searches = |statement: &str| {
        format!(
            "{{% set x = 'x' * 999999 %}}{{% for i in range(99999) %}}{statement}{{% endfor %}}"
        )
    };
    for statement in [
        "{% if 'y' in x %}{% endif %}",
        "{% if x == x ~ '' %}{% endif %}",
        "{% if x is endingwith 'y' %}{% endif %}",
        "{% set y = x.find('y') %}",
        "{% set y = x|length %}",
        "{% set y = x|upper %}",
        "{% set y = x|trim %}",
        "{% set y = x[1:2] %}",
        "{% set y = x[-1] %}",
        "{% set y = x[5] %}",
        "{% set y = x.split('y') %}",
        "{% set y = x|replace('y', '') %}",
        "{% for c in x %}{% break %}{% endfor %}",
        "{% set y = {x: 1} %}",
        "{% set y = {'a': 1}[x] %}",
        "{% set y = x|tojson %}",
    ] {
        assert_eq!(limit(&searches(statement)), WORK, "{statement}");
    }
    let lists = "{% set x = range(99999)|list %}{% for i in range(99999) %}{% if i < 0 or -1 in x %}\
                 {% endif %}{% endfor %}";
    assert_eq!(limit(lists), WORK);
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
    // Two thousand slices of a thousand items on average.
    let source = "{% set x = range(2000)|list %}{% for i in x %}{% set y = x[i:]|reverse|list %}\
                  {% endfor %}{{ x|length }}";
    assert_eq!(render(source).unwrap(), "2000");
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
fn a_raised_message_is_cut() {
    let raised = render("{{ raise_exception('x' * 999999) }}").unwrap_err();
    assert_eq!(
        raised,
        ChatTemplateError::Raised {
            message: "x".repeat(4096)
        }
    );
}

#[test]
fn the_budget_grows_with_the_request() {
    let template =
        "{% for m in messages %}{% set c = m.content|trim %}{{ c ~ c ~ '\n' }}{% endfor %}";
    let content = "x".repeat(20 << 20);
    let messages = [json!({"role": "user", "content": content})];
    let template = ChatTemplate::new(template, Vec::new()).unwrap();
    let prompt = template.render(&ChatTemplateRequest {
        messages: &messages,
        ..ChatTemplateRequest::default()
    });
    assert_eq!(prompt.unwrap().len(), (40 << 20) + 1);
}

#[test]
fn the_worst_sources_of_256_kib_are_refused_without_an_overflow() {
    for (open, middle, close) in [
        ("-", "1", ""),
        ("not ", "1", ""),
        ("- -", "x", ""),
        ("(", "1", ")"),
        ("(", "", ""),
        ("[", "1", "]"),
        ("{'a':", "1", "}"),
        ("f(", "1", ")"),
        ("x[", "1", "]"),
        ("x.a[", "1", ":]"),
        ("x if y else ", "1", ""),
        ("x~", "1", ""),
        ("x+", "1", ""),
        ("x**", "1", ""),
        ("x<", "1", ""),
        ("x and ", "1", ""),
        ("", "x", ".a"),
        ("", "x", ".0"),
        ("", "x", "|e"),
        ("", "x", "[0]"),
        ("", "x", "()"),
        ("", "x", " is a"),
        ("", "x", " is not a"),
        ("", "x", " if y"),
        ("", "x", "~x"),
        ("", "x", "==x"),
        ("", "x", " in x"),
        ("", "x", " or x"),
        ("", "'a'", "'a'"),
    ] {
        let levels = (MAX_SOURCE - 32) / (open.len() + close.len()).max(1);
        let source = format!(
            "{{{{ {}{middle}{} }}}}",
            open.repeat(levels),
            close.repeat(levels)
        );
        assert!(source.len() <= MAX_SOURCE);
        match ChatTemplate::new(&source, Vec::new()) {
            Ok(_) => assert_eq!(close, "'a'", "texts beside each other are one"),
            Err(error) => assert_eq!(
                error.to_string(),
                "chat template, line 1: nested more than 400 levels deep",
                "{open}{middle}{close}"
            ),
        }
    }
    for (open, close) in [
        ("{% if x %}", "{% endif %}"),
        ("{% if x %}", ""),
        ("{% for x in y %}", "{% endfor %}"),
        ("{% set x %}", "{% endset %}"),
        ("{% with %}", "{% endwith %}"),
        ("{% filter e %}", "{% endfilter %}"),
        ("{% macro f() %}", "{% endmacro %}"),
        ("{% call f() %}", "{% endcall %}"),
        ("{% autoescape x %}", "{% endautoescape %}"),
        ("{% generation %}", "{% endgeneration %}"),
    ] {
        let levels = (MAX_SOURCE - 32) / (open.len() + close.len());
        let source = open.repeat(levels) + &close.repeat(levels);
        let error = ChatTemplate::new(&source, Vec::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("nested more than 400 levels deep"),
            "{open}: {error}"
        );
    }
    let branches = (MAX_SOURCE - 32) / "{% elif x %}".len();
    let source = "{% if x %}".to_owned() + &"{% elif x %}".repeat(branches) + "{% endif %}";
    let error = ChatTemplate::new(&source, Vec::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("nested more than 400 levels deep"),
        "{error}"
    );
    let names = "{% for ".to_owned() + &"(".repeat(MAX_SOURCE - 32) + "x in y %}{% endfor %}";
    assert!(ChatTemplate::new(&names, Vec::new()).is_err());
}

#[test]
fn sources_just_within_the_limits_compile_and_render() {
    let within = 398;
    for source in [
        format!("{{{{ {}1 }}}}", "-".repeat(within)),
        format!("{{{{ {}x }}}}", "-".repeat(within)),
        format!("{{{{ x{} }}}}", "|d".repeat(within)),
        format!("{{{{ {}1 }}}}", "x~".repeat(within)),
        format!("{{{{ {}1 }}}}", "0 if x else ".repeat(within / 2)),
        "{% if x %}".to_owned() + &"{% elif x %}".repeat(within) + "{% endif %}",
        // Many of the worst expressions beside each other.
        format!("{{{{ {}x }}}}", "-".repeat(within)).repeat(MAX_SOURCE / 410),
        format!("{{{{ [{}1] }}}}", "1,".repeat(MAX_SOURCE / 2 - 10)),
        format!("{{{{ {{{}}} }}}}", "x:1,".repeat(30_000)),
    ] {
        let template = ChatTemplate::new(&source, Vec::new());
        let template = template.unwrap_or_else(|error| panic!("{error}: {:.40}", source));
        // `-x` of what is undefined fails, as ever.
        drop(template.render(&ChatTemplateRequest::default()));
    }
}

#[test]
fn a_source_that_is_too_long_is_refused() {
    let longest = " ".repeat(MAX_SOURCE);
    assert_eq!(render(&longest).unwrap().len(), MAX_SOURCE);
    assert_eq!(
        render(&(longest + " ")).unwrap_err().to_string(),
        "chat template: its source has 262145 bytes; it may have 262144"
    );
}

#[test]
fn templates_reach_no_other_template_and_no_internals() {
    for source in [
        "{% include 'chat_template' %}",
        "{% import 'chat_template' as x %}",
        "{% extends 'chat_template' %}",
    ] {
        let error = render(source).unwrap_err().to_string();
        assert!(error.contains("template not found"), "{error}");
    }
    for source in ["{{ debug() }}", "{{ 1|pprint }}", "{{ 1|#concat(2) }}"] {
        assert!(render(source).is_err());
    }
    // The gates can be named as texts only, and keep their bounds there.
    assert_eq!(
        render("{{ ['a']|map('#concat', 'b')|join }}").unwrap(),
        "ab"
    );
}

#[test]
fn a_cancelled_request_renders_nothing() {
    let cancel = CancelFlag::new();
    let template = ChatTemplate::new("x", Vec::new()).unwrap();
    let request = ChatTemplateRequest {
        cancel: Some(&cancel),
        ..ChatTemplateRequest::default()
    };
    assert_eq!(template.render(&request).unwrap(), "x");
    cancel.cancel();
    assert_eq!(template.render(&request), Err(ChatTemplateError::Cancelled));
}
