use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

use super::*;

fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn tools() -> Vec<Value> {
    let defs = json!({"n": {"enum": [1, 2]}});
    let add = json!({
        "type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"],
        "additionalProperties": false, "$defs": defs,
    });
    vec![tool("add", add), tool("stop", Value::Null)]
}

/// Whether a text is a whole answer, or could still become one.
#[derive(Debug, PartialEq)]
enum Is {
    Whole,
    Begun,
    Wrong,
}

struct Answers(GrammarMatcher);

impl Answers {
    fn new(
        choice: &ToolChoice,
        parallel: bool,
        format: ToolCallFormat,
        answer: Option<&RequestConstraint>,
    ) -> Self {
        let tools = constraint(choice, &tools(), parallel, Some(format), answer)
            .unwrap()
            .unwrap();
        let StructuredOutputsConstraint::StructuralTag(tag) =
            tools.constraint.params.constraint.clone()
        else {
            panic!("a structural tag");
        };
        let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        vocab.push(b"</s>".to_vec());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let grammar = compiler.compile_structural_tag(&tag).unwrap();
        Self(GrammarMatcher::new(&grammar))
    }

    fn check(&self, text: &str) -> Is {
        let mut matcher = self.0.fork();
        for byte in text.bytes() {
            if !matcher.accept_token(u32::from(byte)).unwrap() {
                return Is::Wrong;
            }
        }
        if matcher.is_completed() {
            Is::Whole
        } else {
            Is::Begun
        }
    }
}

fn call(format: ToolCallFormat, name: &str, arguments: &str) -> String {
    match format {
        ToolCallFormat::Hermes => format!(
            "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
        ),
        ToolCallFormat::Llama3Json => {
            format!("{{\"name\": \"{name}\", \"parameters\": {arguments}}}")
        }
        ToolCallFormat::Mistral => {
            format!("[TOOL_CALLS] [{{\"name\": \"{name}\", \"arguments\": {arguments}}}]")
        }
        ToolCallFormat::MistralArgs => format!("[TOOL_CALLS]{name}[ARGS]{arguments}"),
        ToolCallFormat::List => {
            format!("[{{\"name\": \"{name}\", \"parameters\": {arguments}}}]")
        }
    }
}

const MODELS: [ToolCallFormat; 4] = [
    ToolCallFormat::Hermes,
    ToolCallFormat::Llama3Json,
    ToolCallFormat::Mistral,
    ToolCallFormat::MistralArgs,
];

#[test]
fn a_call_that_a_model_begins_is_valid() {
    for format in MODELS {
        let auto = Answers::new(&ToolChoice::Auto, true, format, None);
        let call = |name, arguments| call(format, name, arguments);
        assert_eq!(
            auto.check(&call("add", "{\"n\": 1}")),
            Is::Whole,
            "{format:?}"
        );
        assert_eq!(auto.check(&call("stop", "{}")), Is::Whole, "{format:?}");
        assert_eq!(auto.check("Hello {\"a\": [1]}"), Is::Whole, "{format:?}");
        assert_eq!(auto.check(""), Is::Whole, "{format:?}");
        for wrong in [
            call("add", "{\"n\": 3}"),
            call("add", "{}"),
            call("add", "[]"),
            call("stop", "{\"n\": 1}"),
            call("other", "{}"),
        ] {
            assert_eq!(auto.check(&wrong), Is::Wrong, "{format:?}: {wrong}");
        }
    }
}

#[test]
fn llama_calls_are_whole_answers() {
    let auto = Answers::new(&ToolChoice::Auto, true, ToolCallFormat::Llama3Json, None);
    for (text, is) in [
        ("{\"name", Is::Whole),
        ("{\"name\": ", Is::Whole),
        ("{\"name\": \"", Is::Begun),
        ("{\"name\":\"other\"}", Is::Whole),
        ("{\"names\": [\"x\"]}", Is::Whole),
        ("So {\"name\": \"other\", \"parameters\": 1}", Is::Whole),
        ("<|python_tag|>", Is::Begun),
        (
            "<|python_tag|>{\"name\": \"stop\", \"parameters\": {}}",
            Is::Whole,
        ),
        ("<|python_tag|>print(1)", Is::Wrong),
        (
            "{\"name\": \"stop\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {\"n\": 2}}",
            Is::Whole,
        ),
        ("{\"name\": \"stop\", \"parameters\": {}} Done.", Is::Wrong),
    ] {
        assert_eq!(auto.check(text), is, "{text}");
    }
}

#[test]
fn forced_calls_leave_nothing_else() {
    for format in MODELS.into_iter().chain([ToolCallFormat::List]) {
        let required = Answers::new(&ToolChoice::Required, true, format, None);
        assert_eq!(required.check(""), Is::Begun, "{format:?}");
        assert_eq!(required.check("Hello"), Is::Wrong, "{format:?}");
        assert_eq!(required.check(&call(format, "stop", "{}")), Is::Whole);
        let named = ToolChoice::Named("add".to_owned());
        let named = Answers::new(&named, true, format, None);
        assert_eq!(named.check(&call(format, "add", "{\"n\": 2}")), Is::Whole);
        assert_eq!(named.check(&call(format, "stop", "{}")), Is::Wrong);
    }
}

#[test]
fn one_call_where_several_are_unwanted() {
    let stop = |format| call(format, "stop", "{}");
    for (format, two) in [
        (
            ToolCallFormat::Hermes,
            format!("{0}\n{0}", stop(ToolCallFormat::Hermes)),
        ),
        (
            ToolCallFormat::Llama3Json,
            format!("{0}; {0}", stop(ToolCallFormat::Llama3Json)),
        ),
        (
            ToolCallFormat::Mistral,
            stop(ToolCallFormat::Mistral)
                .replace("}]", "}, {\"name\": \"stop\", \"arguments\": {}}]"),
        ),
        (
            ToolCallFormat::MistralArgs,
            stop(ToolCallFormat::MistralArgs).repeat(2),
        ),
    ] {
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let several = Answers::new(&choice, true, format, None);
            assert_eq!(several.check(&two), Is::Whole, "{format:?} {choice:?}");
            let single = Answers::new(&choice, false, format, None);
            assert_eq!(single.check(&stop(format)), Is::Whole);
            assert_eq!(single.check(&two), Is::Wrong, "{format:?} {choice:?}");
        }
    }
}

#[test]
fn beside_calls_another_constraint_holds() {
    let answer = RequestConstraint {
        params: StructuredOutputsParams::new(StructuredOutputsConstraint::Choice(vec![
            "yes".to_owned(),
            "no".to_owned(),
        ]))
        .into(),
        field: "guided_choice".to_owned(),
        parts: Vec::new(),
        whitespace_field: None,
    };
    for format in MODELS {
        let auto = Answers::new(&ToolChoice::Auto, true, format, Some(&answer));
        assert_eq!(auto.check("yes"), Is::Whole);
        assert_eq!(auto.check("perhaps"), Is::Wrong);
        assert_eq!(auto.check(&call(format, "stop", "{}")), Is::Whole);
        assert_eq!(auto.check(&call(format, "stop", "{\"a\": 1}")), Is::Wrong);
    }
    let required = constraint(&ToolChoice::Required, &tools(), true, None, Some(&answer));
    assert_eq!(
        required.unwrap_err().parameter.as_deref(),
        Some("tool_choice")
    );
}

#[test]
fn parameters_are_of_an_object() {
    let schema = |parameters| super::parameters(&tool("f", parameters), "p");
    assert_eq!(schema(json!({})).unwrap(), json!({"type": "object"}));
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    for spelled in [
        Value::Null,
        json!({"type": "object", "properties": {}}),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    ] {
        assert_eq!(schema(spelled).unwrap(), nothing);
    }
    let open =
        json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}});
    assert_eq!(schema(open.clone()).unwrap(), open);
    assert_eq!(
        schema(json!("x")).unwrap_err().parameter.as_deref(),
        Some("p")
    );
    let error = schema(json!({"type": "array"})).unwrap_err();
    assert_eq!(error.parameter.as_deref(), Some("p.type"));
}

#[test]
fn auto_needs_a_format() {
    let error = constraint(&ToolChoice::Auto, &tools(), true, None, None).unwrap_err();
    assert!(error.message.contains("--tool-call-parser"), "{error}");
    let none = constraint(&ToolChoice::None, &tools(), true, None, None);
    assert!(none.unwrap().is_none());
}
