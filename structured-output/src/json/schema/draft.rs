//! Drafts of JSON Schema: which keywords each knows.

use super::super::value::Value;
use crate::options::Draft;

impl Draft {
    /// The names of drafts.
    pub(in crate::json) const NAMES: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("4", Self::Draft4),
        ("6", Self::Draft6),
        ("7", Self::Draft7),
        ("2019-09", Self::Draft2019_09),
        ("2020-12", Self::Draft2020_12),
    ];

    /// The draft of a name: `auto`, `4`, `6`, `7`, `2019-09`, `2020-12`.
    pub fn named(name: &str) -> Option<Self> {
        crate::json::named(name, &Self::NAMES)
    }

    /// The draft that a schema's `$schema` names, if it is one of these.
    pub fn of_schema_uri(uri: &str) -> Option<Self> {
        Self::of_meta_schema(uri.strip_suffix('#').unwrap_or(uri))
    }

    /// Whether a keyword means something in this draft. What no draft has is not asked for.
    pub fn knows(self, keyword: &str) -> bool {
        Dialect::of(self).knows(keyword)
    }

    /// Whether assertions beside `$ref` are ignored.
    pub fn ref_hides_siblings(self) -> bool {
        Dialect::of(self).ref_hides_siblings()
    }

    /// The draft whose meta-schema has this URI, without an empty fragment.
    pub(super) fn of_meta_schema(uri: &str) -> Option<Self> {
        let rest = uri
            .strip_prefix("http://")
            .or_else(|| uri.strip_prefix("https://"))?;
        Some(match rest.strip_prefix("json-schema.org/")? {
            "draft-04/schema" => Self::Draft4,
            "draft-06/schema" => Self::Draft6,
            "draft-07/schema" => Self::Draft7,
            "draft/2019-09/schema" => Self::Draft2019_09,
            "draft/2020-12/schema" => Self::Draft2020_12,
            // The newest of its time.
            "schema" => Self::Auto,
            _ => return None,
        })
    }
}

/// How the schemas of a resource are read: by a draft, less what its `$vocabulary` leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) draft: Draft,
    /// Assertions (`type`, `minimum`, ...) are known.
    pub(super) validation: bool,
    /// Applicators (`properties`, `allOf`, ...) are known.
    pub(super) applicator: bool,
    /// `unevaluatedItems` and `unevaluatedProperties` are known.
    pub(super) unevaluated: bool,
}

impl Dialect {
    pub(super) fn of(draft: Draft) -> Self {
        Self {
            draft,
            validation: true,
            applicator: true,
            unevaluated: true,
        }
    }

    /// The dialect of a meta-schema with `$vocabulary`; the URI of a vocabulary that must be known
    /// but isn't, else.
    pub(super) fn of_vocabularies(
        draft: Draft,
        vocabularies: &[(String, Value)],
    ) -> Result<Self, String> {
        let mut dialect = Self {
            draft,
            validation: false,
            applicator: false,
            unevaluated: false,
        };
        for (uri, required) in vocabularies {
            let known = uri
                .strip_prefix("https://json-schema.org/draft/2020-12/vocab/")
                .or_else(|| uri.strip_prefix("https://json-schema.org/draft/2019-09/vocab/"));
            match known {
                Some("validation") => dialect.validation = true,
                Some("applicator") => {
                    dialect.applicator = true;
                    // 2019-09 has them in one.
                    dialect.unevaluated |= uri.contains("2019-09");
                }
                Some("unevaluated") => dialect.unevaluated = true,
                Some(_) => {}
                None if *required == Value::Bool(true) => return Err(uri.clone()),
                None => {}
            }
        }
        Ok(dialect)
    }

    /// Whether the draft is one of a span. `Auto` knows all that any draft knows.
    fn within(self, first: Draft, last: Draft) -> bool {
        self.draft == Draft::Auto || (first <= self.draft && self.draft <= last)
    }

    /// Whether the draft is this one or later.
    pub(super) fn since(self, first: Draft) -> bool {
        self.within(first, Draft::Draft2020_12)
    }

    /// Whether a keyword means something in this dialect. What no draft knows is not asked for.
    pub(super) fn knows(self, keyword: &str) -> bool {
        use Draft::{Draft4, Draft6, Draft7, Draft2019_09, Draft2020_12};
        match keyword {
            "properties"
            | "patternProperties"
            | "additionalProperties"
            | "items"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "not" => self.applicator,
            "contains" | "propertyNames" => self.applicator && self.since(Draft6),
            "if" | "then" | "else" => self.applicator && self.since(Draft7),
            "dependentSchemas" => self.applicator && self.since(Draft2019_09),
            "prefixItems" => self.applicator && self.since(Draft2020_12),
            "additionalItems" => self.applicator && self.within(Draft4, Draft2019_09),
            // Later drafts let it go on to mean what it did.
            "dependencies" => true,
            "unevaluatedItems" | "unevaluatedProperties" => {
                self.unevaluated && self.since(Draft2019_09)
            }
            "const" => self.validation && self.since(Draft6),
            "minContains" | "maxContains" | "dependentRequired" => {
                self.validation && self.since(Draft2019_09)
            }
            "type" | "enum" | "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum"
            | "exclusiveMaximum" | "minLength" | "maxLength" | "pattern" | "minItems"
            | "maxItems" | "uniqueItems" | "minProperties" | "maxProperties" | "required" => {
                self.validation
            }
            "$recursiveRef" => self.within(Draft2019_09, Draft2019_09),
            "$defs" => self.since(Draft2019_09),
            "$dynamicRef" => self.since(Draft2020_12),
            _ => true,
        }
    }

    /// Whether `1.0` is an `integer`. Draft 4 (section 3.5 of its core) counts only numbers without a
    /// fraction, zeros or not; later drafts go by value.
    pub(super) fn integers_have_a_fraction(self) -> bool {
        self.draft != Draft::Draft4
    }

    /// Whether assertions beside `$ref` are ignored.
    pub(super) fn ref_hides_siblings(self) -> bool {
        matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
    }

    /// What a schema calls itself: `$id`, or `id` in draft 4.
    pub(super) fn id(self, schema: &[(String, Value)]) -> Option<&str> {
        if self.ref_hides_siblings() && member(schema, "$ref").is_some() {
            return None;
        }
        let id = match self.draft {
            Draft::Draft4 => member(schema, "id"),
            Draft::Auto => member(schema, "$id").or_else(|| member(schema, "id")),
            _ => member(schema, "$id"),
        };
        match id {
            Some(Value::String(id)) => Some(id),
            _ => None,
        }
    }
}

/// A member of an object.
pub(super) fn member<'a>(members: &'a [(String, Value)], key: &str) -> Option<&'a Value> {
    members.iter().find(|m| m.0 == key).map(|m| &m.1)
}
