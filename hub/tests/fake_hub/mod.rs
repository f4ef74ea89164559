//! A server that speaks the Hub's API on this machine, and misbehaves where it is told to.
//!
//! As on the real one, files of LFS are redirected to another host (here another port), and others to
//! another path of the same host.

mod content;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use content::content;
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

/// What the server answers to questions about repositories and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiFault {
    /// This status with these headers.
    Status(u16, &'static [(&'static str, &'static str)]),
    /// The page of a network that wants a login.
    LoginPage,
    /// Nothing, until the client leaves.
    Silence,
    /// As a mirror does: without sizes in its listings, and with this ETag for every file.
    MirrorEtag(&'static str),
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
    api_fault: Option<ApiFault>,
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

    /// What happens with questions about repositories and files.
    pub(crate) fn set_api_fault(&self, fault: Option<ApiFault>) {
        self.state.lock().unwrap().api_fault = fault;
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
    if answer.is_silent {
        let _ = reader.read_line(&mut line);
        return None;
    }
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
    /// Nothing is sent at all.
    is_silent: bool,
}

impl Answer {
    fn new(status: u16, headers: Vec<(&'static str, String)>) -> Self {
        let mut answer = Self {
            status,
            headers,
            body: Vec::new(),
            stalls: false,
            is_silent: false,
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
            is_silent: false,
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
    let mirror_etag = match state.api_fault {
        Some(ApiFault::Status(status, headers)) => {
            let headers = headers
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()));
            return Answer::new(status, headers.collect());
        }
        Some(ApiFault::LoginPage) => return Answer::json("<html>Log in".to_owned()),
        Some(ApiFault::Silence) => {
            let mut silence = Answer::json(String::new());
            silence.is_silent = true;
            return silence;
        }
        Some(ApiFault::MirrorEtag(etag)) => Some(etag),
        None => None,
    };
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
        let siblings = found.files.iter().map(|(name, content)| {
            let known = match mirror_etag {
                Some(_) => String::new(),
                None => known(name, content, size_of(state, name, content)),
            };
            format!("{{\"rfilename\": {name:?}{known}}}")
        });
        let siblings: Vec<String> = siblings.collect();
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
    let size = size_of(state, file, bytes);
    let etag = mirror_etag.map_or_else(|| etag(file, bytes), str::to_owned);
    let quoted = format!("\"{etag}\"");
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

/// A file's length, as the Hub tells it.
fn size_of(state: &State, name: &str, content: &[u8]) -> i64 {
    let more = match state.faults.get(name) {
        Some(Fault::LinkedSize(more)) => *more,
        _ => 0,
    };
    content.len() as i64 + more
}

/// Fields of a file in a listing with `?blobs=true`.
fn known(name: &str, content: &[u8], size: i64) -> String {
    let etag = etag(name, content);
    match is_lfs(name) {
        true => format!(
            ", \"size\": {size}, \"blobId\": \"pointer\", \"lfs\": {{\"sha256\": {etag:?}, \"size\": {size}, \
             \"pointerSize\": 130}}"
        ),
        false => format!(", \"size\": {size}, \"blobId\": {etag:?}"),
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
