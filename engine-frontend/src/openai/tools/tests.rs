use std::sync::Arc;

use proptest::prelude::*;
use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

use super::*;
use crate::openai::tool_format::Position;
use crate::openai::tool_format::tests::{FORMATS, arb_function, written};

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
        format: &str,
        answer: Option<&RequestConstraint>,
    ) -> Self {
        Self::of_tools(&tools(), choice, parallel, format, answer)
    }

    fn of_tools(
        tools: &[Value],
        choice: &ToolChoice,
        parallel: bool,
        format: &str,
        answer: Option<&RequestConstraint>,
    ) -> Self {
        let format = ToolCallFormat::from_name(format).unwrap();
        let tools = constraint(choice, tools, parallel, Some(format), answer)
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

fn call(format: &str, name: &str, arguments: Value) -> String {
    written(format, &[(name, arguments)])
}

/// An answer without calls.
fn text_of(format: &str, text: &str) -> String {
    match format {
        "openai" => format!("<|channel|>final<|message|>{text}"),
        _ => text.to_owned(),
    }
}

#[test]
fn a_call_that_a_model_begins_is_valid() {
    for format in FORMATS {
        let auto = Answers::new(&ToolChoice::Auto, true, format, None);
        let call = |name, arguments| call(format, name, arguments);
        assert_eq!(
            auto.check(&call("add", json!({"n": 1}))),
            Is::Whole,
            "{format:?}"
        );
        assert_eq!(
            auto.check(&call("stop", json!({}))),
            Is::Whole,
            "{format:?}"
        );
        let text = |text: &str| text_of(format, text);
        assert_eq!(
            auto.check(&text("Hello {\"a\": [1]}")),
            Is::Whole,
            "{format:?}"
        );
        assert_eq!(auto.check(&text("")), Is::Whole, "{format:?}");
        for wrong in [
            call("add", json!({"n": 3})),
            call("add", json!({})),
            call("stop", json!({"n": 1})),
            call("other", json!({})),
        ] {
            assert_eq!(auto.check(&wrong), Is::Wrong, "{format:?}: {wrong}");
        }
    }
}

#[test]
fn llama_calls_are_whole_answers() {
    let auto = Answers::new(&ToolChoice::Auto, true, "llama3_json", None);
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
    for format in FORMATS.into_iter().chain(["list"]) {
        let required = Answers::new(&ToolChoice::Required, true, format, None);
        assert_eq!(required.check(""), Is::Begun, "{format:?}");
        assert_eq!(required.check("Hello"), Is::Wrong, "{format:?}");
        assert_eq!(required.check(&call(format, "stop", json!({}))), Is::Whole);
        let named = ToolChoice::Named("add".to_owned());
        let named = Answers::new(&named, true, format, None);
        assert_eq!(
            named.check(&call(format, "add", json!({"n": 2}))),
            Is::Whole
        );
        assert_eq!(named.check(&call(format, "stop", json!({}))), Is::Wrong);
    }
}

#[test]
fn one_call_where_several_are_unwanted() {
    let one = [("stop", json!({}))];
    let two = [("stop", json!({})), ("add", json!({"n": 1}))];
    for format in FORMATS.into_iter().filter(|format| *format != "openai") {
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let several = Answers::new(&choice, true, format, None);
            assert_eq!(
                several.check(&written(format, &two)),
                Is::Whole,
                "{format} {choice:?}"
            );
            let single = Answers::new(&choice, false, format, None);
            assert_eq!(single.check(&written(format, &one)), Is::Whole, "{format}");
            assert_eq!(
                single.check(&written(format, &two)),
                Is::Wrong,
                "{format} {choice:?}"
            );
        }
    }
    // One message of Harmony has one call.
    let openai = Answers::new(&ToolChoice::Required, true, "openai", None);
    assert_eq!(openai.check(&written("openai", &two)), Is::Wrong);
}

#[test]
fn preambles_come_before_answers_and_calls_that_are_free() {
    const PREAMBLE: &str = "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant";
    let call = call("openai", "stop", json!({}));
    let text = text_of("openai", "Done.");
    let auto = Answers::new(&ToolChoice::Auto, true, "openai", None);
    for (answer, expected) in [
        (format!("{PREAMBLE}{call}"), Is::Whole),
        (format!("{PREAMBLE}{PREAMBLE}{text}"), Is::Whole),
        (PREAMBLE.to_owned(), Is::Begun),
        (format!("{PREAMBLE}Done."), Is::Wrong),
        (format!("{text}{PREAMBLE}"), Is::Whole), // It is text of the answer.
        (
            format!("{PREAMBLE}{}", call.replace("{}", "{\"a\": 1}")),
            Is::Wrong,
        ),
    ] {
        assert_eq!(auto.check(&answer), expected, "{answer}");
    }
    // Where the request says what the answer is, or that it is a call, nothing else is.
    let required = Answers::new(&ToolChoice::Required, true, "openai", None);
    assert_eq!(required.check(&format!("{PREAMBLE}{call}")), Is::Wrong);
}

#[test]
fn text_follows_only_calls_that_stand_by_themselves() {
    for format in FORMATS {
        let text = format!("{} Done.", call(format, "stop", json!({})));
        let auto = Answers::new(&ToolChoice::Auto, true, format, None);
        let position = ToolCallFormat::from_name(format).unwrap().position;
        let wanted = match position == Position::Anywhere {
            true => Is::Whole,
            false => Is::Wrong,
        };
        assert_eq!(auto.check(&text), wanted, "{format}");
        let required = Answers::new(&ToolChoice::Required, true, format, None);
        assert_eq!(required.check(&text), Is::Wrong, "{format}");
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
    for format in FORMATS {
        let auto = Answers::new(&ToolChoice::Auto, true, format, Some(&answer));
        assert_eq!(auto.check(&text_of(format, "yes")), Is::Whole, "{format}");
        assert_eq!(
            auto.check(&text_of(format, "perhaps")),
            Is::Wrong,
            "{format}"
        );
        assert_eq!(auto.check(&call(format, "stop", json!({}))), Is::Whole);
        assert_eq!(
            auto.check(&call(format, "stop", json!({"a": 1}))),
            Is::Wrong
        );
    }
    let required = constraint(&ToolChoice::Required, &tools(), true, None, Some(&answer));
    assert_eq!(
        required.unwrap_err().parameter.as_deref(),
        Some("tool_choice")
    );
}

#[test]
fn parameters_are_of_an_object() {
    let schema = |parameters: Value| {
        let tool = tool("f", parameters);
        let parameters = Parameters::of(&tool, "p")?;
        Ok::<_, ValidationError>(serde_json::to_value(parameters).unwrap())
    };
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

#[test]
fn what_python_cannot_say_is_refused() {
    let refusal = |parameters: Value| {
        let pythonic = ToolCallFormat::from_name("pythonic").ok();
        let tools = [tool("stop", Value::Null), tool("f", parameters)];
        constraint(&ToolChoice::Auto, &tools, true, pythonic, None).unwrap_err()
    };
    for (property, says) in [
        (
            json!({"allOf": [{"type": "string"}]}),
            "at `#/properties/p/allOf`",
        ),
        (
            json!({"type": "array", "uniqueItems": true}),
            "at `#/properties/p/uniqueItems`",
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            "at `#/properties/p/minProperties`",
        ),
        (json!({"$ref": "#/x"}), "there is nothing at"),
        (json!(false), "no value meets this schema"),
        (
            json!({"type": ["string", 1]}),
            "at `#/properties/p/type`: is no type",
        ),
        (
            json!({"type": "array", "minItems": -1}),
            "at `#/properties/p/minItems`",
        ),
        (
            json!({"type": "object", "properties": []}),
            "at `#/properties/p/properties`",
        ),
        (
            json!({"type": "object", "required": "a"}),
            "at `#/properties/p/required`",
        ),
        (json!({"enum": "a"}), "at `#/properties/p/enum`"),
    ] {
        let error = refusal(json!({"type": "object", "properties": {"p": property}}));
        assert_eq!(
            error.parameter.as_deref(),
            Some("tools[1].function.parameters")
        );
        assert!(error.message.contains(says), "{error}");
    }
    let error = refusal(json!({"type": "object", "properties": {"a-b": {}}}));
    assert!(
        error.message.contains("can't be the name of an argument"),
        "{error}"
    );
}

#[test]
fn python_arguments_are_literals() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "a": {"type": "boolean"},
            "b": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "maxItems": 2},
        },
        "required": ["b"],
        "$defs": {"node": {
            "type": "object", "properties": {"x": {"type": ["integer", "null"]}, "n": {"$ref": "#/$defs/node"}},
            "required": ["x"], "additionalProperties": false,
        }},
    });
    let required = Answers::of_tools(
        &[tool("f", parameters)],
        &ToolChoice::Required,
        true,
        "pythonic",
        None,
    );
    for (arguments, is) in [
        ("b=[{\"x\": 1}]", Is::Whole),
        (
            "a=True, b=[{\"x\": None}, {\"x\": 2, \"n\": {\"x\": 3}}]",
            Is::Whole,
        ),
        (
            "b=[{\"x\": 1}], c={\"k\": [True, 1.5, \"s\"]}, d=None",
            Is::Whole,
        ),
        ("a=True", Is::Wrong),
        ("a=true, b=[{\"x\": 1}]", Is::Wrong),
        ("b=[]", Is::Wrong),
        ("b=[{\"x\": 1}, {\"x\": 1}, {\"x\": 1}]", Is::Wrong),
        ("b=[{\"x\": 1}], a=False", Is::Wrong),
        ("b=[{\"x\": 1, \"y\": 2}]", Is::Wrong),
    ] {
        assert_eq!(
            required.check(&format!("[f({arguments})]")),
            is,
            "{arguments}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn calls_that_meet_their_schemas_are_answers((parameters, arguments) in arb_function()) {
        let tools = [tool("f", parameters), tool("stop", Value::Null)];
        for format in FORMATS {
            for choice in [ToolChoice::Auto, ToolChoice::Required, ToolChoice::Named("f".to_owned())] {
                let answers = Answers::of_tools(&tools, &choice, true, format, None);
                let text = written(format, &[("f", arguments.clone())]);
                prop_assert_eq!(answers.check(&text), Is::Whole, "{} {}", format, text);
                let wrong = written(format, &[("f", json!({"other": 1}))]);
                prop_assert_eq!(answers.check(&wrong), Is::Wrong, "{} {}", format, wrong);
            }
        }
    }
}
