//! A server that speaks the Hub's API on this machine, and misbehaves where it is told to.
//!
//! As on the real one, files of LFS are redirected to another host (here another port), and others to
//! another path of the same host.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// The commit of every repository's `main`.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server does wrong with a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each answer breaks off after so many bytes of its body.
    CutAfter(usize),
    /// So many bytes come, and then nothing until the client leaves.
    StallAfter(usize),
    /// Ranges are ignored, and the first so many answers break off in the middle.
    NoRanges(usize),
    /// The content's length is announced as so much more or less than it is.
    Length(i64),
    /// The question about the file is answered with so much more or less than its length.
    LinkedSize(i64),
    /// Other bytes come, as many.
    WrongBytes,
    /// The first so many requests get this status.
    Status(u16, usize),
}

/// Who may read a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Everybody,
    /// Whoever accepted the licence, and has this token.
    Gated(&'static str),
    /// Its owner, who has this token. Others aren't told that it exists.
    Private(&'static str),
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// True for the host that files of LFS are redirected to.
    pub(crate) is_cdn: bool,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
}

struct Repository {
    files: BTreeMap<String, Vec<u8>>,
    access: Access,
}

#[derive(Default)]
struct State {
    repositories: BTreeMap<String, Repository>,
    faults: BTreeMap<String, Fault>,
    seen: Vec<Seen>,
    is_down: bool,
}

/// The server. Its threads end with the test program.
pub(crate) struct FakeHub {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

impl FakeHub {
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [endpoint, cdn] =
            [0, 1].map(|i: usize| format!("http://{}", listeners[i].local_addr().expect("bound")));
        for (listener, is_cdn) in listeners.into_iter().zip([false, true]) {
            let (state, cdn) = (state.clone(), cdn.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (state, cdn) = (state.clone(), cdn.clone());
                    // A client that leaves is no failure of the test.
                    std::thread::spawn(move || serve(&state, &cdn, is_cdn, stream));
                }
            });
        }
        Self { endpoint, state }
    }

    pub(crate) fn add(&self, repository: &str, access: Access, files: &[(&str, &[u8])]) {
        let files = files
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()));
        let repository_files = Repository {
            files: files.collect(),
            access,
        };
        let mut state = self.state.lock().unwrap();
        state
            .repositories
            .insert(repository.to_owned(), repository_files);
    }

    /// What happens with the file of this name, in every repository.
    pub(crate) fn set_fault(&self, file: &str, fault: Option<Fault>) {
        let faults = &mut self.state.lock().unwrap().faults;
        match fault {
            Some(fault) => faults.insert(file.to_owned(), fault),
            None => faults.remove(file),
        };
    }

    /// Closes every connection without an answer from now on.
    pub(crate) fn go_down(&self) {
        self.state.lock().unwrap().is_down = true;
    }

    /// The requests since the last call.
    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }
}

/// The checksum that the Hub has for a file: SHA-256 for LFS, Git's SHA-1 for others.
pub(crate) fn etag(name: &str, content: &[u8]) -> String {
    let mut context = if is_lfs(name) {
        Context::new(&SHA256)
    } else {
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(format!("blob {}\0", content.len()).as_bytes());
        context
    };
    context.update(content);
    context
        .finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn is_lfs(name: &str) -> bool {
    name.ends_with(".safetensors") || name.ends_with(".gguf")
}

fn serve(state: &Mutex<State>, cdn: &str, is_cdn: bool, mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let path = target.split('?').next()?.to_owned();
    let (mut range, mut authorization) = (None, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.trim().to_owned()),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let seen = Seen {
        is_cdn,
        method,
        path,
        range,
        authorization,
    };
    let answer = {
        let mut state = state.lock().unwrap();
        state.seen.push(seen.clone());
        if state.is_down {
            return None;
        }
        answer(&mut state, cdn, &seen)
    };
    let mut head = format!("HTTP/1.1 {} Some\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(b"\r\n").ok()?;
    if seen.method != "HEAD" {
        stream.write_all(&answer.body).ok()?;
        if answer.stalls {
            let _ = reader.read_line(&mut line);
        }
    }
    Some(())
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Keeps the connection open when the body has come.
    stalls: bool,
}

impl Answer {
    fn new(status: u16, headers: Vec<(&'static str, String)>) -> Self {
        let mut answer = Self {
            status,
            headers,
            body: Vec::new(),
            stalls: false,
        };
        answer.headers.push(("Content-Length", "0".to_owned()));
        answer
    }

    fn json(body: String) -> Self {
        let length = body.len().to_string();
        let kind = "application/json".to_owned();
        Self {
            status: 200,
            headers: vec![("Content-Length", length), ("Content-Type", kind)],
            body: body.into_bytes(),
            stalls: false,
        }
    }

    fn refused(status: u16, code: &str) -> Self {
        Self::new(status, vec![("X-Error-Code", code.to_owned())])
    }
}

fn answer(state: &mut State, cdn: &str, seen: &Seen) -> Answer {
    let path = seen.path.trim_start_matches('/');
    if let Some(path) = path.strip_prefix("content/") {
        return content(state, path, seen.range.as_deref());
    }
    if let Some((repository, revision)) = path
        .strip_prefix("api/models/")
        .and_then(|path| path.split_once("/revision/"))
    {
        let found = match readable(state, repository, seen) {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        if !matches!(revision, "main" | COMMIT | "refs%2Fpr%2F1") {
            return Answer::refused(404, "RevisionNotFound");
        }
        let siblings: Vec<String> = found
            .files
            .keys()
            .map(|name| format!("{{\"rfilename\": {name:?}}}"))
            .collect();
        let body = format!(
            "{{\"_id\": \"1\", \"id\": {repository:?}, \"modelId\": {repository:?}, \"sha\": {COMMIT:?}, \
             \"private\": false, \"tags\": [], \"downloads\": 0, \"likes\": 0, \"siblings\": [{}]}}",
            siblings.join(", ")
        );
        return Answer::json(body);
    }
    // Newer versions of `huggingface_hub` ask for this one.
    if let Some((repository, _)) = path
        .strip_prefix("api/models/")
        .and_then(|path| path.split_once("/tree/"))
    {
        return match readable(state, repository, seen) {
            Ok(found) => Answer::json(tree(found)),
            Err(refused) => refused,
        };
    }
    let Some((repository, rest)) = path.split_once("/resolve/") else {
        return Answer::refused(404, "EntryNotFound");
    };
    let found = match readable(state, repository, seen) {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    let file = rest.split_once('/').map_or("", |(_, file)| file);
    let Some(bytes) = found.files.get(file) else {
        return Answer::refused(404, "EntryNotFound");
    };
    let mut size = bytes.len() as i64;
    if let Some(Fault::LinkedSize(more)) = state.faults.get(file) {
        size += more;
    }
    let quoted = format!("\"{}\"", etag(file, bytes));
    let mut headers = vec![("X-Repo-Commit", COMMIT.to_owned())];
    if is_lfs(file) {
        headers.push(("X-Linked-Size", size.to_string()));
        headers.push(("X-Linked-ETag", quoted));
        headers.push(("Location", format!("{cdn}/content/{repository}/{file}")));
        Answer::new(302, headers)
    } else {
        headers.push(("Location", format!("/content/{repository}/{file}")));
        Answer::new(307, headers)
    }
}

/// A repository's files with their sizes and checksums, as JSON.
fn tree(repository: &Repository) -> String {
    let entries = repository.files.iter().map(|(name, content)| {
        let (size, etag) = (content.len(), etag(name, content));
        let lfs = match is_lfs(name) {
            true => {
                format!(", \"lfs\": {{\"oid\": {etag:?}, \"size\": {size}, \"pointerSize\": 130}}")
            }
            false => String::new(),
        };
        format!(
            "{{\"type\": \"file\", \"path\": {name:?}, \"size\": {size}, \"oid\": {etag:?}{lfs}}}"
        )
    });
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}

fn readable<'a>(state: &'a State, repository: &str, seen: &Seen) -> Result<&'a Repository, Answer> {
    let given = seen
        .authorization
        .as_deref()
        .and_then(|given| given.strip_prefix("Bearer "));
    let found = state.repositories.get(repository);
    match found.map(|found| found.access) {
        Some(Access::Gated(token)) if given.is_none() && !token.is_empty() => {
            Err(Answer::refused(401, "GatedRepo"))
        }
        Some(Access::Gated(token)) if given != Some(token) => {
            Err(Answer::refused(403, "GatedRepo"))
        }
        Some(Access::Private(token)) if given != Some(token) => Err(Answer::refused(
            if given.is_some() { 404 } else { 401 },
            "RepoNotFound",
        )),
        None => Err(Answer::refused(
            if given.is_some() { 404 } else { 401 },
            "RepoNotFound",
        )),
        Some(_) => found.ok_or_else(|| Answer::refused(404, "RepoNotFound")),
    }
}

/// `ORG/NAME/FILE`, as the host of the content gives it.
fn content(state: &mut State, path: &str, range: Option<&str>) -> Answer {
    let mut parts = path.splitn(3, '/');
    let repository = [parts.next(), parts.next()]
        .map(Option::unwrap_or_default)
        .join("/");
    let file = parts.next().unwrap_or_default();
    let found = state
        .repositories
        .get(&repository)
        .and_then(|found| found.files.get(file));
    let Some(bytes) = found.cloned() else {
        return Answer::refused(404, "EntryNotFound");
    };
    let fault = state.faults.get(file).copied();
    match state.faults.get_mut(file) {
        Some(Fault::Status(status, left)) if *left > 0 => {
            *left -= 1;
            return Answer::new(*status, Vec::new());
        }
        Some(Fault::NoRanges(left)) => *left = left.saturating_sub(1),
        _ => {}
    }
    let (mut start, mut status) = (0, 200);
    let quoted = format!("\"{}\"", etag(file, &bytes));
    let mut headers = vec![("ETag", quoted), ("X-Repo-Commit", COMMIT.to_owned())];
    let from = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    });
    if let Some(from) = from.filter(|_| !matches!(fault, Some(Fault::NoRanges(_)))) {
        if from >= bytes.len() {
            return Answer::new(416, Vec::new());
        }
        (start, status) = (from, 206);
        headers.push((
            "Content-Range",
            format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len()),
        ));
    }
    let mut body = bytes[start..].to_vec();
    let mut length = body.len() as i64;
    match fault {
        Some(Fault::CutAfter(most) | Fault::StallAfter(most)) => body.truncate(most),
        Some(Fault::NoRanges(1..)) => body.truncate(length as usize / 2),
        Some(Fault::Length(more)) => length += more,
        Some(Fault::WrongBytes) => body.iter_mut().for_each(|byte| *byte ^= 1),
        _ => {}
    }
    headers.push(("Content-Length", length.to_string()));
    Answer {
        status,
        headers,
        body,
        stalls: matches!(fault, Some(Fault::StallAfter(_))),
    }
}
