//! A strict reader of what a server sends.

/// One answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The answers in some bytes. The last one may end early where the client has ended the connection.
///
/// # Panics
/// They aren't HTTP/1.
pub(crate) fn parse(mut bytes: &[u8], request: &[u8], cut_off: bool) -> Vec<Answer> {
    // Answers to these have a length and no body.
    let may_lack_body = contains(request, b"HEAD");
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        match parse_one(bytes, may_lack_body) {
            Some((answer, len)) => {
                bytes = &bytes[len..];
                // `100 Continue` comes before an answer.
                if answer.status >= 200 {
                    answers.push(answer);
                }
            }
            None if cut_off => break,
            None => panic!("an answer that ends early: {}", shown(bytes)),
        }
    }
    answers
}

/// The first answer and its length; `None` where it ends early.
fn parse_one(bytes: &[u8], may_lack_body: bool) -> Option<(Answer, usize)> {
    let head_len = find(bytes, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_len - 4]).expect("a head that is no text");
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let is_http = status_line.starts_with("HTTP/1.1 ") || status_line.starts_with("HTTP/1.0 ");
    assert!(is_http, "no status line: {}", shown(bytes));
    let status = status_line
        .get(9..12)
        .and_then(|digits| digits.parse().ok());
    let status: u16 = status.unwrap_or_else(|| panic!("no status: {status_line:?}"));
    assert!((100..600).contains(&status), "{status_line:?}");
    let (mut length, mut is_chunked) = (None, false);
    for line in lines {
        let (name, value) = line.split_once(':').expect("a header without a colon");
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        assert!(!name.is_empty() && name.chars().all(is_token), "{line:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                assert!(length.is_none(), "two lengths");
                let value = value.trim().parse::<usize>();
                length = Some(value.expect("a length that is no number"));
            }
            "transfer-encoding" => is_chunked = value.trim() == "chunked",
            _ => {}
        }
    }
    assert!(!(is_chunked && length.is_some()), "two kinds of length");
    let rest = &bytes[head_len..];
    let answer = |body: &[u8]| Answer {
        status,
        body: body.to_vec(),
    };
    let has_no_body = status < 200 || status == 204 || status == 304;
    let lacks_body = may_lack_body && (rest.is_empty() || rest.starts_with(b"HTTP/1."));
    if has_no_body || lacks_body {
        return Some((answer(b""), head_len));
    }
    if is_chunked {
        let (body, len) = parse_chunks(rest)?;
        return Some((answer(&body), head_len + len));
    }
    // Without a length a body goes on to the end of the connection.
    let length = length.unwrap_or(rest.len());
    Some((answer(rest.get(..length)?), head_len + length))
}

/// A body in chunks and the bytes that it took.
fn parse_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("a chunk's size");
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        at += line + 2;
        let chunk = bytes.get(at..at + size)?;
        assert_eq!(bytes.get(at + size..at + size + 2)?, b"\r\n");
        at += size + 2;
        if size == 0 {
            return Some((body, at));
        }
        body.extend(chunk);
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    find(bytes, part).is_some()
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(200)].escape_ascii().to_string()
}
