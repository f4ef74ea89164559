//! Templates that requests bring, where they may: finding 7.

use serde_json::{Value, json};

use super::memory::{Peak, warm_up};
use crate::server::support::Server;

fn server(flags: &[&str]) -> Server {
    let ours = [
        "--trust-request-chat-template",
        "--num-blocks-override",
        "512",
    ];
    let server = Server::start(&[&ours, flags].concat());
    warm_up(|path, body| server.post(path, body).status);
    server
}

fn with_template(template: &str, content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "chat_template": template})
}

/// Checks that a template is refused, that it took no more memory than its share, and that the server
/// goes on.
fn is_refused(server: &Server, template: &str) {
    let shown: String = template.chars().take(60).collect();
    for path in ["/tokenize", "/v1/chat/completions"] {
        let body = with_template(template, "Hi");
        let peak = Peak::begin(server);
        let answer = server.post(path, &body);
        peak.check(&shown, body.to_string().len());
        assert_eq!(answer.status, 400, "{path} {shown}: {answer:?}");
    }
    assert!(server.is_healthy());
}

#[test]
fn values_that_a_template_makes_are_bounded_before_they_are_made() {
    let server = server(&[]);
    let doubling = "{% set n = namespace(s='xxxxxxxx') %}\
        {% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s|length }}";
    let doubled_list = "{% set n = namespace(s=[1]) %}\
        {% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s|length }}";
    for template in [
        "{{ 'x\ny'|indent(1125899906842624) }}",
        "{{ 'x\ny'|indent(90000000) }}",
        "{{ 'x'|center(99999999999) }}",
        "{{ 'x'.center(99999999999) }}",
        "{{ 'x'.ljust(99999999999) }}",
        "{{ 'x'.zfill(99999999999) }}",
        "{{ '%99999999999d'|format(1) }}",
        "{{ '%*d'|format(99999999, 1) }}",
        "{{ 'x' * 99999999999 }}",
        "{{ ('x' * 9999999) * 9999999 }}",
        "{{ [1] * 99999999999 }}",
        "{% set a = 'x' * 60000 %}{{ a|replace('x', a)|length }}",
        "{% set a = 'x' * 60000 %}{{ a.replace('x', a)|length }}",
        "{% set a = 'x' * 60000 %}{{ a|list|join(a)|length }}",
        "{% set a = 'x' * 60000 %}{{ a.join(a)|length }}",
        "{{ messages|tojson(indent=99999999999) }}",
        doubling,
        doubled_list,
    ] {
        is_refused(&server, template);
    }
}

#[test]
fn compiling_a_template_cannot_overflow_the_stack() {
    let server = server(&[]);
    let nested = "{% if 1 %}".repeat(20_000) + &"{% endif %}".repeat(20_000);
    is_refused(&server, &nested);
    for open in ["-", "not ", "(", "[", "{'a':"] {
        let template = format!("{{{{ {}1", open.repeat(6000));
        is_refused(&server, &template);
        is_refused(&server, &format!("{template} }}}}"));
    }
    is_refused(&server, &format!("{{{{ 1{} }}}}", "|abs".repeat(60_000)));
    is_refused(&server, &format!("{{{{ a{} }}}}", ".a".repeat(60_000)));
    is_refused(&server, &format!("{{{{ 1{} }}}}", "~1".repeat(60_000)));
    let too_long = "a".repeat((256 << 10) + 1);
    is_refused(&server, &too_long);
}

/// Six hundred searches in one value stopped all chats for 20 s and more.
#[test]
fn work_within_one_instruction_is_counted() {
    let server = server(&[]);
    let needle = "Hi".repeat(16) + "b";
    for work in [
        format!("{{{{ '{needle}' in s }}}}"),
        format!("{{{{ s.find('{needle}') }}}}"),
        "{{ s|upper|length }}".to_owned(),
        "{{ (s == s ~ '')|string }}".to_owned(),
    ] {
        let template = format!(
            "{{% set s = messages[0].content * 4000000 %}}{{% for i in range(5000) %}}{work}{{% endfor %}}"
        );
        is_refused(&server, &template);
    }
}
