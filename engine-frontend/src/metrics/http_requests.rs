//! HTTP requests by route, method and status: labels of a number that no client can raise.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Histogram;
use super::text::TextWriter;

const HTTP_TIME: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// The handler of requests that no route answers. Anybody can make up their paths.
const NO_HANDLER: &str = "none";

/// The methods of RFC 9110 and PATCH.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];
/// Those that count for their route. Others would multiply the routes, which anybody can ask by each.
const ROUTE_METHODS: [&str; 2] = ["GET", "POST"];

/// The name of a method in metrics and logs: anybody can make up methods, of any length.
pub(crate) fn method_label(method: &str) -> &'static str {
    let known = METHODS.into_iter().find(|known| *known == method);
    known.unwrap_or("other")
}

/// What is counted of each route.
#[derive(Debug, Default)]
pub(super) struct HttpRequests(BTreeMap<String, Handler>);

#[derive(Debug, Default)]
struct Handler {
    /// By method and status.
    requests: BTreeMap<(&'static str, u16), u64>,
    /// By method, of requests that were not refused.
    duration: BTreeMap<&'static str, Histogram>,
}

impl HttpRequests {
    /// Counts a request. `route` is the path as the router writes it.
    pub(super) fn record(
        &mut self,
        route: Option<&str>,
        method: &str,
        status: u16,
        duration: Duration,
    ) {
        let method = method_label(method);
        let route = route.filter(|_| ROUTE_METHODS.contains(&method));
        let name = route.unwrap_or(NO_HANDLER);
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Handler::default());
        }
        let Some(handler) = self.0.get_mut(name) else {
            return;
        };
        *handler.requests.entry((method, status)).or_default() += 1;
        let is_refused = (400..500).contains(&status);
        if !is_refused && route.is_some() {
            let histogram = handler.duration.entry(method);
            histogram
                .or_insert_with(|| Histogram::new(HTTP_TIME))
                .observe(duration.as_secs_f64());
        }
    }

    pub(super) fn write(&self, text: &mut TextWriter) {
        let name = "http_requests_total";
        text.family(name, "counter", "HTTP requests, by route and status.");
        for (route, handler) in &self.0 {
            for ((method, status), count) in &handler.requests {
                let labels = [
                    ("handler", route.as_str()),
                    ("method", method),
                    ("status", &status.to_string()),
                ];
                text.sample(name, &labels, count);
            }
        }
        let name = "http_request_duration_seconds";
        let help = "Time until an answer began, by route; of requests that were not refused.";
        text.family(name, "histogram", help);
        for (route, handler) in &self.0 {
            for (method, histogram) in &handler.duration {
                let labels = [("handler", route.as_str()), ("method", method)];
                text.histogram_samples(name, &labels, histogram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(requests: &HttpRequests) -> String {
        let mut text = TextWriter::new(Vec::new());
        requests.write(&mut text);
        text.finish()
    }

    #[test]
    fn only_get_and_post_count_for_their_route() {
        let mut requests = HttpRequests::default();
        for (route, method, status) in [
            (Some("/health"), "GET", 200),
            (Some("/health"), "DELETE", 405),
            (Some("/health"), "HEAD", 200),
            (Some("/health"), "get", 405),
            (None, "GET", 404),
        ] {
            requests.record(route, method, status, Duration::ZERO);
        }
        let text = written(&requests);
        let counts: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("http_requests_total"))
            .collect();
        assert_eq!(
            counts,
            [
                "http_requests_total{handler=\"/health\",method=\"GET\",status=\"200\"} 1",
                "http_requests_total{handler=\"none\",method=\"DELETE\",status=\"405\"} 1",
                "http_requests_total{handler=\"none\",method=\"GET\",status=\"404\"} 1",
                "http_requests_total{handler=\"none\",method=\"HEAD\",status=\"200\"} 1",
                "http_requests_total{handler=\"none\",method=\"other\",status=\"405\"} 1",
            ]
        );
        let timed = text.matches("http_request_duration_seconds_count").count();
        assert_eq!(timed, 1, "{text}");
    }
}
