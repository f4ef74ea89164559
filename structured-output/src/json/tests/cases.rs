//! Schemas by hand.

use super::super::schema::SchemaCompiler;
use super::{Engine, parse};
use crate::options::{Format, JsonSchemaOptions, Limits, PropertyOrder};

fn schema(source: &str, order: PropertyOrder) -> Engine {
    let options = JsonSchemaOptions {
        format: Format::Annotate,
        ..Default::default()
    };
    let mut compiler = SchemaCompiler::new(source, &options, &Limits::default()).unwrap();
    Engine::new(order, |lexicon, programs| {
        loop {
            let done = compiler.run(lexicon, programs.nodes(), 64).unwrap();
            if let Some(root) = done {
                return root;
            }
        }
    })
    .unwrap()
    .unwrap()
}

#[test]
fn debug_it() {
    let mut e = schema(
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","$ref":"https://json-schema.org/draft/2020-12/schema"}"#,
        PropertyOrder::Any,
    );
    for t in [
        r#"{"$defs":{"foo":{"type":1}}}"#,
        r#"{"type":1}"#,
        r#"{"$defs":{"foo":1}}"#,
        r#"{"$defs":{"foo":{"minimum":"a"}}}"#,
        r#"{"properties":{"foo":{"type":1}}}"#,
        r#"{"not":{"type":1}}"#,
    ] {
        println!("{t} {} {}", e.accepts(t).unwrap(), e.holds(&parse(t)));
    }
}
