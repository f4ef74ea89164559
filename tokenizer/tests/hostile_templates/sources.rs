//! Sources that the parser could not bear, or that lead elsewhere.

use tokenizer::ChatTemplateRequest;

use super::allocated::most_held;
use super::{MAX_MEMORY, MAX_SOURCE, MEMORY_PER_BYTE, compile, render};

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
        match compile(&source) {
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
        let error = compile(&source).unwrap_err().to_string();
        assert!(
            error.contains("nested more than 400 levels deep"),
            "{open}: {error}"
        );
    }
    let branches = (MAX_SOURCE - 32) / "{% elif x %}".len();
    let source = "{% if x %}".to_owned() + &"{% elif x %}".repeat(branches) + "{% endif %}";
    let error = compile(&source).unwrap_err().to_string();
    assert!(
        error.contains("nested more than 400 levels deep"),
        "{error}"
    );
    let names = "{% for ".to_owned() + &"(".repeat(MAX_SOURCE - 32) + "x in y %}{% endfor %}";
    assert!(compile(&names).is_err());
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
        let template = compile(&source);
        let template = template.unwrap_or_else(|error| panic!("{error}: {:.40}", source));
        // `-x` of what is undefined fails, as ever.
        let (_, most) = most_held(|| template.render(&ChatTemplateRequest::default()));
        assert!(
            most <= MAX_MEMORY + MEMORY_PER_BYTE * source.len(),
            "{most}"
        );
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
