//! The classic four of structured output: a choice, a regular expression, JSON and a grammar.
//!
//! ```sh
//! cargo build --release && cargo run --release -p engine-frontend --example structured_outputs
//! ```
//! With a folder as argument: that Hugging Face model instead of the built-in one.

use std::error::Error;
use std::path::PathBuf;

use engine_frontend::{
    EngineArgs, LLM, SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams,
};
use serde_json::json;

/// In Lark.
const SQL: &str = r#"
start: select_statement
select_statement: "SELECT " column_list " FROM " identifier
column_list: identifier | identifier ", " column_list
identifier: "username" | "email" | "users"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let args = EngineArgs {
        model: std::env::args().nth(1).map(PathBuf::from),
        ..EngineArgs::default()
    };
    let llm = LLM::new(&args)?;
    let ask = |question: &str, constraint, stop: &[&str]| {
        let params = SamplingParams {
            temperature: 0.0,
            max_tokens: Some(100),
            stop: stop.iter().map(|&stop| stop.to_owned()).collect(),
            structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
            ..llm.default_sampling_params()
        };
        let message = json!({"role": "user", "content": question});
        for completion in llm.chat(&[message], &params)?.outputs {
            println!("{question}\n{}\n", completion.text);
        }
        Ok::<(), Box<dyn Error>>(())
    };

    let sentiments = ["positive", "negative"].map(str::to_owned).to_vec();
    ask(
        "Classify this sentiment: Formwork is wonderful!",
        StructuredOutputsConstraint::Choice(sentiments),
        &[],
    )?;

    ask(
        "Generate an email address for Alan Turing, who works in Enigma. End in .com and new line.",
        StructuredOutputsConstraint::Regex(r"\w+@\w+\.com\n".to_owned()),
        &["\n"],
    )?;

    let car = json!({
        "type": "object",
        "properties": {
            "brand": {"type": "string"},
            "model": {"type": "string"},
            "car_type": {"enum": ["Sedan", "SUV", "Truck", "Coupe"]},
        },
        "required": ["brand", "model", "car_type"],
    });
    ask(
        "Generate a JSON with the brand, model and car_type of an iconic car from the 60's.",
        StructuredOutputsConstraint::Json(car.to_string()),
        &[],
    )?;

    ask(
        "Generate an SQL query to show the 'username' and 'email' from the 'users' table.",
        StructuredOutputsConstraint::Grammar(SQL.to_owned()),
        &[],
    )
}
