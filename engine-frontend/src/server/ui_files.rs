//! The page for people at `/`, and its files under `/ui/`: they are part of the executable, and nothing comes
//! from elsewhere.
//!
//! The page is a client of the API like any other. Where there are keys it is given to whoever has one: the
//! browser asks for it (HTTP's `Basic`), and sends it with the page's requests.

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::not_found;
use super::state::AppState;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The page's own files, and requests to this server.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A file of the folder `ui`.
macro_rules! ui_file {
    ($name:literal, $content_type:ident) => {
        UiFile {
            name: $name,
            content_type: $content_type,
            text: include_str!(concat!("ui/", $name)),
        }
    };
}

/// The page.
const INDEX: UiFile = ui_file!("index.html", HTML);

/// What the page loads. A file of the folder that isn't here doesn't exist for it; a test tells.
const FILES: &[UiFile] = &[
    ui_file!("answers.js", SCRIPT),
    ui_file!("api.js", SCRIPT),
    ui_file!("app.js", SCRIPT),
    ui_file!("chat.js", SCRIPT),
    ui_file!("constraint.js", SCRIPT),
    ui_file!("dom.js", SCRIPT),
    ui_file!("editor.js", SCRIPT),
    ui_file!("engine.js", SCRIPT),
    ui_file!("examples.js", SCRIPT),
    ui_file!("fit.js", SCRIPT),
    ui_file!("inspect.js", SCRIPT),
    ui_file!("json_places.js", SCRIPT),
    ui_file!("plot.js", SCRIPT),
    ui_file!("style.css", STYLE),
    ui_file!("token.js", SCRIPT),
    ui_file!("watch.js", SCRIPT),
    ui_file!("whynot.js", SCRIPT),
];

/// A file of the page.
struct UiFile {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

impl UiFile {
    fn response(&self) -> Response {
        let mut response = Response::new(Body::from(Bytes::from_static(self.text.as_bytes())));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        // After an update of the server no old file meets a new one.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let no_sniff = HeaderValue::from_static("nosniff");
        headers.insert(X_CONTENT_TYPE_OPTIONS, no_sniff);
        response
    }
}

/// True if the server has the page. With `--open-routes` it hasn't: nobody is asked for a key at `/`, and
/// without one the page could do nothing.
pub(super) fn has_ui(app: &AppState) -> bool {
    let without_key = app.keys.are_required() && app.args.access.open_routes;
    !app.args.no_ui && !without_key
}

/// The page.
pub(super) fn index() -> Response {
    INDEX.response()
}

/// `GET /ui/{file}`.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.response(),
        None => not_found().await.into_response(),
    }
}

/// True where a browser asks for a page, rather than a program for JSON.
pub(super) fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// True for what a browser's user, who has a key, may be asked for it.
pub(super) fn is_page(app: &AppState, path: &str, headers: &HeaderMap) -> bool {
    has_ui(app) && ((path == "/" && wants_html(headers)) || path.starts_with("/ui/"))
}

/// Leads from `--root-path` to the folder of that name, to which the page's addresses are relative.
pub(super) async fn to_folder(
    State(root): State<String>,
    request: Request,
    next: Next,
) -> Response {
    let is_root = request.uri().path() == root && request.method() == Method::GET;
    if !is_root || !wants_html(request.headers()) {
        return next.run(request).await;
    }
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    if let Ok(folder) = HeaderValue::try_from(format!("{root}/")) {
        response.headers_mut().insert(LOCATION, folder);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/ui");
        let found: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let known = FILES
            .iter()
            .chain([&INDEX])
            .map(|file| file.name.to_owned());
        assert_eq!(found, known.collect());
    }

    #[test]
    fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let files = || FILES.iter().chain([&INDEX]);
        let size: usize = files().map(|file| file.text.len()).sum();
        assert!(size < 150_000, "{size} bytes");
        for file in files() {
            for address in [
                "src=\"http",
                "href=\"http",
                "src=\"/",
                "href=\"/",
                "@import",
                "url(http",
            ] {
                assert!(!file.text.contains(address), "{}: {address}", file.name);
            }
        }
    }
}
