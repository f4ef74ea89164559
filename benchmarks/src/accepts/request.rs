//! One line of input.

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value};
use structured_output::{CompiledGrammar, GrammarCompiler, JsonSchemaOptions};

/// A grammar and a text.
#[derive(Debug, Clone)]
pub(super) struct Request {
    kind: String,
    source: String,
    options: Map<String, Value>,
    input: String,
}

impl Request {
    /// Reads a request. A `source` that is no string stands for its text.
    ///
    /// # Errors
    /// What is missing or of another form.
    pub(super) fn parse(line: &str) -> anyhow::Result<Self> {
        let mut fields: Map<String, Value> =
            serde_json::from_str(line).context("not a JSON object")?;
        let mut take = |name: &'static str| fields.remove(name);
        let text = |name: &str, value: Option<Value>| match value {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(anyhow!("{name}: {other} is no string")),
            None => Err(anyhow!("{name} is missing")),
        };
        Ok(Self {
            kind: text("kind", take("kind"))?,
            source: match take("source") {
                Some(Value::String(source)) => source,
                Some(other) => other.to_string(),
                None => String::new(),
            },
            options: match take("options") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(options)) => options,
                Some(other) => bail!("options: {other} is no object"),
            },
            input: text("input", take("input"))?,
        })
    }

    /// The text.
    pub(super) fn input(&self) -> &str {
        &self.input
    }

    /// What tells the grammar from others.
    pub(super) fn grammar_key(&self) -> String {
        let options = Value::from(self.options.clone());
        Value::from(vec![
            Value::from(&*self.kind),
            Value::from(&*self.source),
            options,
        ])
        .to_string()
    }

    /// Compiles the grammar.
    ///
    /// # Errors
    /// The compiler's, or options or a kind that there are not.
    pub(super) fn compile(&self, compiler: &GrammarCompiler) -> anyhow::Result<CompiledGrammar> {
        let source = &*self.source;
        match &*self.kind {
            "json_schema" => {
                let options = Value::from(self.options.clone()).to_string();
                let options = JsonSchemaOptions::from_json(&options)?;
                Ok(compiler.compile_json_schema(source, &options)?)
            }
            "json_object" => {
                self.no_options()?;
                Ok(compiler.compile_builtin_json()?)
            }
            "regex" => {
                self.no_options()?;
                Ok(compiler.compile_regex(source)?)
            }
            "choice" => {
                self.no_options()?;
                let choices: Vec<String> =
                    serde_json::from_str(source).context("source: no JSON array of strings")?;
                Ok(compiler.compile_choice(&choices)?)
            }
            "ebnf" => Ok(compiler.compile_ebnf(source, &self.root()?)?),
            "lark" => {
                self.no_options()?;
                Ok(compiler.compile_lark(source)?)
            }
            "grammar" => {
                self.no_options()?;
                Ok(compiler.compile_grammar(source)?)
            }
            "structural_tag" => {
                self.no_options()?;
                Ok(compiler.compile_structural_tag(source)?)
            }
            kind => bail!("kind: {kind:?} is not known"),
        }
    }

    /// The one option of EBNF: the rule to start with.
    fn root(&self) -> anyhow::Result<String> {
        match self.options.keys().find(|name| *name != "root") {
            Some(name) => bail!("options: {name} is not an option of {}", self.kind),
            None => match self.options.get("root") {
                None => Ok("root".to_owned()),
                Some(Value::String(root)) => Ok(root.clone()),
                Some(other) => bail!("options: root is {other}, which is no string"),
            },
        }
    }

    fn no_options(&self) -> anyhow::Result<()> {
        match self.options.keys().next() {
            Some(name) => bail!("options: {name} is not an option of {}", self.kind),
            None => Ok(()),
        }
    }
}
