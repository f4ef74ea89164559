//! URI references, resolved as RFC 3986, section 5.2, says.

/// The parts of a URI reference before its fragment.
#[derive(Default)]
struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = Self::default();
        let mut rest = text;
        if let Some((scheme, after)) = text.split_once(':') {
            let mut bytes = scheme.bytes();
            let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
            if first && bytes.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
                parts.scheme = Some(scheme);
                rest = after;
            }
        }
        if let Some((before, query)) = rest.split_once('?') {
            parts.query = Some(query);
            rest = before;
        }
        if let Some(after) = rest.strip_prefix("//") {
            let end = after.find('/').unwrap_or(after.len());
            parts.authority = Some(&after[..end]);
            rest = &after[end..];
        }
        parts.path = rest;
        parts
    }
}

/// A reference's URI and fragment, the latter empty where there is none.
pub(super) fn split_fragment(reference: &str) -> (&str, &str) {
    reference.split_once('#').unwrap_or((reference, ""))
}

/// The URI, without fragment, that a reference without fragment stands for under a base URI.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    if reference.is_empty() {
        return base.to_owned();
    }
    let given = Parts::of(reference);
    if given.scheme.is_some() {
        return compose(&given, &without_dots(given.path));
    }
    let base = Parts::of(base);
    let mut target = Parts {
        scheme: base.scheme,
        ..given
    };
    if target.authority.is_some() {
        return compose(&target, &without_dots(target.path));
    }
    target.authority = base.authority;
    if target.path.is_empty() {
        target.query = target.query.or(base.query);
        return compose(&target, base.path);
    }
    if target.path.starts_with('/') {
        return compose(&target, &without_dots(target.path));
    }
    let folder = match base.path.rfind('/') {
        Some(slash) => &base.path[..=slash],
        None if base.authority.is_some() => "/",
        None => "",
    };
    let merged = format!("{folder}{}", target.path);
    compose(&target, &without_dots(&merged))
}

fn compose(parts: &Parts<'_>, path: &str) -> String {
    let mut uri = String::new();
    if let Some(scheme) = parts.scheme {
        uri.push_str(scheme);
        uri.push(':');
    }
    if let Some(authority) = parts.authority {
        uri.push_str("//");
        uri.push_str(authority);
    }
    uri.push_str(path);
    if let Some(query) = parts.query {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}

/// A path without its `.` and `..` segments.
fn without_dots(path: &str) -> String {
    if !path.contains('.') {
        return path.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => {
                // The empty one before a leading slash stays.
                if kept.len() > 1 || kept.first().is_some_and(|first| !first.is_empty()) {
                    kept.pop();
                }
            }
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if last {
            kept.push("");
        }
    }
    kept.join("/")
}

/// A text with its `%XX` decoded; `None` where that is malformed or no UTF-8.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            bytes.push((digit(rest.next())? * 16 + digit(rest.next())?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3986, section 5.4, without fragments.
    #[test]
    fn references_are_resolved() {
        let base = "http://a/b/c/d;p?q";
        let cases = [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
        ];
        for (reference, uri) in cases {
            assert_eq!(resolve(base, reference), uri, "{reference}");
        }
        assert_eq!(resolve("", "a/b.json"), "a/b.json");
        assert_eq!(resolve("urn:uuid:1-2", ""), "urn:uuid:1-2");
        assert_eq!(resolve("http://a", "b"), "http://a/b");
    }

    #[test]
    fn percent_signs_are_decoded() {
        assert_eq!(percent_decoded("a%25%c3%A9").as_deref(), Some("a%é"));
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(percent_decoded(bad), None);
        }
    }
}
