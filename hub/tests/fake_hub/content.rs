//! The content of files, and what goes wrong with it.

use super::{Answer, COMMIT, Fault, State, etag};

/// `ORG/NAME/FILE`, as the host of the content gives it.
pub(super) fn content(state: &mut State, path: &str, range: Option<&str>) -> Answer {
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
        is_silent: false,
    }
}
