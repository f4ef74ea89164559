//! Samples whose states and masks every generation begins with: JSON, the terminals of Lark's library `common`, and
//! the classes of regular expressions. Nothing here is taken from a grammar that speed is measured with.

use std::sync::Arc;

use crate::automaton::{Base, State, TokenAutomaton};
use crate::grammar_syntax::common_terminal;
use crate::index::TokenizerIndex;
use crate::json::{SchemaCompiler, Style};
use crate::lexical::Fuel;
use crate::options::{JsonSchemaOptions, Limits};
use crate::regex::{self, Dialect, Spelling, Translator};

/// Below so many tokens walks are short, and nothing is prepared.
const MIN_TOKENS: usize = 10_000;
/// Steps for all samples together.
const MAX_STEPS: u64 = 20_000_000;

/// A schema, and a text that it allows. Short: all of it is walked whenever an index is made or read.
const SAMPLES: [(&str, &str); 3] = [
    ("true", r#"{"a": -1.5e+3, "b": ["c", true]}"#),
    (
        r#"{"properties": {"a": {"type": "string"}, "b": {"type": "integer"},
            "c": {"type": "number"}}, "required": ["a"]}"#,
        r#"{"a": "x", "b": 12, "c": 0.5, "d": {}}"#,
    ),
    (
        r#"{"items": {"type": "string", "minLength": 1, "maxLength": 20}}"#,
        r#"["xy"]"#,
    ),
];

/// Words and strings of Lark's `common`, each with a text that leads to its places.
const WORDS: [(&str, &str); 3] = [("CNAME", "a"), ("WORD", "a"), ("ESCAPED_STRING", r#""\"#)];

/// Numbers of Lark's `common`, likewise.
const NUMBERS: [(&str, &str); 5] = [
    ("INT", "1"),
    ("SIGNED_INT", "-1"),
    ("FLOAT", "1.5e+3"),
    ("NUMBER", "1.5e+3"),
    ("SIGNED_NUMBER", "-1.5e+3"),
];

/// Classes of characters, likewise.
const CLASSES: [(&str, &str); 2] = [(r"\w+", "a"), (r"\d+", "1")];

/// White space that may follow a lexeme: of JSON, of regular expressions, and of Lark's `common`.
const SPACES: [&str; 4] = [r"[ \t\n\r]", r"\s", r"[ \t]", r"[ \t\f\r\n]"];

/// Lark's comments that go to the end of their line, with what they begin with. They stand beside its `WS`.
const COMMENTS: [(&str, &str); 3] = [
    ("SH_COMMENT", "#"),
    ("CPP_COMMENT", "//"),
    ("SQL_COMMENT", "--"),
];

/// Lexemes of one character.
const MARKS: &[u8] = br##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;

/// The patterns of the samples, each with a text that leads to its places.
fn languages() -> Vec<(String, &'static str)> {
    let pattern = |name| common_terminal(name).unwrap_or_default();
    let words = WORDS.map(|(name, text)| (pattern(name), text));
    let words = words.into_iter().chain(CLASSES);
    let mut languages: Vec<_> = words.map(|(word, text)| (word.to_owned(), text)).collect();
    let spaces = SPACES.map(|space| (space.to_owned(), ""));
    let ws = pattern("WS");
    let comments = COMMENTS.map(|(name, begins)| (format!("({ws}|{})", pattern(name)), begins));
    let mut behind = vec![String::new()];
    for (space, begins) in spaces.into_iter().chain(comments) {
        languages.push((format!("{space}*"), begins));
        languages.push((format!("{space}+"), begins));
        behind.push(format!("{space}*"));
    }
    for space in behind {
        let numbers = NUMBERS.iter();
        let numbers = numbers.map(|(name, text)| (format!("({}){space}", pattern(name)), *text));
        languages.extend(numbers);
        languages.extend(
            MARKS
                .iter()
                .map(|mark| (format!(r"\x{mark:02x}{space}"), "")),
        );
    }
    languages
}

/// What the samples leave known; `None` where the vocabulary is not worth it.
pub(super) fn base_of(index: &Arc<TokenizerIndex>, any_escapes: bool) -> Option<Arc<Base>> {
    if index.num_text_tokens() < MIN_TOKENS || !index.writes_any_text() {
        return None;
    }
    let mut automaton = TokenAutomaton::new(Arc::clone(index), None, 1);
    automaton.machine().lexicon.set_any_escapes(any_escapes);
    let mut fuel = Fuel::new(MAX_STEPS);
    for (schema, text) in SAMPLES {
        // What was computed before a sample fails is as good as any.
        if let Some(start) = start_of(&mut automaton, schema, &mut fuel) {
            let _ = automaton.rehearse(start, text.as_bytes(), &mut fuel);
        }
    }
    let limits = Limits::default();
    for (pattern, text) in languages() {
        let Ok(ast) = regex::parse(&pattern, Dialect::Common, limits.regex()) else {
            continue;
        };
        let lexicon = &mut automaton.machine().lexicon;
        if let Ok(Some(language)) = Translator::new(ast, Spelling::Utf8).run(lexicon, usize::MAX) {
            let _ = automaton.rehearse_language(language, text.as_bytes(), &mut fuel);
        }
    }
    Some(Arc::new(automaton.into_base()))
}

/// The start of a sample's grammar.
fn start_of(automaton: &mut TokenAutomaton, schema: &str, fuel: &mut Fuel) -> Option<State> {
    let (options, limits) = (JsonSchemaOptions::default(), Limits::default());
    let machine = automaton.machine();
    let mut compiler = SchemaCompiler::new(schema, &options, &limits).ok()?;
    let root = loop {
        let nodes = machine.programs.nodes();
        let done = compiler.run(&mut machine.lexicon, nodes, 256, 0, fuel);
        if let Some(root) = done.ok()?.ok()? {
            break root;
        }
    };
    let style = Style::new(&mut machine.lexicon, &options, limits.regex(), fuel);
    let style = style.ok()?.ok()?;
    let frames = machine.programs.start(root, style, fuel).ok()??;
    machine.start_of_frames(&frames, fuel).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerInfo;

    /// A vocabulary of all bytes and all pairs of letters, just large enough.
    fn index() -> Arc<TokenizerIndex> {
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        for a in b'a'..=b'z' {
            for b in b'a'..=b'z' {
                vocab.extend([b' ', b'"', b'a', b',', b'}'].map(|c| vec![a, b, c]));
                vocab.extend([b' ', b'"', b':'].map(|c| vec![c, a, b]));
                vocab.extend((b'0'..=b'9').map(|c| vec![a, c, b]));
            }
        }
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        Arc::new(TokenizerIndex::new(info.into(), None))
    }

    #[test]
    fn samples_are_walked_to_their_end() {
        let mut automaton = TokenAutomaton::new(index(), None, 1);
        for (schema, text) in SAMPLES {
            let mut fuel = Fuel::new(MAX_STEPS);
            let mut state = start_of(&mut automaton, schema, &mut fuel).unwrap();
            for &byte in text.as_bytes() {
                let next = automaton.machine().step(state, byte, &mut fuel).unwrap();
                state = next.unwrap_or_else(|| panic!("{text}: {}", char::from(byte)));
            }
            assert!(automaton.is_accepting(state, &mut fuel).unwrap(), "{text}");
        }
    }

    #[test]
    fn samples_are_patterns() {
        for (pattern, text) in languages() {
            let ast = regex::parse(&pattern, Dialect::Common, Limits::default().regex());
            assert!(
                ast.is_ok() && !pattern.starts_with("()"),
                "{pattern} {text}"
            );
        }
    }

    /// What is known of numbers, names, strings and marks with white space after them is what grammars
    /// that are made of these allow.
    #[test]
    fn masks_of_grammars_with_a_base_are_their_tokens() {
        let index = index();
        let info = Arc::clone(index.info());
        let compiler = crate::GrammarCompiler::new(info, Default::default());
        let source = r#"
            start: item ("," item)*
            item: CNAME | SIGNED_NUMBER | ESCAPED_STRING | "{" [pair ("," pair)*] "}" | "true" | "null"
            pair: ESCAPED_STRING ":" item
            %import common (CNAME, SIGNED_NUMBER, ESCAPED_STRING, WS)
            %ignore WS
        "#;
        let grammar = compiler.compile_lark(source).unwrap();
        let mut matcher = crate::GrammarMatcher::new(&grammar);
        for byte in *b"{\"ab\": -1.5, \"c\" :true } , x1 ,\"" {
            let mask = matcher.next_token_mask().unwrap();
            for id in 0..index.info().vocab_size() as u32 {
                let is_accepted = matcher.fork().accept_token(id).unwrap();
                let text = index.info().token_bytes(id).escape_ascii();
                assert_eq!(mask.is_allowed(id), is_accepted, "{text}");
            }
            assert!(matcher.accept_token(u32::from(byte)).unwrap());
        }
    }

    #[test]
    fn masks_with_a_base_are_those_without() {
        let index = index();
        let base = base_of(&index, false);
        assert!(base.is_some());
        let mut without = TokenAutomaton::new(Arc::clone(&index), None, 1);
        let mut with = TokenAutomaton::new(index, base, 1);
        let schema = r#"{"properties": {"ab": {"type": "string", "maxLength": 9}, "c": {"minimum": 3}},
            "additionalProperties": {"type": ["integer", "array"]}, "required": ["ab"]}"#;
        let text = br#"{"ab": "cd ", "c": 12, "xy":[1, "z"]}"#;
        let mut fuel = Fuel::new(100_000_000);
        let mut states = [&mut without, &mut with]
            .map(|automaton| start_of(automaton, schema, &mut fuel).unwrap());
        for &byte in text {
            let [a, b] = states;
            assert_eq!(
                without.mask(a, &mut fuel).unwrap(),
                with.mask(b, &mut fuel).unwrap()
            );
            states = [
                without.machine().step(a, byte, &mut fuel).unwrap().unwrap(),
                with.machine().step(b, byte, &mut fuel).unwrap().unwrap(),
            ];
        }
    }
}
