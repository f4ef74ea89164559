//! Token ids to text, one token at a time.

use crate::Tokenizer;

/// Most bytes of a character whose end is still missing.
const MAX_INCOMPLETE: usize = 3;

/// Turns token ids into text as they come.
///
/// A character whose bytes are spread over several tokens is held back until its last byte is
/// there; bytes that can't become a character turn into U+FFFD as soon as that is certain. So
/// the pieces, joined, equal [`Tokenizer::decode`] of all ids at once, whatever the ids.
///
/// Costs one copy of the token's bytes per step; holds at most three bytes of text.
///
/// ```no_run
/// # use tokenizer::{DecodeStream, Tokenizer};
/// # let tokenizer = Tokenizer::from_files("model".as_ref())?;
/// # let (prompt, output) = (vec![1_u32], vec![2_u32]);
/// let mut stream = DecodeStream::after_prompt(&tokenizer, &prompt, true);
/// let mut text = String::new();
/// for token_id in output {
///     stream.step(&tokenizer, token_id, &mut text);
/// }
/// stream.finish(&mut text);
/// # Ok::<(), tokenizer::TokenizerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct DecodeStream {
    skip_special_tokens: bool,
    /// Start of a character whose end is missing.
    incomplete: Vec<u8>,
    /// Spaces that may still be dropped, at the text's start.
    leading_spaces: usize,
}

impl DecodeStream {
    /// A stream at the start of a text.
    pub fn new(tokenizer: &Tokenizer, skip_special_tokens: bool) -> Self {
        Self {
            skip_special_tokens,
            incomplete: Vec::new(),
            leading_spaces: tokenizer.leading_spaces(),
        }
    }

    /// A stream that goes on after a prompt: the first word keeps its leading space, and a
    /// character that the prompt left unfinished is written whole once it is complete.
    pub fn after_prompt(
        tokenizer: &Tokenizer,
        prompt_token_ids: &[u32],
        skip_special_tokens: bool,
    ) -> Self {
        let mut stream = Self::new(tokenizer, skip_special_tokens);
        // The last tokens with text: as many as an incomplete character can reach back.
        let mut tail: Vec<&[u8]> = Vec::new();
        let mut tail_len = 0;
        for &token_id in prompt_token_ids.iter().rev() {
            let bytes = stream.text_bytes(tokenizer, token_id);
            if !bytes.is_empty() {
                tail.push(bytes);
                tail_len += bytes.len();
            }
            if tail_len > MAX_INCOMPLETE {
                break;
            }
        }
        if tail_len > 0 {
            stream.leading_spaces = 0;
        }
        let mut unused = String::new();
        for bytes in tail.into_iter().rev() {
            stream.push_bytes(bytes, &mut unused);
        }
        stream
    }

    /// Appends to `text` what `token_id` completes: often its whole text, sometimes nothing yet.
    /// Ids that the tokenizer doesn't have write nothing.
    pub fn step(&mut self, tokenizer: &Tokenizer, token_id: u32, text: &mut String) {
        let mut bytes = self.text_bytes(tokenizer, token_id);
        while self.leading_spaces > 0 && !bytes.is_empty() {
            match bytes.strip_prefix(b" ") {
                Some(rest) => {
                    bytes = rest;
                    self.leading_spaces -= 1;
                }
                None => self.leading_spaces = 0,
            }
        }
        self.push_bytes(bytes, text);
    }

    /// Ends the text: a character whose end never came becomes U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.incomplete));
        self.incomplete.clear();
    }

    fn text_bytes<'a>(&self, tokenizer: &'a Tokenizer, token_id: u32) -> &'a [u8] {
        if self.skip_special_tokens && tokenizer.is_special_token(token_id) {
            &[]
        } else {
            tokenizer.token_bytes(token_id)
        }
    }

    fn push_bytes(&mut self, bytes: &[u8], text: &mut String) {
        if self.incomplete.is_empty() {
            self.incomplete = append_complete(bytes, text).to_vec();
        } else {
            let mut joined = std::mem::take(&mut self.incomplete);
            joined.extend_from_slice(bytes);
            self.incomplete = append_complete(&joined, text).to_vec();
        }
    }
}

/// Appends all of `bytes` but an incomplete character at their end, which it returns.
fn append_complete<'a>(bytes: &'a [u8], text: &mut String) -> &'a [u8] {
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, invalid) = rest.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        match error.error_len() {
            None => return invalid,
            Some(len) => {
                text.push(char::REPLACEMENT_CHARACTER);
                rest = invalid.get(len..).unwrap_or_default();
            }
        }
    }
}
