//! Where the Hub is, where its cache is, and who asks: the variables of Python's `huggingface_hub`.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::HubError;
use crate::limits::ANSWER_TIMEOUT;

const ENDPOINT: &str = "https://huggingface.co";

/// An access token. The secret is in no output of `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    /// Name of the variable or of the file that has it, for errors.
    source: String,
}

impl Token {
    /// A token as the Hub made it. `source` names the variable or the file that has it.
    pub fn new(secret: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            secret: secret.into(),
            source: source.into(),
        }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The value of the header `Authorization`.
    ///
    /// # Errors
    /// The token has characters that no token has.
    pub(crate) fn authorization(&self) -> Result<String, HubError> {
        match self.secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(format!("Bearer {}", self.secret)),
            false => Err(HubError::BrokenToken {
                source_name: self.source.clone(),
            }),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Where models come from and go to.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The Hub's address, without a slash at its end.
    pub endpoint: String,
    /// Folder with one folder for each repository.
    pub cache: PathBuf,
    /// Sent to the endpoint alone.
    pub token: Option<Token>,
    /// Answers from the cache alone.
    pub is_offline: bool,
    /// Goes through the proxy that `HTTPS_PROXY` and the like name.
    pub uses_proxy: bool,
    /// Pause before the second attempt; it doubles with each further one.
    pub retry_pause: Duration,
    /// Time for an answer of the Hub where the cache has the model.
    pub answer_timeout: Duration,
}

impl HubSettings {
    /// Settings from this process's environment.
    ///
    /// # Errors
    /// No variable says where the cache is, or the endpoint is no address.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Settings without a token, of an endpoint that nobody is at.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let none = |name: &str| (name == "HF_HOME").then(|| "/none".to_owned());
        #[allow(clippy::expect_used)]
        Self::from_variables(none).expect("a cache is given")
    }

    /// Settings from other variables than those of the process.
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        // A variable that is set to nothing says nothing.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is_true = |name: &str| {
            let value = variable(name).unwrap_or_default().to_ascii_uppercase();
            matches!(value.trim(), "1" | "ON" | "YES" | "TRUE")
        };
        let user = variable("HOME").map(PathBuf::from);
        let path = |name: &str| Some(PathBuf::from(expanded(&variable(name)?, variable)));
        let home = || {
            let cache = || path("XDG_CACHE_HOME").or_else(|| Some(user.as_ref()?.join(".cache")));
            path("HF_HOME").or_else(|| Some(cache()?.join("huggingface")))
        };
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| Some(home()?.join("hub")));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(HubError::Endpoint { endpoint });
        }
        let token = match is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => {
                let names = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];
                let given = names.map(|name| Some(Token::new(variable(name)?.trim(), name)));
                let file = || path("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")));
                let given = given.into_iter().flatten().next();
                given.or_else(|| token_of_file(&file()?))
            }
        };
        let seconds = variable("HF_HUB_ETAG_TIMEOUT").and_then(|value| value.trim().parse().ok());
        Ok(Self {
            endpoint,
            cache: cache.ok_or(HubError::NoHome)?,
            token,
            is_offline: is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"),
            uses_proxy: true,
            retry_pause: Duration::from_secs(1),
            answer_timeout: seconds.map_or(ANSWER_TIMEOUT, Duration::from_secs),
        })
    }
}

/// The token that a file has. One that can't be read is told in the log.
fn token_of_file(path: &Path) -> Option<Token> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(Token::new(text.trim(), path.display().to_string())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            None
        }
        Err(error) => {
            tracing::warn!(
                "the Hub gets no token: can't read {}: {error}",
                path.display()
            );
            None
        }
    }
}

/// A path with its `~`, `$NAME` and `${NAME}` replaced, as Python's `expanduser` and `expandvars` do. A
/// variable that isn't set stays as it is written.
fn expanded(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut rest = text;
    let mut expanded = String::new();
    if (text == "~" || text.starts_with("~/"))
        && let Some(home) = variable("HOME")
    {
        expanded.push_str(&home);
        rest = rest.get(1..).unwrap_or_default();
    }
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced = after
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'));
        let (name, behind) = braced
            .unwrap_or_else(|| after.split_at(after.find(|c| !is_word(c)).unwrap_or(after.len())));
        match variable(name) {
            Some(value) => {
                expanded.push_str(&value);
                rest = behind;
            }
            None => {
                expanded.push('$');
                rest = after;
            }
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<HubSettings, HubError> {
        HubSettings::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        for (variables, cache) in [
            (&[("HOME", "/u")][..], "/u/.cache/huggingface/hub"),
            (
                &[("HOME", "/u"), ("XDG_CACHE_HOME", "/x")],
                "/x/huggingface/hub",
            ),
            (&[("HOME", "/u"), ("HF_HOME", "/h")], "/h/hub"),
            (&[("HOME", "/u"), ("HF_HOME", "~/h")], "/u/h/hub"),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c"),
            (&[("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/o")], "/o"),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "")], "/h/hub"),
            (&[("HOME", "/u"), ("HF_HOME", "~")], "/u/hub"),
            (&[("HOME", "/u"), ("HF_HOME", "$HOME/x")], "/u/x/hub"),
            (
                &[("D", "d"), ("HF_HOME", "/${D}/$D$/~/$NONE")],
                "/d/d$/~/$NONE/hub",
            ),
        ] {
            let settings = settings(variables).unwrap();
            assert_eq!(settings.cache, PathBuf::from(cache), "{variables:?}");
        }
        assert!(matches!(settings(&[]), Err(HubError::NoHome)));
    }

    #[test]
    fn the_endpoint_and_being_offline() {
        let with = |name, value| settings(&[("HOME", "/u"), (name, value)]);
        let plain = settings(&[("HOME", "/u")]).unwrap();
        assert_eq!(
            (plain.endpoint.as_str(), plain.is_offline),
            (ENDPOINT, false)
        );
        let mirror = with("HF_ENDPOINT", "http://127.0.0.1:1/").unwrap();
        assert_eq!(mirror.endpoint, "http://127.0.0.1:1");
        let error = with("HF_ENDPOINT", "mirror.example").unwrap_err();
        assert!(error.to_string().contains("HF_ENDPOINT"), "{error}");
        for (value, is_offline) in [("1", true), ("true", true), ("On", true), ("0", false)] {
            assert_eq!(
                with("HF_HUB_OFFLINE", value).unwrap().is_offline,
                is_offline
            );
        }
        assert!(with("TRANSFORMERS_OFFLINE", "1").unwrap().is_offline);
    }

    #[test]
    fn the_token_is_a_variable_or_a_file_and_never_shown() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("token"), "from-file\n").unwrap();
        let home = home.path().to_str().unwrap();
        let token = |more: &[(&str, &str)]| {
            let variables = [&[("HF_HOME", home)], more].concat();
            settings(&variables).unwrap().token
        };
        let file = format!("{home}/token");
        assert_eq!(token(&[]), Some(Token::new("from-file", &file)));
        let given = [("HF_TOKEN", " given ")];
        assert_eq!(token(&given), Some(Token::new("given", "HF_TOKEN")));
        assert_eq!(token(&[("HF_TOKEN_PATH", "/none")]), None);
        // A folder has no token, which is told in the log.
        assert_eq!(token(&[("HF_TOKEN_PATH", home)]), None);
        let forbidden = ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        assert_eq!(token(&[forbidden]), None);
        assert_eq!(token(&[forbidden, ("HF_TOKEN", "given")]), None);
        for junk in ["a\nb", "é", "a b"] {
            let error = Token::new(junk, "HF_TOKEN").authorization().unwrap_err();
            let told = error.to_string();
            assert!(told.contains("HF_TOKEN") && !told.contains(junk), "{told}");
        }
        assert_eq!(format!("{:?}", Token::new("secret", "x")), "Token(..)");
    }
}
