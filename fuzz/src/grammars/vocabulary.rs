//! Small vocabularies with what makes vocabularies hard.

use std::sync::Arc;

use structured_output::TokenizerInfo;

/// Tokens, and which of them are which.
pub(crate) struct Vocabulary {
    pub(crate) tokens: Vec<Vec<u8>>,
    /// The text of this one is never text.
    pub(crate) control: Vec<u32>,
    pub(crate) stop: u32,
    /// The token of each byte, where all bytes are tokens.
    pub(crate) byte_tokens: Option<Vec<u32>>,
    padding: usize,
}

const WORDS: [&str; 64] = [
    " ",
    "  ",
    "\n",
    "\n\n",
    "    ",
    "a",
    "b",
    "ab",
    "aa",
    "aab",
    "abab",
    "ba",
    "(",
    "((",
    ")",
    "))",
    "()",
    "[",
    "]",
    "[]",
    "{",
    "}",
    "{\"",
    "\"}",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"",
    "\\",
    "\\n",
    "\\u",
    "00",
    "0",
    "1",
    "12",
    "007",
    "-1",
    "1.5",
    "e+",
    "true",
    "null",
    "false",
    "SELECT ",
    " FROM",
    "select",
    "id",
    "name",
    "<",
    "<<",
    "<tool",
    "<tool_call>",
    "</tool_call>",
    "call>",
    "<fun",
    "ction=",
    ">",
    "é",
    "日本",
    "😀",
    ",",
    ", ",
    "::=",
    "xyz",
];

/// Tokens that begin or end in the midst of a character, and an empty one.
const ODD: [&[u8]; 5] = [b"\xc3", b"\xa9 ", b"\xe6\x97", b"\"\xf0\x9f", b""];

/// A vocabulary for a byte: mostly with all bytes, sometimes with few.
pub(crate) fn of_kind(kind: u8) -> Vocabulary {
    let mut tokens: Vec<Vec<u8>> = vec![b"<eos>".to_vec()];
    let mut byte_tokens = None;
    match kind % 8 {
        // Letters alone: no text but of them can be written.
        6 => tokens.extend(b"ab01\"{}:, [](<>".iter().map(|&byte| vec![byte])),
        // Not even all bytes of the tokens are tokens.
        7 => {}
        _ => {
            let first = tokens.len() as u32;
            byte_tokens = Some((first..first + 256).collect());
            tokens.extend((0..=255).map(|byte| vec![byte]));
        }
    }
    tokens.extend(WORDS.iter().map(|word| word.as_bytes().to_vec()));
    tokens.extend(ODD.iter().map(|word| word.to_vec()));
    let control = tokens.len() as u32;
    tokens.extend(["<|x|>", "<|tool|>", "ab"].map(|name| name.as_bytes().to_vec()));
    Vocabulary {
        control: (control..tokens.len() as u32).collect(),
        stop: 0,
        byte_tokens,
        padding: 3,
        tokens,
    }
}

impl Vocabulary {
    /// For a compiler.
    pub(crate) fn info(&self) -> Arc<TokenizerInfo> {
        let width = self.tokens.len() + self.padding;
        Arc::new(TokenizerInfo::new(&self.tokens, width, &[self.stop], &self.control).unwrap())
    }

    /// All ids, those of no token included.
    pub(crate) fn ids(&self) -> std::ops::Range<u32> {
        0..(self.tokens.len() + self.padding) as u32
    }

    /// Whether a token is text.
    pub(crate) fn is_text(&self, id: u32) -> bool {
        let token = self.tokens.get(id as usize);
        id != self.stop && !self.control.contains(&id) && token.is_some_and(|t| !t.is_empty())
    }
}
