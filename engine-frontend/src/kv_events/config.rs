//! `--kv-events-config`: vLLM's fields.

use serde::Deserialize;

use super::endpoint::Endpoint;
use crate::json_problem::json_problem;

/// How events are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KVEventsConfig {
    /// True if there are events.
    pub(crate) is_enabled: bool,
    /// Where the first core's are published.
    pub(crate) endpoint: Endpoint,
    /// Where the first core's are asked for again.
    pub(crate) replay_endpoint: Option<Endpoint>,
    /// Batches that can be asked for again.
    pub(crate) buffer_steps: usize,
    /// Batches that wait for a subscriber; with one more the oldest is dropped. The smaller one of vLLM's `hwm` and
    /// `max_queue_size`: here is one queue, where vLLM has one before the other.
    pub(crate) max_waiting: usize,
    /// The first frame of every message.
    pub(crate) topic: String,
}

/// The fields as they are written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fields {
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

/// Longest topic in bytes: it is a part of every message.
const MAX_TOPIC: usize = 1024;

impl KVEventsConfig {
    /// Reads the flag.
    ///
    /// # Errors
    /// The field, what is wrong with it and what would be right.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let fields: Fields = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
        let has_publisher = match fields.publisher.as_deref() {
            Some("zmq") | None => true,
            Some("null") => false,
            Some(other) => {
                return Err(format!(
                    "publisher must be \"zmq\" or \"null\", got {other:?}"
                ));
            }
        };
        if fields.publisher.as_deref() == Some("zmq") && !fields.enable_kv_cache_events {
            return Err(
                "publisher is zmq, and there are no events to publish: enable_kv_cache_events must be true".to_owned(),
            );
        }
        for (field, value) in [
            ("buffer_steps", fields.buffer_steps),
            ("hwm", fields.hwm),
            ("max_queue_size", fields.max_queue_size),
        ] {
            if value == 0 {
                return Err(format!("{field} must be at least 1, got 0"));
            }
        }
        if fields.topic.len() > MAX_TOPIC {
            let length = fields.topic.len();
            return Err(format!(
                "topic must have at most {MAX_TOPIC} bytes, got {length}"
            ));
        }
        let endpoint = Endpoint::parse(&fields.endpoint);
        let replay_endpoint = fields.replay_endpoint.as_deref().map(Endpoint::parse_bound);
        let config = Self {
            is_enabled: fields.enable_kv_cache_events && has_publisher,
            endpoint: endpoint.map_err(|problem| format!("endpoint: {problem}"))?,
            replay_endpoint: replay_endpoint
                .transpose()
                .map_err(|problem| format!("replay_endpoint: {problem}"))?,
            buffer_steps: fields.buffer_steps,
            max_waiting: fields.hwm.min(fields.max_queue_size),
            topic: fields.topic,
        };
        if config.is_enabled {
            config.verify_for(1)?;
        }
        Ok(config)
    }

    /// Refuses addresses that so many cores can't have.
    ///
    /// # Errors
    /// The field, what is wrong with it and what would be right.
    pub(crate) fn verify_for(&self, num_cores: u32) -> Result<(), String> {
        let fields = [
            ("endpoint", Some(&self.endpoint)),
            ("replay_endpoint", self.replay_endpoint.as_ref()),
        ];
        for (field, endpoint) in fields {
            let Some(endpoint) = endpoint else { continue };
            let Some(port) = endpoint.port() else {
                if num_cores > 1 {
                    return Err(format!(
                        "{field} is {endpoint}, one socket, and {num_cores} cores need one each: use tcp, where each has \
                         the next port"
                    ));
                }
                continue;
            };
            if u32::from(port) + num_cores - 1 > u32::from(u16::MAX) {
                return Err(format!(
                    "{field} is {endpoint}, and {num_cores} cores have the ports from there on: the first must be at \
                     most {}",
                    u32::from(u16::MAX) + 1 - num_cores
                ));
            }
        }
        let Some(replay) = &self.replay_endpoint else {
            return Ok(());
        };
        let is_taken = match (self.endpoint.port(), replay.port()) {
            _ if self.endpoint.connects_to().is_some() => false,
            (Some(one), Some(other)) => u32::from(one.abs_diff(other)) < num_cores,
            _ => self.endpoint == *replay,
        };
        if is_taken {
            return Err(format!(
                "replay_endpoint is {replay} and endpoint {}: each core needs both for itself, so their ports must be at \
                 least {num_cores} apart",
                self.endpoint
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_vllm() {
        let config = KVEventsConfig::from_json(r#"{"enable_kv_cache_events": true}"#).unwrap();
        assert!(config.is_enabled);
        assert_eq!(config.endpoint.to_string(), "tcp://*:5557");
        assert_eq!(config.replay_endpoint, None);
        assert_eq!((config.buffer_steps, config.max_waiting), (10_000, 100_000));
        assert_eq!(config.topic, "");
        let off = |text: &str| !KVEventsConfig::from_json(text).unwrap().is_enabled;
        assert!(off("{}"));
        assert!(off(
            r#"{"enable_kv_cache_events": true, "publisher": "null"}"#
        ));
    }

    #[test]
    fn the_smaller_queue_counts() {
        let text = r#"{"enable_kv_cache_events": true, "publisher": "zmq", "hwm": 7, "max_queue_size": 9,
            "topic": "kv@10.0.0.1@m", "replay_endpoint": "tcp://*:5558", "buffer_steps": 3}"#;
        let config = KVEventsConfig::from_json(text).unwrap();
        assert_eq!((config.buffer_steps, config.max_waiting), (3, 7));
        assert_eq!(config.topic, "kv@10.0.0.1@m");
        let replay = config.replay_endpoint.as_ref().unwrap();
        assert_eq!(replay.to_string(), "tcp://*:5558");
        // Two cores would have 5557 and 5558, and 5558 and 5559.
        let problem = config.verify_for(2).unwrap_err();
        assert!(problem.contains("at least 2 apart"), "{problem}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let on = |rest: &str| format!(r#"{{"enable_kv_cache_events": true, {rest}}}"#);
        for (text, says) in [
            (
                on(r#""publisher": "kafka""#),
                "publisher must be \"zmq\" or \"null\", got \"kafka\"",
            ),
            (
                r#"{"publisher": "zmq"}"#.to_owned(),
                "enable_kv_cache_events must be true",
            ),
            (on(r#""hwm": 0"#), "hwm must be at least 1, got 0"),
            (on(r#""buffer_step": 1"#), "unknown field `buffer_step`"),
            (
                on(r#""endpoint": "udp://*:1""#),
                "endpoint: must be tcp://*:PORT",
            ),
            (
                on(r#""replay_endpoint": "5558""#),
                "replay_endpoint: must be tcp://*:PORT",
            ),
            (
                on(r#""replay_endpoint": "tcp://*:5557""#),
                "replay_endpoint is tcp://*:5557 and endpoint tcp://*:5557",
            ),
        ] {
            let problem = KVEventsConfig::from_json(&text).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
        let of = |text: &str| KVEventsConfig::from_json(&on(text)).unwrap();
        let problem = of(r#""endpoint": "tcp://*:65535""#)
            .verify_for(2)
            .unwrap_err();
        assert!(problem.contains("at most 65534"), "{problem}");
        let problem = of(r#""endpoint": "ipc:///e""#).verify_for(2).unwrap_err();
        assert!(problem.contains("ipc:///e, one socket"), "{problem}");
        // Connecting takes no port of this machine.
        let connects = r#""endpoint": "tcp://collector:5558", "replay_endpoint": "tcp://*:5558""#;
        assert_eq!(of(connects).verify_for(2), Ok(()));
    }
}
