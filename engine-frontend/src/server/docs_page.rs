//! `/docs`, and `/` with `--no-ui`: pages for people.
//!
//! Both are made from the document that `/openapi.json` gives, by the server: they need no script and
//! nothing from elsewhere. The page that `/` has else is in `ui_files.rs`.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::error::json as json_response;
use super::openapi::document;
use super::state::AppState;
use super::ui_files::{has_ui, index, wants_html};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color-scheme:light dark}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid #8884}\
code{font-size:.9em;overflow-wrap:anywhere}h2{margin-top:2.5rem}td:first-child{width:30%}";

/// `GET /docs`: every route and every field, with its type and a description.
pub(super) async fn docs() -> Response {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    html(PAGE.get_or_init(|| docs_page(&document()).into()).clone())
}

/// `GET /`: what this server is and where to go on. For browsers the page in `ui_files.rs`, or with
/// `--no-ui` a few words; JSON for all else.
pub(super) async fn home(State(app): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    let links = Links {
        root: &app.args.root_path,
        has_docs: !app.args.disable_fastapi_docs,
    };
    let models = app.serving.served_model_names();
    if wants_html(&headers) {
        if has_ui(&app) {
            return index();
        }
        return html(home_page(models, &links).into());
    }
    json_response(StatusCode::OK, &home_json(models, &links))
}

/// Where the pages of this server are.
struct Links<'a> {
    /// Before each path: `--root-path`.
    root: &'a str,
    /// False with `--disable-fastapi-docs`.
    has_docs: bool,
}

impl Links<'_> {
    fn to(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }
}

fn home_json(models: &[String], links: &Links) -> Value {
    let mut home = json!({
        "name": "formwork",
        "version": protocol::BUILD_VERSION,
        "models": models,
        "api": links.to("/v1"),
    });
    if let (true, Some(home)) = (links.has_docs, home.as_object_mut()) {
        home.insert("docs".to_owned(), links.to("/docs").into());
        home.insert("openapi".to_owned(), links.to("/openapi.json").into());
    }
    home
}

fn home_page(models: &[String], links: &Links) -> String {
    let models: Vec<String> = models.iter().map(|model| code(model)).collect();
    let mut body = format!(
        "<h1>Formwork</h1><p>An inference server with the OpenAI API. Its answers can be held to a \
         JSON schema, a pattern, a choice or a grammar.</p><p>Version {}. It serves {}.</p>\
         <p>Programs use the address of this page with <code>{}</code> as their base URL.</p>",
        escape(protocol::BUILD_VERSION),
        models.join(", "),
        escape(&links.to("/v1")),
    );
    if links.has_docs {
        let _ = write!(
            body,
            "<p><a href=\"{}\">Every route and field</a>, and the same as \
             <a href=\"{}\">OpenAPI</a>.</p>",
            escape(&links.to("/docs")),
            escape(&links.to("/openapi.json")),
        );
    }
    page("Formwork", &body)
}

/// The document as a page.
fn docs_page(document: &Value) -> String {
    let text = |pointer| document.pointer(pointer).and_then(Value::as_str);
    let mut body = format!(
        "<h1>Formwork's API</h1><p>Version {}. {}</p>",
        escape(text("/info/version").unwrap_or_default()),
        escape(text("/info/description").unwrap_or_default()),
    );
    for (path, methods) in members(document, "/paths") {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            write_operation(&mut body, path, method, operation);
        }
    }
    for (name, component) in members(document, "/components/schemas") {
        let name = escape(name);
        let _ = write!(body, "<h2 id=\"{name}\">{name}</h2>");
        write_fields(&mut body, component);
    }
    page("Formwork's API", &body)
}

fn write_operation(body: &mut String, path: &str, method: &str, operation: &Value) {
    let summary = operation.get("summary").and_then(Value::as_str);
    let _ = write!(
        body,
        "<h2>{} {}</h2><p>{}.",
        method.to_uppercase(),
        code(path),
        escape(summary.unwrap_or_default()),
    );
    let json = "content/application~1json/schema";
    for (label, pointer) in [
        ("Takes", format!("/requestBody/{json}")),
        ("Gives", format!("/responses/200/{json}")),
    ] {
        if let Some(schema) = operation.pointer(&pointer) {
            let _ = write!(body, " {label} {}.", type_of(schema));
        }
    }
    body.push_str("</p>");
}

/// A table of a component's fields, or its type where it has none.
fn write_fields(body: &mut String, component: &Value) {
    let mut rows = String::new();
    write_rows(&mut rows, "", component);
    if rows.is_empty() {
        let _ = write!(body, "<p>{}</p>", type_of(component));
        return;
    }
    let _ = write!(
        body,
        "<table><tr><th>Field</th><th>Type</th><th></th></tr>{rows}</table>"
    );
}

/// A row for each field of a schema, and for those inside of it.
fn write_rows(rows: &mut String, prefix: &str, schema: &Value) {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in members(schema, "/properties") {
        let path = format!("{prefix}{name}");
        let text = field.get("description").and_then(Value::as_str);
        let _ = write!(
            rows,
            "<tr><td>{}{}</td><td>{}</td><td>{}</td></tr>",
            code(&path),
            match required.contains(&name.as_str()) {
                true => " (required)",
                false => "",
            },
            type_of(field),
            escape(text.unwrap_or_default()),
        );
        write_rows(rows, &format!("{path}."), field);
    }
    for keyword in ["anyOf", "allOf"] {
        for part in schema
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            write_rows(rows, prefix, part);
        }
    }
    if let Some(items) = schema.get("items") {
        write_rows(rows, prefix, items);
    }
}

/// A schema in a few words.
fn type_of(schema: &Value) -> String {
    let name = schema.get("$ref").and_then(Value::as_str);
    if let Some(name) = name.and_then(|target| target.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    if let Some(value) = schema.get("const") {
        return code(&value.to_string());
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values
            .iter()
            .map(|value| code(&value.to_string()))
            .collect();
        return values.join(", ");
    }
    for keyword in ["anyOf", "allOf"] {
        if let Some(parts) = schema.get(keyword).and_then(Value::as_array) {
            let mut parts: Vec<String> = parts
                .iter()
                .filter(|part| part.get("type").is_none_or(|kind| kind != "null"))
                .map(type_of)
                .collect();
            parts.dedup();
            return parts.join(" or ");
        }
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        _ => "anything".to_owned(),
    };
    match (kind.as_str(), schema.get("items")) {
        ("array", Some(items)) => format!("list of {}", type_of(items)),
        _ => format!("{kind}{}", range(schema)),
    }
}

/// The bounds of a number, where somebody may meet them.
fn range(schema: &Value) -> String {
    /// Bounds from here on are those of the type.
    const ANY: f64 = u32::MAX as f64;
    let bound = |keyword: &str| {
        let bound = schema.get(keyword)?;
        (bound.as_f64()?.abs() < ANY).then(|| bound.to_string())
    };
    let low = bound("minimum").map(|low| format!(" from {low}"));
    let low = low.or_else(|| bound("exclusiveMinimum").map(|low| format!(" above {low}")));
    let high = bound("maximum").map(|high| format!(" to {high}"));
    format!("{}{}", low.unwrap_or_default(), high.unwrap_or_default())
}

fn members<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let members = value.pointer(pointer).and_then(Value::as_object);
    members.into_iter().flat_map(Map::iter)
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// Text as HTML has it, also inside of quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            char => escaped.push(char),
        }
    }
    escaped
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>",
    )
}

fn html(page: Bytes) -> Response {
    let mut response = Response::new(Body::from(page));
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        // The page is its own style and nothing else.
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'",
        ),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_row_with_its_type_and_description() {
        let page = docs_page(&document());
        for row in [
            "<td><code>temperature</code></td><td>number from 0 to 2</td><td>How freely tokens",
            "<td><code>messages</code> (required)</td><td>list of <a \
             href=\"#ChatMessageParam\">ChatMessageParam</a></td>",
            "<td><code>stream_options.include_usage</code></td><td>boolean</td>",
            "<td><code>truncation_side</code></td><td><code>&quot;left&quot;</code>, \
             <code>&quot;right&quot;</code></td>",
            "<h2>POST <code>/v1/responses</code></h2>",
            "<h2>POST <code>/v1/messages/count_tokens</code></h2>",
        ] {
            assert!(page.contains(row), "{row}");
        }
        assert!(!page.contains("<td></td></tr>"), "a row without words");
        for link in page.split("href=\"#").skip(1) {
            let name = link.split('"').next().unwrap_or_default();
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn names_cannot_write_html() {
        let links = Links {
            root: "/a\"b",
            has_docs: true,
        };
        let page = home_page(&["<script>&".to_owned()], &links);
        assert!(page.contains("<code>&lt;script&gt;&amp;</code>"), "{page}");
        assert!(page.contains("href=\"/a&quot;b/docs\""), "{page}");
    }

    #[test]
    fn without_docs_there_is_no_way_to_them() {
        let links = Links {
            root: "",
            has_docs: false,
        };
        let models = ["m".to_owned()];
        assert!(!home_page(&models, &links).contains("href"));
        let home = home_json(&models, &links);
        assert_eq!(home.get("docs"), None);
        assert_eq!(home["models"], json!(["m"]));
        assert_eq!(home["api"], "/v1");
    }
}
