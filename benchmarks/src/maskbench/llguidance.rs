//! llguidance, the peer.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::SimpleVob;
use llguidance::{Matcher, ParserFactory};
use toktrie_hf_tokenizers::ByteTokenizer;

use super::{Case, EngineError, MaskEngine, MaskMatcher};

/// llguidance with its default options and its slices for JSON.
pub struct Llguidance {
    factory: Arc<ParserFactory>,
}

impl Llguidance {
    /// An engine for a `tokenizer.json`.
    ///
    /// # Errors
    /// A tokenizer that it can't use.
    pub fn new(tokenizer_json: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            factory: parser_factory(tokenizer_json)?,
        })
    }
}

/// What llguidance makes parsers with for a `tokenizer.json`: its default options, its slices for JSON, no
/// output of its own.
///
/// # Errors
/// A tokenizer that it can't use.
pub fn parser_factory(tokenizer_json: &Path) -> anyhow::Result<Arc<ParserFactory>> {
    let file = tokenizer_json
        .to_str()
        .context("the path is not valid UTF-8")?;
    let tokens = ByteTokenizer::from_file(file)?.into_tok_env(None)?;
    let slices = SlicedBiasComputer::json_slices();
    let mut factory = ParserFactory::new(&tokens, Default::default(), &slices)?;
    factory.quiet();
    Ok(Arc::new(factory))
}

impl MaskEngine for Llguidance {
    fn name(&self) -> &str {
        "llguidance"
    }

    fn compile(&mut self, case: &Case) -> Result<Box<dyn MaskMatcher>, EngineError> {
        let grammar = TopLevelGrammar::from_json_schema(case.schema.clone());
        let compiled = Matcher::new(self.factory.create_parser(grammar));
        match compiled.get_error() {
            Some(message) => Err(EngineError(message)),
            None => Ok(Box::new(Session {
                compiled,
                matcher: None,
                mask: None,
            })),
        }
    }

    /// It keeps nothing between schemas.
    fn drop_caches(&mut self) {}
}

/// A compiled schema, and a copy of it at a place in an instance.
struct Session {
    compiled: Matcher,
    matcher: Option<Matcher>,
    /// Its masks are dense rows of their own.
    mask: Option<SimpleVob>,
}

impl Session {
    fn matcher(&mut self) -> Result<&mut Matcher, EngineError> {
        self.matcher
            .as_mut()
            .ok_or_else(|| EngineError("not started".to_owned()))
    }
}

impl MaskMatcher for Session {
    fn start(&mut self) -> Result<(), EngineError> {
        self.matcher = Some(self.compiled.deep_clone());
        Ok(())
    }

    fn compute_mask(&mut self) -> Result<(), EngineError> {
        let mask = self.matcher()?.compute_mask();
        self.mask = Some(mask.map_err(|error| EngineError(error.to_string()))?);
        Ok(())
    }

    fn is_allowed(&self, token_id: u32) -> bool {
        self.mask
            .as_ref()
            .is_some_and(|mask| mask.is_allowed(token_id))
    }

    fn accept_token(&mut self, token_id: u32) -> Result<bool, EngineError> {
        Ok(self.matcher()?.consume_token(token_id).is_ok())
    }
}
