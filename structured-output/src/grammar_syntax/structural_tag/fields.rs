//! Reading an object's fields, each once, and refusing what is left.

use super::super::ast::TokenSet;
use super::super::cursor::cut;
use super::TagError;
use crate::did_you_mean::did_you_mean;
use crate::json::Value;

/// An object that is being read.
pub(super) struct Fields<'a> {
    members: &'a [(String, Value)],
    taken: Vec<bool>,
    pub(super) pointer: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(value: &'a Value, pointer: &'a str) -> Result<Self, TagError> {
        let Value::Object(members) = value else {
            return refuse(pointer, format!("{} is not an object", shown(value)));
        };
        Ok(Self {
            members,
            taken: vec![false; members.len()],
            pointer,
        })
    }

    /// Those of an object without any.
    pub(super) fn of_none(pointer: &'a str) -> Self {
        Self {
            members: &[],
            taken: Vec::new(),
            pointer,
        }
    }

    /// The pointer of a field.
    pub(super) fn at(&self, name: &str) -> String {
        let name = name.replace('~', "~0").replace('/', "~1");
        format!("{}/{name}", self.pointer)
    }

    /// An error at a field.
    pub(super) fn refuse<T>(&self, name: &str, message: &str) -> Result<T, TagError> {
        refuse(&self.at(name), format!("`{name}` {message}"))
    }

    /// A field that may be absent or null.
    pub(super) fn optional(&mut self, name: &str) -> Option<&'a Value> {
        self.nullable(name).filter(|value| **value != Value::Null)
    }

    /// A field that may be absent, and of which null is a value like any other.
    pub(super) fn nullable(&mut self, name: &str) -> Option<&'a Value> {
        let at = self.members.iter().position(|member| member.0 == name)?;
        self.taken[at] = true;
        Some(&self.members[at].1)
    }

    /// Takes fields as read.
    pub(super) fn take(&mut self, names: &[&str]) {
        for name in names {
            self.nullable(name);
        }
    }

    /// Takes all fields but some as read.
    pub(super) fn take_others(&mut self, but: &[&str]) {
        for ((name, _), taken) in self.members.iter().zip(&mut self.taken) {
            *taken |= !but.contains(&name.as_str());
        }
    }

    pub(super) fn required(&mut self, name: &str) -> Result<&'a Value, TagError> {
        match self.nullable(name) {
            Some(value) => Ok(value),
            None => refuse(self.pointer, self.missing(name)),
        }
    }

    /// The message for a field that is missing, with the field that may be it, mistyped.
    pub(super) fn missing(&self, name: &str) -> String {
        let left = self.members.iter().zip(&self.taken);
        let mut left = left.filter_map(|((other, _), taken)| (!taken).then_some(other));
        match left.find(|other| did_you_mean(other, [name]).is_some()) {
            Some(other) => format!(
                "the field `{name}` is missing; is `{}` meant to be it?",
                cut(other)
            ),
            None => format!("the field `{name}` is missing"),
        }
    }

    pub(super) fn string(&mut self, name: &str) -> Result<&'a str, TagError> {
        match self.required(name)? {
            Value::String(text) => Ok(text),
            other => self.refuse(name, &format!("must be a string, not {}", shown(other))),
        }
    }

    pub(super) fn array(&mut self, name: &str) -> Result<&'a [Value], TagError> {
        match self.required(name)? {
            Value::Array(items) => Ok(items),
            other => self.refuse(name, &format!("must be an array, not {}", shown(other))),
        }
    }

    /// An array with something in it; `what` it must hold is said.
    pub(super) fn filled_array(&mut self, name: &str, what: &str) -> Result<&'a [Value], TagError> {
        match self.array(name)? {
            [] => self.refuse(name, &format!("must hold at least one {what}")),
            items => Ok(items),
        }
    }

    /// An array that is not there where it is empty.
    pub(super) fn optional_array(&mut self, name: &str) -> Result<&'a [Value], TagError> {
        match self.optional(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => self.refuse(name, &format!("must be an array, not {}", shown(other))),
        }
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> Result<bool, TagError> {
        match self.optional(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                let message = format!("must be true or false, not {}", shown(other));
                self.refuse(name, &message)
            }
        }
    }

    /// A number of times, at most `max`.
    pub(super) fn count(&mut self, name: &str, max: u32) -> Result<Option<u32>, TagError> {
        self.count_or(name, max, "")
    }

    /// The same of a field that may also be something else, which is said in an error.
    pub(super) fn count_or(
        &mut self,
        name: &str,
        max: u32,
        otherwise: &str,
    ) -> Result<Option<u32>, TagError> {
        let value = self.optional(name);
        if let Some(Value::Number(text)) = value
            && let Ok(count) = text.parse::<u32>()
            && count <= max
        {
            return Ok(Some(count));
        }
        value.map_or(Ok(None), |value| {
            let value = shown(value);
            let message = format!("must be a whole number from 0 to {max}{otherwise}, not {value}");
            self.refuse(name, &message)
        })
    }

    /// Strings that aren't empty.
    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<Box<str>>, TagError> {
        let mut texts = Vec::new();
        for (index, item) in self.optional_array(name)?.iter().enumerate() {
            match item {
                Value::String(text) if !text.is_empty() => texts.push(text.as_str().into()),
                _ => {
                    let pointer = format!("{}/{index}", self.at(name));
                    let message = format!("`{name}` holds strings that are not empty");
                    return refuse(&pointer, message);
                }
            }
        }
        Ok(texts)
    }

    /// A field that was not read.
    pub(super) fn left(&self) -> Option<String> {
        let mut left = self.members.iter().zip(&self.taken);
        let (member, _) = left.find(|(_, taken)| !**taken)?;
        Some(member.0.clone())
    }

    /// Refuses what was not read.
    pub(super) fn finish(self) -> Result<(), TagError> {
        let left = self.members.iter().zip(&self.taken);
        match left.clone().find(|(_, taken)| !**taken) {
            None => Ok(()),
            Some(((name, _), _)) => refuse(
                &self.at(name),
                format!("the field `{}` is not known here", cut(name)),
            ),
        }
    }
}

/// A token by id or by text.
pub(super) fn token(value: &Value, pointer: &str) -> Result<TokenSet, TagError> {
    match value {
        Value::Number(text) => match text.parse::<u32>() {
            Ok(id) => Ok(TokenSet::of_id(id)),
            Err(_) => refuse(pointer, format!("`{}` is no token id", cut(text))),
        },
        Value::String(text) if !text.is_empty() => Ok(TokenSet::of_name(text)),
        other => refuse(
            pointer,
            format!(
                "a token is given by its id or its text, not by {}",
                shown(other)
            ),
        ),
    }
}

pub(super) fn refuse<T>(pointer: &str, message: impl Into<String>) -> Result<T, TagError> {
    Err(TagError::At {
        pointer: pointer.to_owned(),
        message: message.into(),
    })
}

/// A value, for an error.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "`null`".to_owned(),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(text) => format!("`{}`", cut(text)),
        Value::String(text) => format!("the string `{}`", cut(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
