//! [`Tokenizer`]: one loaded tokenizer with everything that stands beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use structured_output::TokenizerInfo;
use tokenizers::{NormalizedString, Normalizer};

use crate::chat_template::{ChatTemplateError, ChatTemplateRequest, ChatTemplates};
use crate::config::{GenerationConfig, TokenName, TokenizerConfig};
use crate::decode_stream::DecodeStream;
use crate::error::TokenizerError;
use crate::files::{GENERATION_CONFIG_JSON, TOKENIZER_CONFIG_JSON, TokenizerFiles};
use crate::json_limits;
use crate::token_bytes::{Decoding, Spelling};
use crate::tokenizer_json::TokenizerJson;
use crate::word_ends::WordEnds;

/// Longest token of a vocabulary in bytes: its index takes a hundred bytes and more for each of them.
const MAX_TOKEN_BYTES: usize = 1 << 16;

/// A tokenizer: text to token ids and back, what each token writes, which tokens are special,
/// and the chat template and sampling defaults that stand beside it.
///
/// Immutable, `Send + Sync`. Encoding is done by the `tokenizers` library. Decoding is ours, over
/// [`token_bytes`](Self::token_bytes), so that text decoded at once and text decoded token by
/// token ([`DecodeStream`]) are the same for any ids.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    fingerprint: String,
    /// All tokens' bytes; token `t` is `bytes[ends[t - 1]..ends[t]]`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    leading_spaces: usize,
    word_ends: WordEnds,
    special_token_ids: Vec<u32>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<u32>,
    stop_token_ids: Vec<u32>,
    generation_config: GenerationConfig,
    chat_templates: ChatTemplates,
}

impl Tokenizer {
    /// Loads a Hugging Face folder: `tokenizer.json`, and where they are there
    /// `tokenizer_config.json`, `chat_template.jinja` and `generation_config.json`. Or a GGUF file,
    /// whose metadata says the same.
    ///
    /// # Errors
    /// [`TokenizerError`], which names the file and in it the field or line. A chat template
    /// that doesn't compile is no error here but in
    /// [`apply_chat_template`](Self::apply_chat_template): prompts without one still work.
    pub fn from_files(path: &Path) -> Result<Self, TokenizerError> {
        let files = if path.is_file() {
            crate::gguf::open(path).map_err(|source| TokenizerError::Gguf {
                path: path.to_owned(),
                source: Box::new(source),
            })?
        } else {
            TokenizerFiles::from_folder(path)?
        };
        Self::load(&files)
    }

    /// The same from files in memory, as `(name, contents)`. Other names are ignored.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files).
    pub fn from_bytes(files: &[(&str, &[u8])]) -> Result<Self, TokenizerError> {
        Self::load(&TokenizerFiles::from_list(files)?)
    }

    fn load(files: &TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        let json = TokenizerJson::parse(&files.tokenizer_json)?;
        json_limits::check(&json)?;
        let decoding = Decoding::new(json.decoder.as_ref())?;
        let config = TokenizerConfig::parse(files)?;
        let generation_config = GenerationConfig::parse(files)?;

        let invalid = |error: tokenizers::Error| TokenizerError::Invalid {
            message: error.to_string(),
        };
        let mut inner = without_panic(|| tokenizers::Tokenizer::from_bytes(&files.tokenizer_json))
            .map_err(|message| TokenizerError::Invalid { message })?;
        // A file may carry settings of a training run; prompts are never cut or padded here.
        inner.with_truncation(None).map_err(invalid)?;
        inner.with_padding(None);

        let (bytes, ends) = token_table(&inner, decoding.spelling)?;
        let mut special_token_ids: Vec<u32> = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(&id, _)| id)
            .collect();
        special_token_ids.sort_unstable();

        let bos_token_id = config_token_id(&inner, "bos_token", config.bos_token.as_ref())?;
        let eos_token_id = config_token_id(&inner, "eos_token", config.eos_token.as_ref())?
            .or_else(|| generation_config.eos_token_ids.first().copied());
        let mut stop_token_ids = generation_config.eos_token_ids.clone();
        if let Some(&token_id) = stop_token_ids.iter().find(|&&id| id as usize >= ends.len()) {
            return Err(TokenizerError::UnknownTokenId {
                file: GENERATION_CONFIG_JSON,
                field: "eos_token_id",
                token_id,
                vocab_size: ends.len(),
            });
        }
        stop_token_ids.extend(eos_token_id);
        stop_token_ids.sort_unstable();
        stop_token_ids.dedup();

        Ok(Self {
            fingerprint: blake3::hash(&files.tokenizer_json).to_hex().to_string(),
            bytes,
            ends,
            leading_spaces: decoding.leading_spaces,
            word_ends: WordEnds::new(&json),
            special_token_ids,
            bos_token_id,
            eos_token_id,
            stop_token_ids,
            generation_config,
            chat_templates: ChatTemplates::new(&config),
            inner,
        })
    }

    /// The token ids of `text`. Added tokens are recognised in it. `add_special_tokens` adds what
    /// the file's post-processor says (often a beginning-of-text token): true for plain prompts,
    /// false for rendered chat templates, which write their own.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], where the library fails.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoded = without_panic(|| self.inner.encode_fast(text, add_special_tokens));
        encoded
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|message| TokenizerError::Encode { message })
    }

    /// What [`Self::encode`] with `add_special_tokens` makes of a text that has these tokens without. `None` where
    /// that isn't known: the post-processor writes between a text's tokens.
    pub fn with_special_tokens(&self, token_ids: &[u32]) -> Option<Vec<u32>> {
        let any = "a";
        let plain = self.encode(any, false).ok().filter(|ids| !ids.is_empty())?;
        let whole = self.encode(any, true).ok()?;
        let mut places = whole.windows(plain.len());
        let start = places.position(|ids| ids == plain)?;
        let (before, rest) = whole.split_at(start);
        Some([before, token_ids, rest.get(plain.len()..)?].concat())
    }

    /// Bytes of a text once the tokenizer has normalized it, which is before it looks for tokens.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], where the library fails.
    pub fn normalized_len(&self, text: &str) -> Result<usize, TokenizerError> {
        let Some(normalizer) = self.inner.get_normalizer() else {
            return Ok(text.len());
        };
        let normalized = without_panic(|| {
            let mut normalized = NormalizedString::from(text);
            normalizer.normalize(&mut normalized)?;
            Ok(normalized.get().len())
        });
        normalized.map_err(|message| TokenizerError::Encode { message })
    }

    /// The token ids of two texts as the file's post-processor puts them together, and the first place whose
    /// tokens have the type 1, where there is one: BERT's second text. Without a template for pairs the second
    /// text follows the first. `add_special_tokens` as in [`Self::encode`].
    ///
    /// What is above `max_length` tokens is cut off the ends of the texts, of the longer one first, until both are
    /// equally long (`longest_first` of the `tokenizers` library). What the post-processor adds stays, even where
    /// that alone is longer.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], where the library fails.
    pub fn encode_pair(
        &self,
        text: &str,
        second: &str,
        add_special_tokens: bool,
        max_length: Option<usize>,
    ) -> Result<(Vec<u32>, Option<usize>), TokenizerError> {
        let encoded = without_panic(|| self.inner.encode_fast((text, second), add_special_tokens));
        let encoding = encoded.map_err(|message| TokenizerError::Encode { message })?;
        let (ids, types) = (encoding.get_ids(), encoding.get_type_ids());
        let of_type_1 = |types: &[u32]| types.iter().position(|&id| id != 0);
        let max_length = match max_length {
            Some(max_length) if max_length < ids.len() => max_length,
            _ => return Ok((ids.to_vec(), of_type_1(types))),
        };
        let sequences = encoding.get_sequence_ids();
        let length = |text| sequences.iter().filter(|s| **s == Some(text)).count();
        let mut left = longest_first([length(0), length(1)], ids.len() - max_length, max_length);
        let tokens = ids.iter().zip(types).zip(sequences);
        let kept = tokens.filter(|(_, sequence)| {
            let left = sequence.and_then(|text| left.get_mut(text));
            left.is_none_or(|left| match left.checked_sub(1) {
                Some(fewer) => {
                    *left = fewer;
                    true
                }
                None => false,
            })
        });
        let (ids, types): (Vec<u32>, Vec<u32>) = kept.map(|((id, kind), _)| (*id, *kind)).unzip();
        Ok((ids, of_type_1(&types)))
    }

    /// Whether a text is always encoded as its two parts are, one by one, where it is cut between these
    /// two characters. So where a word ends, of most byte-level tokenizers; false where that is not known.
    pub fn encodes_apart(&self, before: char, after: char) -> bool {
        self.word_ends.is_between(before, after)
    }

    /// The text of `token_ids`; bytes that are no UTF-8 become U+FFFD, ids that the tokenizer
    /// doesn't have write nothing. `skip_special_tokens` leaves out control tokens.
    pub fn decode(&self, token_ids: &[u32], skip_special_tokens: bool) -> String {
        let mut stream = DecodeStream::new(self, skip_special_tokens);
        let mut text = String::new();
        for &token_id in token_ids {
            stream.step(self, token_id, &mut text);
        }
        stream.finish(&mut text);
        text
    }

    /// The id of a token as `tokenizer.json` spells it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// A token as `tokenizer.json` spells it.
    pub fn id_to_token(&self, token_id: u32) -> Option<String> {
        self.inner.id_to_token(token_id)
    }

    /// Highest token id plus 1. A model's logits may be wider.
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }

    /// What a token writes; empty for ids without a token.
    pub fn token_bytes(&self, token_id: u32) -> &[u8] {
        let token = token_id as usize;
        let Some(&end) = self.ends.get(token) else {
            return &[];
        };
        let start = match token.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => 0,
        };
        &self.bytes[start..end]
    }

    /// Control tokens (`special: true`), ascending. They are never text. Other added tokens are.
    pub fn special_token_ids(&self) -> &[u32] {
        &self.special_token_ids
    }

    /// Whether a token is a control token.
    pub fn is_special_token(&self, token_id: u32) -> bool {
        self.special_token_ids.binary_search(&token_id).is_ok()
    }

    /// The beginning-of-text token of `tokenizer_config.json`.
    pub fn bos_token_id(&self) -> Option<u32> {
        self.bos_token_id
    }

    /// The end-of-text token of `tokenizer_config.json`, or where that names none, the first of
    /// `generation_config.json`.
    pub fn eos_token_id(&self) -> Option<u32> {
        self.eos_token_id
    }

    /// Every token that ends the text: [`eos_token_id`](Self::eos_token_id) and those of
    /// `generation_config.json`, ascending, each once.
    pub fn stop_token_ids(&self) -> &[u32] {
        &self.stop_token_ids
    }

    /// The model's own defaults for sampling.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation_config
    }

    /// blake3 of `tokenizer.json` in hex (of what stands for it in a GGUF file): two processes with equal fingerprints mean the same
    /// text by the same ids.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The chat templates beside the tokenizer.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.chat_templates
    }

    /// The same with this chat template instead of its own.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`], with the line.
    pub fn with_chat_template(mut self, source: &str) -> Result<Self, ChatTemplateError> {
        let template = self.chat_templates.compile(source)?;
        self.chat_templates.replace(template);
        Ok(self)
    }

    /// The prompt of a conversation, by the model's chat template. Encode it without special
    /// tokens: it writes its own.
    ///
    /// # Errors
    /// [`ChatTemplateError`]: there is no template, it doesn't compile, or it fails on these
    /// messages.
    pub fn apply_chat_template(
        &self,
        request: &ChatTemplateRequest<'_>,
    ) -> Result<String, ChatTemplateError> {
        self.chat_templates
            .select(request.tools.is_some())?
            .render(request)
    }

    /// The vocabulary for structured output. `vocab_size` is the width of the model's logits;
    /// every token of [`stop_token_ids`](Self::stop_token_ids) ends the text.
    ///
    /// # Errors
    /// [`TokenizerError::TokenizerInfo`], for instance where `vocab_size` is less than
    /// [`vocab_size`](Self::vocab_size) or the tokenizer has no end-of-text token.
    pub fn tokenizer_info(&self, vocab_size: usize) -> Result<TokenizerInfo, TokenizerError> {
        let vocab: Vec<Vec<u8>> = (0..self.ends.len() as u32)
            .map(|token_id| self.token_bytes(token_id).to_vec())
            .collect();
        Ok(TokenizerInfo::new(
            &vocab,
            vocab_size,
            &self.stop_token_ids,
            &self.special_token_ids,
        )?)
    }

    /// Most spaces that decoding drops at a text's start.
    pub(crate) fn leading_spaces(&self) -> usize {
        self.leading_spaces
    }
}

/// How many tokens of two texts of these lengths stay where this many are to go, of `max_length` that all of them may
/// be. Where an odd number has to be shared out, the longer text gets one more; of texts that are equally long, or both
/// longer than `max_length`, the second: so does the `tokenizers` library.
fn longest_first(lengths: [usize; 2], excess: usize, max_length: usize) -> [usize; 2] {
    let [first, second] = lengths.map(|length| length.min(max_length));
    let room = lengths.iter().sum::<usize>().saturating_sub(excess);
    let shorter = first.min(second).min(room / 2);
    match first > second {
        true => [room - shorter, shorter],
        false => [shorter, room - shorter],
    }
}

/// Calls the `tokenizers` library, which panics on some broken files: that is an error of the file here.
fn without_panic<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizers library panicked on it".to_owned()),
    }
}

/// The bytes of all tokens in one block, and where each ends in it. Ids without a token are empty.
fn token_table(
    inner: &tokenizers::Tokenizer,
    spelling: Spelling,
) -> Result<(Vec<u8>, Vec<usize>), TokenizerError> {
    let vocab = inner.get_vocab(false);
    let added_tokens = inner.get_added_tokens_decoder();
    // An id in both is an added token.
    let mut tokens: Vec<(u32, &str, bool)> = vocab
        .iter()
        .filter(|(_, id)| !added_tokens.contains_key(id))
        .map(|(token, &id)| (id, token.as_str(), false))
        .collect();
    tokens.extend(
        added_tokens
            .iter()
            .map(|(&id, token)| (id, token.content.as_str(), true)),
    );
    tokens.sort_unstable_by_key(|&(id, ..)| id);

    // Ids index a table; a file with a far-off id would make it enormous.
    let max_id = tokens.last().map_or(0, |&(id, ..)| id as usize);
    if max_id >= tokens.len().saturating_mul(4).saturating_add(1024) {
        return Err(TokenizerError::Invalid {
            message: format!(
                "token id {max_id} is far beyond its {} tokens",
                tokens.len()
            ),
        });
    }
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(max_id + 1);
    for (id, token, is_added) in tokens {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenizerError::Unsupported {
                field: "model.vocab",
                value: format!("a token of {} bytes", token.len()),
                supported: "tokens of at most 65,536 bytes",
            });
        }
        ends.resize(id as usize, bytes.len());
        if is_added {
            spelling.append_added_token(token, &mut bytes);
        } else {
            spelling.append_token(token, &mut bytes);
        }
        ends.push(bytes.len());
    }
    Ok((bytes, ends))
}

/// The id of a token that `tokenizer_config.json` names.
fn config_token_id(
    inner: &tokenizers::Tokenizer,
    field: &'static str,
    token: Option<&TokenName>,
) -> Result<Option<u32>, TokenizerError> {
    let Some(token) = token.map(TokenName::content) else {
        return Ok(None);
    };
    match inner.token_to_id(token) {
        Some(token_id) => Ok(Some(token_id)),
        None => Err(TokenizerError::UnknownToken {
            file: TOKENIZER_CONFIG_JSON,
            field,
            token: token.chars().take(80).collect(),
        }),
    }
}
