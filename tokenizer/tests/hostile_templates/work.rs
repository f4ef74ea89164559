//! Templates that look at more than a rendering may, or fail in other ways.

use structured_output::CancelFlag;
use tokenizer::{ChatTemplate, ChatTemplateError, ChatTemplateRequest};

use super::{MEMORY, WORK, limit, render};

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
        let found = limit(&format!("{tree}{{{{ {expression} }}}}"));
        assert!(
            [WORK, MEMORY].contains(&found.as_str()),
            "{expression}: {found}"
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
