//! What a person at a terminal may do with a server that is ready.

use engine_frontend::server::ServerArgs;

/// A question whose answer is held to two words.
const BODY: &str = r#"{"messages": [{"role": "user", "content": "Is this good or bad? What a lovely day!"}], "structured_outputs": {"choice": ["good", "bad"]}}"#;

/// The page's address and a command that works as it stands, a line each.
pub(crate) fn first_steps(address: &str, server: &ServerArgs) -> String {
    // All addresses are none to go to.
    let address = address
        .replace("://0.0.0.0:", "://127.0.0.1:")
        .replace("://[::]:", "://[::1]:");
    let socket = address.strip_prefix("unix:").map(quoted);
    let page = match socket.is_none() && !server.no_ui {
        true => format!("page       {address}/\n"),
        false => String::new(),
    };
    // A client's own certificate is not known here.
    if server.ssl_ca_certs.is_some() {
        return page;
    }
    let mut curl = "curl".to_owned();
    if let Some(path) = &server.ssl_certfile {
        curl += &format!(" --cacert {}", quoted(&path.display().to_string()));
    }
    let mut note = "";
    if server.access.has_keys() {
        curl += " -H \"Authorization: Bearer $FORMWORK_API_KEY\"";
        note = "           (FORMWORK_API_KEY is to hold one of the keys; the page asks for one as a password)\n";
    }
    let address = match socket {
        Some(path) => {
            curl += &format!(" --unix-socket {path}");
            "http://localhost".to_owned()
        }
        None => address,
    };
    format!(
        "{page}try        {curl} -H 'Content-Type: application/json' -d '{BODY}' \
         {address}/v1/chat/completions\n{note}"
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use engine_frontend::server::ServeArgs;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn steps(address: &str, flags: &[&str]) -> String {
        let line = Line::parse_from(["serve"].iter().chain(flags));
        first_steps(address, &line.args.server).replace(BODY, "BODY")
    }

    #[test]
    fn a_page_and_a_command() {
        let json = "-H 'Content-Type: application/json' -d 'BODY'";
        assert_eq!(
            steps("http://0.0.0.0:8000", &[]),
            format!(
                "page       http://127.0.0.1:8000/\n\
                 try        curl {json} http://127.0.0.1:8000/v1/chat/completions\n"
            )
        );
        assert_eq!(
            steps("unix:/tmp/a b", &["--api-key", "secret"]),
            format!(
                "try        curl -H \"Authorization: Bearer $FORMWORK_API_KEY\" \
                 --unix-socket '/tmp/a b' {json} http://localhost/v1/chat/completions\n           \
                 (FORMWORK_API_KEY is to hold one of the keys; the page asks for one as a password)\n"
            )
        );
        let tls = [
            "--no-ui",
            "--ssl-certfile",
            "a.crt",
            "--ssl-keyfile",
            "a.key",
        ];
        assert_eq!(
            steps("https://[::]:1", &tls),
            format!("try        curl --cacert a.crt {json} https://[::1]:1/v1/chat/completions\n")
        );
        let with_clients = [&tls[1..], &["--ssl-ca-certs", "ca.crt"]].concat();
        assert_eq!(
            steps("https://[::1]:1", &with_clients),
            "page       https://[::1]:1/\n"
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
