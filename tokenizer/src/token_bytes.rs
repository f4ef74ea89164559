//! What each token writes, as bytes: the inverse of the ways in which vocabularies spell bytes as
//! text.
//!
//! * **Byte-level** (GPT-2, Llama 3, Qwen): every byte is a printable character, by GPT-2's table.
//! * **Metaspace** (SentencePiece as in Llama 2, Gemma): text as it is, with `▁` for a space, and
//!   `<0xNN>` for a byte that no other token covers.
//! * **WordPiece** (BERT): text as it is, with `##` before what goes on with a word.
//!
//! Which of them it is stands in the file's `decoder`.

use crate::error::TokenizerError;
use crate::tokenizer_json::Decoder;

const SUPPORTED_DECODERS: &str = "ByteLevel, WordPiece, or a Sequence of Replace (▁ by a space), \
     ByteFallback, Fuse and Strip (leading spaces), or Metaspace";

/// What WordPiece has before a token that goes on with a word.
const WORD_GOES_ON: &str = "##";

/// How a vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    ByteLevel,
    Metaspace {
        replacement: char,
        byte_fallback: bool,
    },
    /// `##` stands before what goes on with a word; before all else a space is written.
    WordPiece,
}

/// How a vocabulary spells bytes, and what decoding drops at the text's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoding {
    pub(crate) spelling: Spelling,
    /// Most spaces that are dropped at the start of a decoded text, because encoding adds them.
    pub(crate) leading_spaces: usize,
}

impl Decoding {
    /// Reads a `decoder`.
    ///
    /// # Errors
    /// [`TokenizerError::Unsupported`] where it spells bytes in another way.
    pub(crate) fn new(decoder: Option<&Decoder>) -> Result<Self, TokenizerError> {
        let mut steps = Vec::new();
        if let Some(decoder) = decoder {
            flatten(decoder, &mut steps);
        }
        let mut byte_level = false;
        let mut word_piece = false;
        let mut replacement = None;
        let mut byte_fallback = false;
        let mut leading_spaces = 0;
        for step in steps {
            match (step.decoder_type.as_str(), step.content.as_deref()) {
                ("ByteLevel", _) => byte_level = true,
                ("WordPiece", _)
                    if step.prefix.as_deref().unwrap_or(WORD_GOES_ON) == WORD_GOES_ON =>
                {
                    word_piece = true;
                    leading_spaces = 1;
                }
                ("ByteFallback", _) => byte_fallback = true,
                ("Fuse", _) => {}
                ("Replace", Some(" ")) => match step
                    .pattern
                    .as_ref()
                    .and_then(|pattern| pattern.string.as_ref())
                {
                    Some(pattern) if pattern.chars().count() == 1 => {
                        replacement = pattern.chars().next();
                    }
                    _ => return Err(unsupported_decoder("Replace")),
                },
                ("Metaspace", _) => {
                    replacement = step.replacement;
                    // Encoding puts one before the first word.
                    leading_spaces = 1;
                }
                ("Strip", Some(" ")) if step.stop.unwrap_or(0) == 0 => {
                    leading_spaces = step.start.unwrap_or(0);
                }
                (decoder_type, _) => return Err(unsupported_decoder(decoder_type)),
            }
        }
        if word_piece && (byte_level || byte_fallback || replacement.is_some()) {
            return Err(unsupported_decoder("WordPiece with another"));
        }
        if word_piece {
            return Ok(Self {
                spelling: Spelling::WordPiece,
                leading_spaces,
            });
        }
        let spelling = match (byte_level, replacement) {
            (true, None) if !byte_fallback => Spelling::ByteLevel,
            (false, Some(replacement)) => Spelling::Metaspace {
                replacement,
                byte_fallback,
            },
            (false, None) => return Err(unsupported_decoder("none")),
            (true, _) => {
                return Err(unsupported_decoder(
                    "ByteLevel with Replace or ByteFallback",
                ));
            }
        };
        Ok(Self {
            spelling,
            leading_spaces,
        })
    }
}

/// The steps of a decoder in order, sequences unfolded.
fn flatten<'a>(decoder: &'a Decoder, steps: &mut Vec<&'a Decoder>) {
    if decoder.decoder_type == "Sequence" {
        for decoder in &decoder.decoders {
            flatten(decoder, steps);
        }
    } else {
        steps.push(decoder);
    }
}

fn unsupported_decoder(value: &str) -> TokenizerError {
    TokenizerError::Unsupported {
        field: "decoder",
        value: value.to_owned(),
        supported: SUPPORTED_DECODERS,
    }
}

impl Spelling {
    /// Appends the bytes of a token of the model's vocabulary.
    pub(crate) fn append_token(self, token: &str, bytes: &mut Vec<u8>) {
        match self {
            Self::ByteLevel => {
                let start = bytes.len();
                for char in token.chars() {
                    match byte_of_char(char) {
                        Some(byte) => bytes.push(byte),
                        None => {
                            // Not spelled in the table: then it is text, as a whole.
                            bytes.truncate(start);
                            bytes.extend_from_slice(token.as_bytes());
                            return;
                        }
                    }
                }
            }
            Self::Metaspace {
                replacement,
                byte_fallback,
            } => {
                if let Some(byte) = byte_fallback.then(|| fallback_byte(token)).flatten() {
                    bytes.push(byte);
                } else {
                    append_with_spaces(token, replacement, bytes);
                }
            }
            Self::WordPiece => match token.strip_prefix(WORD_GOES_ON) {
                Some(rest) => bytes.extend_from_slice(rest.as_bytes()),
                None => {
                    bytes.push(b' ');
                    bytes.extend_from_slice(token.as_bytes());
                }
            },
        }
    }

    /// Appends the bytes of an added token: its text. In the metaspace spelling `▁` is a space
    /// here too: Gemma lists its runs of spaces as added tokens.
    pub(crate) fn append_added_token(self, content: &str, bytes: &mut Vec<u8>) {
        match self {
            Self::ByteLevel | Self::WordPiece => bytes.extend_from_slice(content.as_bytes()),
            Self::Metaspace { replacement, .. } => append_with_spaces(content, replacement, bytes),
        }
    }
}

fn append_with_spaces(text: &str, replacement: char, bytes: &mut Vec<u8>) {
    for (index, part) in text.split(replacement).enumerate() {
        if index > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(part.as_bytes());
    }
}

/// The byte of `<0xNN>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    // `from_str_radix` would take a sign.
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The byte that a character stands for in GPT-2's table: printable Latin-1 characters stand for
/// themselves, the other 68 bytes, in order, for the characters from U+0100 on.
fn byte_of_char(char: char) -> Option<u8> {
    match u32::from(char) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_table_is_gpt2s() {
        // Built the other way round: printable bytes keep their code, the rest count up.
        let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let mut next = 0x100;
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255_u8 {
            let code = if printable(byte) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            let char = char::from_u32(code).unwrap();
            assert_eq!(byte_of_char(char), Some(byte), "{char:?}");
            seen.insert(char);
        }
        let spelled = (0..0x300)
            .filter_map(char::from_u32)
            .filter(|&c| byte_of_char(c).is_some());
        assert_eq!(spelled.collect::<std::collections::HashSet<_>>(), seen);
    }

    fn bytes_of(spelling: Spelling, token: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        spelling.append_token(token, &mut bytes);
        bytes
    }

    #[test]
    fn byte_level_tokens() {
        let bytes = |token| bytes_of(Spelling::ByteLevel, token);
        assert_eq!(bytes("Ġhello"), b" hello");
        assert_eq!(bytes("Ċ"), b"\n");
        assert_eq!(bytes("ä½ł"), "你".as_bytes());
        // A character outside the table makes the whole token text.
        assert_eq!(bytes("Ġ你"), "Ġ你".as_bytes());
    }

    #[test]
    fn word_piece_tokens() {
        let bytes = |token| bytes_of(Spelling::WordPiece, token);
        assert_eq!(bytes("hello"), b" hello");
        assert_eq!(bytes("##ing"), b"ing");
        assert_eq!(bytes("#"), b" #");
    }

    #[test]
    fn metaspace_tokens() {
        let spelling = Spelling::Metaspace {
            replacement: '▁',
            byte_fallback: true,
        };
        let bytes = |token| bytes_of(spelling, token);
        assert_eq!(bytes("▁hello▁▁x"), b" hello  x");
        assert_eq!(bytes("<0xE4>"), [0xe4]);
        assert_eq!(bytes("<0x0a>"), [0x0a]);
        assert_eq!(bytes("<0x+1>"), b"<0x+1>");
        assert_eq!(bytes("<0xE4"), b"<0xE4");
        let no_fallback = Spelling::Metaspace {
            replacement: '▁',
            byte_fallback: false,
        };
        assert_eq!(bytes_of(no_fallback, "<0xE4>"), b"<0xE4>");
    }
}
