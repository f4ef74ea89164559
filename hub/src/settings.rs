//! Where the Hub is, where its cache is, and who asks: the variables of Python's `huggingface_hub`.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::HubError;

const ENDPOINT: &str = "https://huggingface.co";

/// An access token. It is in no output of `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token as the Hub made it.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The secret.
    pub(crate) fn secret(&self) -> &str {
        &self.0
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
}

impl HubSettings {
    /// Settings from this process's environment.
    ///
    /// # Errors
    /// No variable says where the cache is, or the endpoint is no address.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var(name).ok())
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
        let path = |name: &str| {
            let value = variable(name)?;
            Some(match (value.strip_prefix("~/"), &user) {
                (Some(rest), Some(user)) => user.join(rest),
                _ => PathBuf::from(value),
            })
        };
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
        let token_file = || {
            let path = path("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")))?;
            fs::read_to_string(path).ok()
        };
        let token = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
        let token = token.or_else(|| match is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => token_file(),
        });
        let token = token.map(|token| token.trim().to_owned());
        Ok(Self {
            endpoint,
            cache: cache.ok_or(HubError::NoHome)?,
            token: token.filter(|token| !token.is_empty()).map(Token),
            is_offline: is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"),
            uses_proxy: true,
            retry_pause: Duration::from_secs(1),
        })
    }
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
        assert_eq!(token(&[]), Some(Token::new("from-file")));
        assert_eq!(token(&[("HF_TOKEN", " given ")]), Some(Token::new("given")));
        assert_eq!(token(&[("HF_TOKEN_PATH", "/none")]), None);
        assert_eq!(token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(format!("{:?}", Token::new("secret")), "Token(..)");
    }
}
