//! Requests that web pages make in somebody's browser. A page that nobody trusts can reach a server that
//! asks for no key, wherever its firewall stands: by requests to it from another site, or, where its own
//! name is made to lead here (DNS rebinding), as if both were one site.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN, REFERER, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::args::ServerArgs;
use super::authenticate::{Need, is_basic, need};
use super::error::ApiError;
use super::middleware::is_allowed_origin;
use super::state::AppState;
use crate::error::cut_short;

/// Of pages at `https:` and at localhost.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests of pages that aren't allowed, where there are no keys.
pub(super) async fn check_browser(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    // A probe tells a page nothing.
    if need(request.uri().path()) == Need::Nothing {
        return next.run(request).await;
    }
    // No page reaches a Unix domain socket.
    if app.args.uds.is_some() {
        return next.run(request).await;
    }
    let headers = request.headers();
    let checked = match app.keys.are_required() {
        false => check(&app.args, &app.own_names, headers),
        // A browser adds the key that its user typed to requests of any page.
        true if is_basic(headers) => check_site(&app.args, headers),
        // No page has another.
        true => Ok(()),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Checks `Origin`, and of a page's requests to its own site, which have none or that of the site, `Host`.
fn check(args: &ServerArgs, own_names: &[String], headers: &HeaderMap) -> Result<(), ApiError> {
    if let Some(origin) = headers.get(ORIGIN)
        && !is_of_host(origin, headers)
    {
        if is_allowed_origin(args, origin) {
            return Ok(());
        }
        let origin = String::from_utf8_lossy(origin.as_bytes());
        return Err(forbidden(format!(
            "the header Origin must be one of --allowed-origins, got {:?}",
            cut_short(&origin)
        )));
    }
    check_host(args, own_names, headers)
}

/// Refuses a request of a page of another site, unless `--allowed-origins` names that.
fn check_site(args: &ServerArgs, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let is_named = args
        .allowed_origins
        .iter()
        .any(|name| name.as_bytes() == origin.as_bytes());
    if is_of_host(origin, headers) || is_named {
        return Ok(());
    }
    Err(forbidden(format!(
        "a page of another site must bring the key as \"Bearer KEY\", or be named by --allowed-origins; its \
         header Origin is {:?}",
        cut_short(&String::from_utf8_lossy(origin.as_bytes()))
    )))
}

/// True where a page makes a request, rather than a browser's user or another program.
pub(super) fn is_of_page(headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE);
    headers.contains_key(ORIGIN) || site.is_some_and(|site| site != "none")
}

/// Refuses a browser's request by a name that isn't the server's, and a name that comes twice (RFC 9112, 3.2).
pub(super) fn check_host(
    args: &ServerArgs,
    own_names: &[String],
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(ApiError::bad_request("the header Host must come once"));
    }
    let Some(host) = headers.get(HOST).filter(|_| is_of_browser(headers)) else {
        return Ok(());
    };
    let host = String::from_utf8_lossy(host.as_bytes());
    let any = ["*".to_owned()];
    let is_any = args.allowed_origins[..] == any || args.allowed_hosts[..] == any;
    if is_any || is_own_host(&host, own_names) || is_own_host(&host, &args.allowed_hosts) {
        return Ok(());
    }
    Err(forbidden(format!(
        "the header Host of a browser's request must be an IP address, localhost, this machine's name or \
         one of --allowed-hosts, got {:?}",
        cut_short(&host)
    )))
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, message)
}

/// True if a request's page is of the site that it asks.
fn is_of_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let origin = origin.as_bytes();
    let site = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    site.zip(host)
        .is_some_and(|(site, host)| site.eq_ignore_ascii_case(host))
}

/// True for browsers; other programs are led nowhere by a page. Browsers leave `Sec-Fetch-Site` out at
/// `http:`, where a page can hide `Referer` but, in most, not `User-Agent`. PowerShell says `Mozilla` too.
fn is_of_browser(headers: &HeaderMap) -> bool {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    headers.contains_key(SEC_FETCH_SITE)
        || headers.contains_key(ORIGIN)
        || headers.contains_key(REFERER)
        || agent
            .is_some_and(|agent| agent.starts_with("Mozilla/") && !agent.contains("PowerShell/"))
}

/// True for an address, which no page has for its name, for localhost and for these names.
fn is_own_host(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// This machine's name, also as it is known in its network without a name server.
pub(super) fn own_names() -> Vec<String> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    vec![name.to_string(), format!("{name}.local")]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ServerArgs,
    }

    fn status(flags: &[&str], headers: &[(&str, &str)]) -> u16 {
        let args = Command::parse_from([&["serve"], flags].concat()).args;
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name: HeaderName = name.parse().unwrap();
                (name, value.parse().unwrap())
            })
            .fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            });
        let own_names = ["gpu1".to_owned(), "gpu1.local".to_owned()];
        check(&args, &own_names, &headers).map_or_else(|error| error.0.error.code, |()| 200)
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:8000");
        let evil = ("origin", "https://evil.example");
        assert_eq!(status(&[], &[host, evil]), 403);
        assert_eq!(status(&[], &[host, ("origin", "null")]), 403);
        // A rebound name: page and server are one site for the browser.
        let rebound = [("host", "evil.example"), ("origin", "http://evil.example")];
        assert_eq!(status(&[], &rebound), 403);
        // A page of the server's own.
        let own = ("origin", "http://127.0.0.1:8000");
        assert_eq!(status(&[], &[host, own]), 200);
        let other_port = ("origin", "http://127.0.0.1:3000");
        assert_eq!(status(&[], &[host, other_port]), 403);
        let app = ["--allowed-origins", "[\"https://app.example\"]"];
        assert_eq!(status(&app, &[host, evil]), 403);
        let allowed = ("origin", "https://app.example");
        assert_eq!(status(&app, &[("host", "llm.example"), allowed]), 200);
        assert_eq!(
            status(&["--allowed-origins", "[\"*\"]"], &[host, evil]),
            200
        );
    }

    #[test]
    fn a_browser_must_call_the_server_by_a_name_of_its_own() {
        let agent = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        let signs = [
            agent,
            ("sec-fetch-site", "same-origin"),
            ("referer", "http://evil.example/"),
        ];
        for sign in signs {
            assert_eq!(status(&[], &[("host", "evil.example:8000"), sign]), 403);
            assert_eq!(status(&[], &[("host", "gpu1.evil.example"), sign]), 403);
            for own in [
                "127.0.0.1:8000",
                "192.168.1.7",
                "[::1]:8000",
                "localhost:8000",
                "LocalHost",
                "gpu1:8000",
                "gpu1.local",
            ] {
                assert_eq!(status(&[], &[("host", own), sign]), 200, "{own}");
            }
        }
        let public = ("host", "llm.example");
        let allowed = ["--allowed-hosts", "[\"llm.example\"]"];
        assert_eq!(status(&allowed, &[public, agent]), 200);
        assert_eq!(
            status(&["--allowed-hosts", "[\"*\"]"], &[public, agent]),
            200
        );
    }

    #[test]
    fn a_host_comes_once_and_a_page_is_told_from_its_reader() {
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&[], &twice), 400);
        let is_page = |name: HeaderName, value: &'static str| {
            is_of_page(&HeaderMap::from_iter([(
                name,
                HeaderValue::from_static(value),
            )]))
        };
        assert!(is_page(ORIGIN, "null"));
        assert!(is_page(SEC_FETCH_SITE, "cross-site"));
        assert!(is_page(SEC_FETCH_SITE, "same-site"));
        // Typed into the browser's bar; another program.
        assert!(!is_page(SEC_FETCH_SITE, "none"));
        assert!(!is_page(USER_AGENT, "curl/8.5.0"));
    }

    #[test]
    fn other_programs_may_call_the_server_by_any_name() {
        for agent in [
            "curl/8.5.0",
            "OpenAI/Python 1.99",
            "kube-probe/1.33",
            "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1",
        ] {
            for host in ["formwork:8000", "formwork.default.svc.cluster.local", "x"] {
                assert_eq!(status(&[], &[("host", host), ("user-agent", agent)]), 200);
            }
        }
        assert_eq!(status(&[], &[]), 200);
    }
}
