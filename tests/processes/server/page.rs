//! The page for people at `/`, and its files.

use super::client::{Answer, start};
use super::support::Server;

const BROWSER: &str = "Accept: text/html,application/xhtml+xml\r\n";
/// `user:k` and `user:x`, as a browser brings a password.
const WITH_KEY: &str = "Authorization: Basic dXNlcjpr\r\n";
const WITH_WRONG_KEY: &str = "Authorization: Basic dXNlcjp4\r\n";

fn get(server: &Server, path: &str, headers: &str) -> Answer {
    start(&server.address, "GET", path, headers, b"").finish()
}

#[test]
fn the_page_comes_with_a_policy_and_loads_its_own_files_alone() {
    let server = Server::shared();
    let page = get(server, "/", BROWSER);
    assert_eq!(page.status, 200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    for (path, kind) in [
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/style.css", "text/css; charset=utf-8"),
    ] {
        assert!(page.body.contains(&path[1..]), "{path}");
        let file = get(server, path, "");
        assert_eq!(
            (file.status, file.headers["content-type"].as_str()),
            (200, kind)
        );
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        let policy = &file.headers["content-security-policy"];
        assert_eq!(policy, &page.headers["content-security-policy"]);
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "));
        assert!(policy.contains("connect-src 'self'") && !policy.contains("unsafe"));
    }
    for path in [
        "/ui/",
        "/ui/nothing.js",
        "/ui/../Cargo.toml",
        "/ui/%2e%2e/app.js",
    ] {
        assert_eq!(get(server, path, "").status, 404, "{path}");
    }
    // Programs get JSON as ever.
    assert_eq!(
        get(server, "/", "Accept: */*\r\n").json()["name"],
        "formwork"
    );
}

#[test]
fn the_page_can_be_left_out() {
    let server = Server::start(&["--no-ui"]);
    let page = get(&server, "/", BROWSER);
    assert!(page.body.contains("<a href=\"/docs\">"), "{}", page.body);
    assert_eq!(get(&server, "/ui/app.js", "").status, 404);
}

#[test]
fn where_there_are_keys_the_page_asks_for_one() {
    let server = Server::start(&["--api-key", "k"]);
    for path in ["/", "/ui/app.js", "/ui/style.css"] {
        for wrong in ["", WITH_WRONG_KEY] {
            let refused = get(&server, path, &format!("{BROWSER}{wrong}"));
            assert_eq!(refused.status, 401, "{path}");
            assert!(refused.headers["www-authenticate"].starts_with("Basic realm="));
        }
        let given = get(&server, path, &format!("{BROWSER}{WITH_KEY}"));
        assert_eq!(given.status, 200, "{path}");
        let bearer = get(
            &server,
            path,
            &format!("{BROWSER}Authorization: Bearer k\r\n"),
        );
        assert_eq!(bearer.status, 200, "{path}");
    }
    // What a program, or the page itself, asks for opens no window.
    for path in ["/", "/v1/models", "/metrics"] {
        let refused = get(&server, path, "");
        assert_eq!(
            (refused.status, refused.headers["www-authenticate"].as_str()),
            (401, "Bearer")
        );
        assert_eq!(get(&server, path, WITH_KEY).status, 200, "{path}");
    }
}

/// A browser adds the password to whatever page asks.
#[test]
fn pages_of_other_sites_have_no_use_of_a_key_that_the_browser_keeps() {
    let server = Server::start(&[
        "--api-key",
        "k",
        "--allowed-origins",
        "[\"https://a.example\"]",
    ]);
    let ask = |origin: &str, key: &str| {
        let headers = format!("Origin: {origin}\r\n{key}Content-Type: text/plain\r\n");
        let body = b"{\"prompt\": \"a\"}";
        start(&server.address, "POST", "/tokenize", &headers, body)
            .finish()
            .status
    };
    for evil in ["http://evil.example", "null"] {
        assert_eq!(ask(evil, WITH_KEY), 403);
    }
    for own in ["http://x", "https://a.example"] {
        assert_ne!(ask(own, WITH_KEY), 403, "{own}");
    }
    // Whoever has the key itself may use it anywhere.
    assert_ne!(
        ask("http://evil.example", "Authorization: Bearer k\r\n"),
        403
    );
}

#[test]
fn under_a_root_path_the_page_stands_in_its_folder() {
    let server = Server::start(&["--root-path", "/llm"]);
    let led = get(&server, "/llm", BROWSER);
    assert_eq!(
        (led.status, led.headers["location"].as_str()),
        (307, "/llm/")
    );
    assert_eq!(get(&server, "/llm", "").json()["docs"], "/llm/docs");
    for path in ["/llm/", "/llm/ui/app.js", "/", "/ui/app.js"] {
        let headers = if path.ends_with('/') { BROWSER } else { "" };
        assert_eq!(get(&server, path, headers).status, 200, "{path}");
    }
}

#[test]
fn where_only_the_api_asks_for_a_key_there_is_no_page() {
    let server = Server::start(&["--api-key", "k", "--open-routes"]);
    assert!(
        get(&server, "/", BROWSER)
            .body
            .contains("<a href=\"/docs\">")
    );
    assert_eq!(get(&server, "/ui/app.js", "").status, 404);
}
