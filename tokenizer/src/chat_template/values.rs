//! JSON as chat templates see it.

use std::sync::LazyLock;

use minijinja::Value;
use serde_json::{Map, Value as Json};

/// A value of a chat template. A clone costs a count, and shares the value.
///
/// It is made of JSON, which it takes the place of: the parts of the JSON are freed as they are read.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateValue {
    value: Value,
    num_bytes: usize,
}

impl TemplateValue {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        self.value.as_str()
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        bool::try_from(self.value.clone()).ok()
    }

    /// Items of a list, members of an object, characters of a text; 0 of other values.
    pub fn len(&self) -> usize {
        self.value.len().unwrap_or(0)
    }

    /// True if it has nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes the JSON had.
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    pub(super) fn as_value(&self) -> &Value {
        &self.value
    }

    pub(super) fn into_value(self) -> Value {
        self.value
    }
}

impl From<Json> for TemplateValue {
    fn from(json: Json) -> Self {
        let mut num_bytes = 0;
        let value = to_template_value(json, &mut num_bytes);
        Self { value, num_bytes }
    }
}

/// Bytes that are counted for a value beside its text: at least what it has in JSON.
pub(super) const BYTES_PER_VALUE: usize = 2;

/// JSON as a template value, whose bytes are added to `num_bytes`. Numbers stay integers or floats as they are written.
fn to_template_value(json: Json, num_bytes: &mut usize) -> Value {
    /// All empty lists, and all empty objects, are one: each is larger than its JSON.
    static EMPTY: LazyLock<[Value; 2]> = LazyLock::new(|| {
        let no_pairs: [(Value, Value); 0] = [];
        [
            Value::from(Vec::<Value>::new()),
            Value::from_pairs(no_pairs),
        ]
    });
    let [empty_list, empty_object] = &*EMPTY;
    *num_bytes += BYTES_PER_VALUE;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => Value::from(value),
            (None, Some(value), _) => Value::from(value),
            (None, None, value) => Value::from(value.unwrap_or(f64::NAN)),
        },
        Json::String(text) => {
            *num_bytes += text.len();
            Value::from(text)
        }
        Json::Array(items) if items.is_empty() => empty_list.clone(),
        Json::Array(items) => (items.into_iter())
            .map(|item| to_template_value(item, num_bytes))
            .collect(),
        Json::Object(members) if members.is_empty() => empty_object.clone(),
        Json::Object(members) => Value::from_pairs(members.into_iter().map(|(name, value)| {
            *num_bytes += name.len();
            (name, to_template_value(value, num_bytes))
        })),
    }
}

/// Variables of a chat template by their names, in their order (`chat_template_kwargs`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TemplateVariables(Vec<(String, TemplateValue)>);

impl TemplateVariables {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&TemplateValue> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value)
    }

    /// Sets a variable, whatever it was.
    pub fn insert(&mut self, name: &str, value: Json) {
        self.0.retain(|(own, _)| own != name);
        self.0.push((name.to_owned(), value.into()));
    }

    /// Sets a variable that has no value yet.
    pub fn insert_missing(&mut self, name: &str, value: impl FnOnce() -> Json) {
        if self.get(name).is_none() {
            self.0.push((name.to_owned(), value().into()));
        }
    }

    /// The variables.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TemplateValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// About how many bytes the JSON had.
    pub fn num_bytes(&self) -> usize {
        let of_one = |(name, value): (&str, &TemplateValue)| name.len() + value.num_bytes();
        self.iter().map(of_one).sum()
    }
}

impl From<Map<String, Json>> for TemplateVariables {
    fn from(variables: Map<String, Json>) -> Self {
        let variables = variables.into_iter();
        Self(
            variables
                .map(|(name, value)| (name, value.into()))
                .collect(),
        )
    }
}
