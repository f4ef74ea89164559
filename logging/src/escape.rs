//! Escapes of the characters that make a log say something else than was written.

use std::fmt::Write as _;
use std::io::{self, Write};

/// How escapes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escapes {
    /// As Rust writes them: `\u{202e}`.
    Human,
    /// As JSON writes them: `\u202e`.
    Json,
}

/// Writes events, each one line, with escapes in place of control characters (C0, DEL and C1), line
/// separators (U+2028 and U+2029) and characters that change the direction of text.
#[derive(Debug)]
pub struct EscapingWriter<W> {
    inner: W,
    escapes: Escapes,
}

impl<W> EscapingWriter<W> {
    /// A writer over `inner`.
    pub fn new(inner: W, escapes: Escapes) -> Self {
        Self { inner, escapes }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    /// Takes a whole event, which ends with the only line end that stays.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        if !line.contains(is_harmful) {
            self.inner.write_all(event)?;
            return Ok(event.len());
        }
        self.inner
            .write_all(escape(&text, self.escapes).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// True for the characters that are escaped.
fn is_harmful(c: char) -> bool {
    let is_bidi = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// An event with escapes. Its last line end stays.
fn escape(event: &str, escapes: Escapes) -> String {
    let (line, end) = match event.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (event, ""),
    };
    let mut escaped = String::with_capacity(event.len() + 16);
    let mut rest = line;
    while let Some(at) = rest.find(is_harmful) {
        let (before, after) = rest.split_at(at);
        escaped.push_str(before);
        let mut after = after.chars();
        // Found above.
        let c = after.next().unwrap_or_default();
        // Writing to a string never fails.
        let _ = match escapes {
            // All of them are below U+10000.
            Escapes::Json => write!(escaped, "\\u{:04x}", u32::from(c)),
            Escapes::Human => match c {
                '\n' | '\r' | '\t' => write!(escaped, "{}", c.escape_default()),
                c => write!(escaped, "{}", c.escape_unicode()),
            },
        };
        rest = after.as_str();
    }
    escaped.push_str(rest);
    escaped.push_str(end);
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What log lines go to, in these tests.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// All characters that must not reach a log: C0 and DEL, C1, those of direction, line separators.
    fn harmful() -> impl Iterator<Item = char> {
        let c0 = (0..0x20).chain([0x7f]);
        let others = [0x61c, 0x200e, 0x200f, 0x2028, 0x2029];
        let ranges = (0x80..=0x9f).chain(0x202a..=0x202e).chain(0x2066..=0x2069);
        c0.chain(others).chain(ranges).filter_map(char::from_u32)
    }

    /// The line that a hostile message and field become.
    fn logged(json: bool, escapes: Escapes, hostile: &str) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || EscapingWriter::new(writer.clone(), escapes));
        let log = || tracing::info!(name = %hostile, "hears {hostile} é日");
        match json {
            true => tracing::subscriber::with_default(subscriber.json().finish(), log),
            false => tracing::subscriber::with_default(subscriber.finish(), log),
        }
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_harmful_character_reaches_a_log() {
        for c in harmful() {
            for (json, escapes) in [(false, Escapes::Human), (true, Escapes::Json)] {
                let hostile = format!("a{c}[31mb");
                let line = logged(json, escapes, &hostile);
                let line = line.strip_suffix('\n').expect("a line ends");
                assert!(line.contains("é日"), "{line}");
                assert!(!line.contains(is_harmful), "{line:?}");
            }
        }
    }

    #[test]
    fn escapes_are_those_of_the_format() {
        for (escapes, escaped) in [
            (
                Escapes::Human,
                "a\\u{202e}b\\nc\\u{9b}d\\u{1b}[0me\n".to_owned(),
            ),
            (
                Escapes::Json,
                "a\\u202eb\\u000ac\\u009bd\\u001b[0me\n".to_owned(),
            ),
        ] {
            let event = "a\u{202e}b\nc\u{9b}d\u{1b}[0me\n";
            assert_eq!(escape(event, escapes), escaped);
        }
        let mut written = Vec::new();
        let mut writer = EscapingWriter::new(&mut written, Escapes::Human);
        writer.write_all(b"two ends\n\n").unwrap();
        assert_eq!(written, b"two ends\\n\n");
        let plain = "plain é日 \"text\"\n";
        assert_eq!(escape(plain, Escapes::Json), plain);
    }

    #[test]
    fn a_line_of_json_stays_json() {
        let line = logged(true, Escapes::Json, "a\u{9b}\u{2028}\u{7f}\n\u{202e}b");
        assert!(line.contains("\\u009b\\u2028\\u007f\\n\\u202eb"), "{line}");
    }
}
