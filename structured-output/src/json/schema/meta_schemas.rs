//! The meta-schemas of the drafts, so that a schema may refer to them.

/// The meta-schemas that a URI may be of: a JSON array of schemas with ids.
///
/// The files are those of the specification (json-schema.org), which its authors give under the BSD
/// 3-clause licence (`meta/LICENSE`) or the Academic Free License 3.0.
pub(super) fn of_uri(uri: &str) -> Option<&'static str> {
    let rest = uri
        .strip_prefix("http://")
        .or_else(|| uri.strip_prefix("https://"))?
        .strip_prefix("json-schema.org/")?;
    Some(match rest {
        "draft-04/schema" => include_str!("meta/draft-04.json"),
        "draft-06/schema" => include_str!("meta/draft-06.json"),
        "draft-07/schema" => include_str!("meta/draft-07.json"),
        _ if rest.starts_with("draft/2019-09/") => include_str!("meta/2019-09.json"),
        _ if rest.starts_with("draft/2020-12/") => include_str!("meta/2020-12.json"),
        _ => return None,
    })
}
