//! Typed access to the fields of `config.json`, with errors that name field and value.

use serde_json::{Map, Value};

use crate::model_executor::error::{ModelError, cut};

pub(crate) fn config_error(field: impl Into<String>, problem: impl Into<String>) -> ModelError {
    ModelError::Config {
        field: field.into(),
        problem: problem.into(),
    }
}

/// Typed access to the fields of one JSON object; `path` precedes names in errors.
pub(crate) struct Fields<'a> {
    pub(crate) root: &'a Map<String, Value>,
    pub(crate) path: &'a str,
}

impl<'a> Fields<'a> {
    /// The field's value, where it is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.root.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong(&self, name: &str, value: &Value, right: &str) -> ModelError {
        config_error(
            format!("{}{name}", self.path),
            format!("{} must be {right}", cut(&value.to_string())),
        )
    }

    pub(crate) fn optional_positive(&self, name: &str) -> Result<Option<usize>, ModelError> {
        // Far above any model, far below what overflows when sizes are multiplied.
        const LARGEST: u64 = 1 << 28;
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(number @ 1..=LARGEST) => Ok(Some(number as usize)),
            _ => Err(self.wrong(name, value, "a whole number from 1 to 2^28")),
        }
    }

    /// The number of layers. Memory is taken for each before its tensors are looked for, so it has a
    /// bound of its own, at 500 times the deepest model's.
    pub(crate) fn num_hidden_layers(&self) -> Result<usize, ModelError> {
        const MOST: usize = 1 << 16;
        let name = "num_hidden_layers";
        match (self.positive(name)?, self.get(name)) {
            (number, Some(value)) if number > MOST => {
                Err(self.wrong(name, value, "a whole number from 1 to 2^16"))
            }
            (number, _) => Ok(number),
        }
    }

    pub(crate) fn positive(&self, name: &str) -> Result<usize, ModelError> {
        self.optional_positive(name)?.ok_or_else(|| {
            config_error(
                format!("{}{name}", self.path),
                "missing; a whole number is needed",
            )
        })
    }

    pub(crate) fn positive_float(&self, name: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(name, value, "a number above 0")),
        }
    }

    pub(crate) fn required_float(&self, name: &str) -> Result<f64, ModelError> {
        self.positive_float(name)?.ok_or_else(|| {
            config_error(
                format!("{}{name}", self.path),
                "missing; a number is needed",
            )
        })
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, ModelError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.wrong(name, value, "true or false")),
        }
    }
}
