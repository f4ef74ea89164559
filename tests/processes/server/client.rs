//! A plain HTTP client: one request per connection, everything visible.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::PATIENCE;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The error that this is, checked for its shape.
    pub(crate) fn error(&self) -> Value {
        let mut body = self.json();
        let error = body["error"].take();
        assert_eq!(error["code"], self.status, "{self:?}");
        assert!(
            error["message"].is_string() && error["type"].is_string(),
            "{self:?}"
        );
        assert!(error.get("param").is_some(), "{self:?}");
        error
    }

    /// The events of a stream. It must end as streams do.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> = self
            .body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{self:?}");
        events
            .into_iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }
}

/// A connection with a request on it whose answer was not read.
pub(crate) struct Pending(BufReader<TcpStream>);

/// Sends these bytes.
pub(crate) fn send(address: &str, bytes: &[u8]) -> Pending {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses early may close while we write.
    let _ = stream.write_all(bytes);
    Pending(BufReader::new(stream))
}

/// Sends a request with a JSON body.
pub(crate) fn start(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Pending {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    send(address, &bytes)
}

impl Pending {
    /// The connection itself.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// The status line's number, once it is there.
    pub(crate) fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {line:?}"))
    }

    /// The next line of whatever comes.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Reads the whole answer.
    pub(crate) fn finish(mut self) -> Answer {
        let status = self.status();
        let mut headers = HashMap::new();
        loop {
            let line = self.line();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let mut bytes = Vec::new();
        if headers
            .get("transfer-encoding")
            .is_some_and(|e| e == "chunked")
        {
            loop {
                let size = usize::from_str_radix(self.line().trim(), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                self.0.read_exact(&mut chunk).unwrap();
                if size == 0 {
                    break;
                }
                bytes.extend_from_slice(&chunk[..size]);
            }
        } else {
            self.0.read_to_end(&mut bytes).unwrap();
        }
        Answer {
            status,
            headers,
            body: String::from_utf8(bytes).unwrap(),
        }
    }
}
