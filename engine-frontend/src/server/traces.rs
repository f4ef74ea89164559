//! The server's side of distributed tracing: where traces go, and which trace a request belongs to.

use axum::http::{HeaderMap, Uri};

/// Headers of the W3C trace context.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];
/// Longest value of one; the standard asks to pass on at least this much.
const MAX_TRACE_HEADER: usize = 512;

/// `--otlp-traces-endpoint`: exists only in builds that can send traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpTracesEndpoint(Uri);

impl OtlpTracesEndpoint {
    /// Reads the flag.
    ///
    /// # Errors
    /// It is no `http:` URL, or this build sends no traces.
    pub fn parse(url: &str) -> Result<Self, String> {
        if cfg!(not(feature = "opentelemetry")) {
            return Err(
                "this build sends no traces; build it with `--features opentelemetry`".to_owned(),
            );
        }
        let uri: Option<Uri> = url.parse().ok();
        let uri = uri.filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
        uri.map(Self)
            .ok_or_else(|| "must be a URL such as http://localhost:4318/v1/traces".to_owned())
    }

    /// The collector's URL, with its path.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

/// The request's trace context. What is too long, or no text, counts as absent.
pub(super) fn extract_trace_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &str| headers.get(name)?.to_str().ok();
    TRACE_HEADERS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), value(name)?.to_owned())))
        .filter(|(_, value)| value.len() <= MAX_TRACE_HEADER)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_trace_context_is_taken() {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", "00-1-2-01".parse().unwrap());
        headers.insert("tracestate", "x".repeat(513).parse().unwrap());
        headers.insert("authorization", "Bearer k".parse().unwrap());
        let expected = [("traceparent".to_owned(), "00-1-2-01".to_owned())];
        assert_eq!(extract_trace_headers(&headers), expected);
        headers.insert("tracestate", "a=b".parse().unwrap());
        assert_eq!(extract_trace_headers(&headers).len(), 2);
    }

    #[cfg(not(feature = "opentelemetry"))]
    #[test]
    fn a_build_without_traces_names_the_feature() {
        let error = OtlpTracesEndpoint::parse("http://localhost:4318/v1/traces").unwrap_err();
        assert!(error.contains("--features opentelemetry"), "{error}");
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn an_endpoint_is_an_http_url() {
        let endpoint = OtlpTracesEndpoint::parse("http://localhost:4318/v1/traces").unwrap();
        assert_eq!(endpoint.uri().path(), "/v1/traces");
        for wrong in [
            "",
            "localhost:4318",
            "https://a.example/v1/traces",
            "/v1/traces",
        ] {
            let error = OtlpTracesEndpoint::parse(wrong).unwrap_err();
            assert!(
                error.contains("http://localhost:4318/v1/traces"),
                "{wrong}: {error}"
            );
        }
    }
}
