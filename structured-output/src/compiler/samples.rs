//! Samples of JSON, names, strings and numbers whose states and masks every generation begins with: strings, numbers,
//! white space and what else most schemas and grammars have in common.

use std::sync::Arc;

use crate::automaton::{Base, State, TokenAutomaton};
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

/// Names, as most grammars have them: the terminal and what is left of it after its first character.
const NAMES: [&str; 6] = [
    "[a-zA-Z_][a-zA-Z0-9_]*",
    "[a-zA-Z0-9_]*",
    "[a-z][a-z0-9_]*",
    "[a-z0-9_]*",
    r"[^\W\d]\w*",
    r"\w*",
];

/// What is left of strings after their first quote, as most grammars have them: as in programming
/// languages, in JSON and in SQL; each with a text whose places all are known.
const STRINGS: [(&str, &str); 8] = [
    (r#"([^"\\]|\\.)*""#, r"\"),
    (r"([^'\\]|\\.)*'", r"\"),
    (r#"([^"\\\n]|\\.)*""#, r"\"),
    (r"([^'\\\n]|\\.)*'", r"\"),
    (
        r#"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*""#,
        r"\u00e",
    ),
    (r"([^']|'')*'", "'"),
    (r"[^'\n]*'", ""),
    (r#"[^"\n]*""#, ""),
];

/// Numbers, likewise.
const NUMBERS: [(&str, &str); 5] = [
    (r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", "-1.5e+3"),
    (r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", "1.5e+3"),
    (r"[0-9]+(\.[0-9]+)?", "1.5"),
    (r"[0-9]+", "1"),
    (r"[0-9a-fA-F]+", "f"),
];

/// White space that may follow a lexeme, as most grammars have it: none, on a line, of JSON, and Lark's.
const WHITE: [&str; 6] = [
    "",
    r"[ \t]*",
    r"[ \t\n]*",
    r"[ \t\n\r]*",
    r"[ \t\n\f\r]*",
    r"\s*",
];

/// What comments begin with that go to the end of their line, where these are white space too.
const COMMENTS: [&str; 3] = ["--", "#", "//"];

/// Lexemes of one character.
const MARKS: &[u8] = br##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;

/// The patterns of what most grammars have in common, each with a text whose places are known, and
/// whether it is also known what it allows after other lexemes.
fn languages() -> Vec<(String, &'static str, bool)> {
    let mut languages = Vec::new();
    languages.extend(NAMES.map(|pattern| (pattern.to_owned(), "", true)));
    for (pattern, text) in STRINGS {
        let quote = pattern.chars().next_back().unwrap_or_default();
        languages.push((format!("{quote}{pattern}"), "", true));
        languages.push((pattern.to_owned(), text, false));
    }
    let comments = COMMENTS.map(|begins| {
        let white = format!(r"([ \t\n\f\r]|{begins}[^\n]*)*");
        (white, begins)
    });
    let white = WHITE.into_iter().map(|white| (white, ""));
    let comments = comments.iter().map(|(white, begins)| (&**white, *begins));
    for (white, text) in white.chain(comments) {
        let numbers = NUMBERS.iter();
        languages.extend(numbers.map(|&(number, text)| (format!("{number}{white}"), text, true)));
        let marks = MARKS.iter();
        languages.extend(marks.map(|mark| (format!(r"\x{mark:02x}{white}"), "", true)));
        if let Some(one) = white.strip_suffix('*') {
            languages.push((white.to_owned(), text, true));
            languages.push((format!("{one}+"), text, true));
        }
    }
    languages
}

/// What the samples leave known; `None` where the vocabulary is not worth it.
pub(super) fn base_of(index: &Arc<TokenizerIndex>) -> Option<Arc<Base>> {
    if index.num_text_tokens() < MIN_TOKENS || !index.writes_any_text() {
        return None;
    }
    let mut automaton = TokenAutomaton::new(Arc::clone(index), None, 1);
    let mut fuel = Fuel::new(MAX_STEPS);
    for (schema, text) in SAMPLES {
        // What was computed before a sample fails is as good as any.
        if let Some(start) = start_of(&mut automaton, schema, &mut fuel) {
            let _ = automaton.rehearse(start, text.as_bytes(), &mut fuel);
        }
    }
    let limits = Limits::default();
    for (pattern, text, may_follow) in languages() {
        let Ok(ast) = regex::parse(&pattern, Dialect::Common, limits.regex()) else {
            continue;
        };
        let lexicon = &mut automaton.machine().lexicon;
        if let Ok(Some(language)) = Translator::new(ast, Spelling::Utf8).run(lexicon, usize::MAX) {
            let _ = automaton.rehearse_language(language, may_follow, text.as_bytes(), &mut fuel);
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

    /// What is known of numbers, names, strings and marks with white space after them is what grammars
    /// that are made of these allow.
    #[test]
    fn masks_of_grammars_with_a_base_are_their_tokens() {
        let index = index();
        let info = Arc::clone(index.info());
        let compiler = crate::GrammarCompiler::new(info, Default::default());
        let source = r#"
            start: item ("," item)*
            item: NAME | NUMBER | STRING | "{" [pair ("," pair)*] "}" | "true" | "null"
            pair: STRING ":" item
            NAME: /[a-z][a-z0-9_]*/
            NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
            STRING: /"([^"\\\n]|\\.)*"/
            %ignore /[ \t\n]+/
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
        let base = base_of(&index);
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
