//! JSON pointers of schemas, for messages.

use super::super::value::Value;
use super::registry::{Registry, address};

impl Registry {
    /// Where a schema is: the URI of its document, empty for the main one, and its JSON pointer.
    /// Searches the documents: for errors.
    pub(super) fn pointer(&self, schema: usize) -> (String, String) {
        let documents = (0..)
            .zip(&self.resources)
            .filter(|(id, r)| r.document == *id);
        for (id, resource) in documents {
            let uri = if id == 0 { "" } else { resource.base.as_str() };
            // Values with the place of the one around each, and the last token of its pointer.
            let mut seen: Vec<(&Value, usize, Token<'_>)> =
                vec![(&resource.root, 0, Token::Index(0))];
            let mut next = 0;
            while let Some(&(value, ..)) = seen.get(next) {
                match value {
                    Value::Object(members) if address(members) == schema => {
                        let mut tokens = Vec::new();
                        let mut at = next;
                        while at > 0 {
                            tokens.push(match seen[at].2 {
                                Token::Key(key) => escaped(key),
                                Token::Index(index) => index.to_string(),
                            });
                            at = seen[at].1;
                        }
                        tokens.push(String::new());
                        tokens.reverse();
                        return (uri.to_owned(), tokens.join("/"));
                    }
                    Value::Object(members) => {
                        let inner = members.iter();
                        seen.extend(inner.map(|(key, value)| (value, next, Token::Key(key))));
                    }
                    Value::Array(items) => {
                        let inner = items.iter().enumerate();
                        seen.extend(inner.map(|(at, value)| (value, next, Token::Index(at))));
                    }
                    _ => {}
                }
                next += 1;
            }
        }
        Default::default()
    }
}

/// A step of a JSON pointer.
#[derive(Clone, Copy)]
enum Token<'a> {
    Key(&'a str),
    Index(usize),
}

/// A key as a token of a JSON pointer, escaped when it is written.
pub(super) struct Key<'a>(pub(super) &'a str);

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escaped(self.0))
    }
}

/// A key as a token of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
