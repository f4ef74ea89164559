//! The figures, with the names that `vllm bench serve` gives them.

use std::fmt;

use serde_json::{Map, Value, json};

use super::args::Backend;
use super::load::Results;
use super::server_process::Difference;
use super::statistics::Summary;

/// Width of the printed report.
const WIDTH: usize = 50;

/// All that a run found out.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) model: String,
    pub(super) backend: Backend,
    pub(super) request_rate: Option<f64>,
    pub(super) max_concurrency: Option<u32>,
    pub(super) percentiles: Vec<f64>,
    pub(super) check_leaks: bool,
    pub(super) results: Results,
    pub(super) server: Option<Difference>,
}

/// One kind of latency.
struct Metric {
    title: &'static str,
    short: &'static str,
    key: &'static str,
    summary: Summary,
}

impl Report {
    /// Whether every request was answered, validly, and nothing leaked where that was asked.
    pub(super) fn is_good(&self) -> bool {
        self.results.failed == 0 && self.results.invalid == 0 && self.leaks().is_empty()
    }

    /// Signs of a leak, where they were asked for.
    fn leaks(&self) -> Vec<String> {
        let server = self.server.as_ref().filter(|_| self.check_leaks);
        server.map(Difference::leaks).unwrap_or_default()
    }

    fn metrics(&self) -> Vec<Metric> {
        let results = &self.results;
        [
            (
                "Time to First Token",
                "TTFT",
                "ttft",
                &results.times_to_first_token,
            ),
            (
                "Time per Output Token (excl. 1st token)",
                "TPOT",
                "tpot",
                &results.times_per_output_token,
            ),
            (
                "Inter-token Latency",
                "ITL",
                "itl",
                &results.inter_token_latencies,
            ),
            ("End-to-end Latency", "E2EL", "e2el", &results.latencies),
        ]
        .into_iter()
        .map(|(title, short, key, seconds)| Metric {
            title,
            short,
            key,
            summary: Summary::new(seconds.iter().map(|s| s * 1e3).collect(), &self.percentiles),
        })
        .collect()
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.results.duration.max(f64::MIN_POSITIVE)
    }

    /// Microseconds per token.
    fn per_token(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.results.output_tokens.max(1) as f64
    }

    /// Everything, with the keys of vLLM's result file.
    pub(super) fn to_json(&self) -> Value {
        let results = &self.results;
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| {
            json.insert(key.to_owned(), value);
        };
        put("model_id", self.model.as_str().into());
        put(
            "backend",
            match self.backend {
                Backend::Openai => "openai".into(),
                Backend::OpenaiChat => "openai-chat".into(),
            },
        );
        put(
            "request_rate",
            match self.request_rate {
                Some(rate) if rate.is_finite() => rate.into(),
                _ => "inf".into(),
            },
        );
        put("max_concurrency", self.max_concurrency.into());
        put("duration", results.duration.into());
        put("completed", results.completed.into());
        put("failed", results.failed.into());
        put("failed_by_status", json!(results.failed_by_status));
        put("disconnected", results.left.into());
        put("constrained", results.constrained.into());
        put("constrained_cut_off", results.cut_off.into());
        put("constrained_invalid", results.invalid.into());
        put("errors", json!(results.errors));
        put("total_input_tokens", results.prompt_tokens.into());
        put("total_output_tokens", results.output_tokens.into());
        put(
            "request_throughput",
            self.per_second(results.completed).into(),
        );
        put(
            "output_throughput",
            self.per_second(results.output_tokens).into(),
        );
        let total = results.prompt_tokens + results.output_tokens;
        put("total_token_throughput", self.per_second(total).into());
        for Metric { key, summary, .. } in self.metrics() {
            put(&format!("mean_{key}_ms"), summary.mean.into());
            put(&format!("median_{key}_ms"), summary.median.into());
            put(&format!("std_{key}_ms"), summary.standard_deviation.into());
            for (percentile, value) in summary.percentiles {
                put(&format!("p{percentile}_{key}_ms"), value.into());
            }
        }
        if let Some(server) = &self.server {
            let (frontend, ipc) = server.overhead();
            put("frontend_cpu_seconds", frontend.into());
            put("core_ipc_cpu_seconds", ipc.into());
            put("core_cpu_seconds", server.core().into());
            put(
                "overhead_us_per_token",
                self.per_token(frontend + ipc).into(),
            );
            for (name, usage) in [("before", &server.before), ("after", &server.after)] {
                put(
                    &format!("frontend_resident_bytes_{name}"),
                    usage.frontend.resident.into(),
                );
                put(
                    &format!("core_resident_bytes_{name}"),
                    usage.core.resident.into(),
                );
            }
            put("at_rest", server.is_at_rest.into());
            put("leaks", self.leaks().into());
        }
        Value::Object(json)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = &self.results;
        writeln!(f, "{:=^WIDTH$}", " Serving Benchmark Result ")?;
        let count = |f: &mut fmt::Formatter<'_>, name: &str, value: u64| {
            writeln!(f, "{name:<40} {value:<10}")
        };
        let number = |f: &mut fmt::Formatter<'_>, name: &str, value: f64| {
            writeln!(f, "{name:<40} {value:<10.2}")
        };
        count(f, "Successful requests:", results.completed)?;
        count(f, "Failed requests:", results.failed)?;
        if results.left > 0 {
            count(f, "Requests left by their client:", results.left)?;
        }
        if results.constrained + results.invalid > 0 {
            count(
                f,
                "Constrained answers:",
                results.constrained + results.invalid,
            )?;
            count(f, "Constrained answers not valid:", results.invalid)?;
            count(f, "Constrained answers cut off:", results.cut_off)?;
        }
        if let Some(concurrency) = self.max_concurrency {
            count(f, "Maximum request concurrency:", concurrency.into())?;
        }
        if let Some(rate) = self.request_rate {
            number(f, "Request rate configured (RPS):", rate)?;
        }
        number(f, "Benchmark duration (s):", results.duration)?;
        count(f, "Total input tokens:", results.prompt_tokens)?;
        count(f, "Total generated tokens:", results.output_tokens)?;
        number(
            f,
            "Request throughput (req/s):",
            self.per_second(results.completed),
        )?;
        number(
            f,
            "Output token throughput (tok/s):",
            self.per_second(results.output_tokens),
        )?;
        let total = results.prompt_tokens + results.output_tokens;
        number(f, "Total token throughput (tok/s):", self.per_second(total))?;
        for Metric {
            title,
            short,
            summary,
            ..
        } in self.metrics()
        {
            writeln!(f, "{title:-^WIDTH$}")?;
            number(f, &format!("Mean {short} (ms):"), summary.mean)?;
            number(f, &format!("Median {short} (ms):"), summary.median)?;
            // The median has a line already.
            let others = summary.percentiles.into_iter().filter(|p| p.0 != 50.0);
            for (percentile, value) in others {
                number(f, &format!("P{percentile} {short} (ms):"), value)?;
            }
        }
        if let Some(server) = &self.server {
            let (frontend, ipc) = server.overhead();
            let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            writeln!(f, "{:-^WIDTH$}", "Server's Process")?;
            number(f, "Frontend CPU per token (us):", self.per_token(frontend))?;
            number(f, "Core IPC CPU per token (us):", self.per_token(ipc))?;
            number(f, "Core CPU per token (us):", self.per_token(server.core()))?;
            for (name, before, after) in [
                ("Frontend", server.before.frontend, server.after.frontend),
                ("Core", server.before.core, server.after.core),
            ] {
                let before = mebibytes(before.resident);
                number(f, &format!("{name} memory before (MiB):"), before)?;
                let after = mebibytes(after.resident);
                number(f, &format!("{name} memory after (MiB):"), after)?;
            }
            let rest = if server.is_at_rest { "yes" } else { "no" };
            writeln!(f, "{:<40} {rest}", "All requests over, all blocks free:")?;
        }
        writeln!(f, "{:=^WIDTH$}", "")?;
        for (error, count) in &results.errors {
            writeln!(f, "{count} x {error}")?;
        }
        for leak in self.leaks() {
            writeln!(f, "--check-leaks: {leak}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(results: Results) -> Report {
        Report {
            model: "m".to_owned(),
            backend: Backend::Openai,
            request_rate: None,
            max_concurrency: Some(2),
            percentiles: vec![50.0, 99.0],
            check_leaks: false,
            results,
            server: None,
        }
    }

    #[test]
    fn figures_have_vllms_names() {
        let report = report(Results {
            completed: 4,
            output_tokens: 100,
            duration: 2.0,
            latencies: vec![0.5, 0.5],
            ..Results::default()
        });
        assert!(report.is_good());
        let json = report.to_json();
        assert_eq!(json["request_throughput"], 2.0);
        assert_eq!(json["output_throughput"], 50.0);
        assert_eq!(json["median_e2el_ms"], 500.0);
        assert_eq!(json["p99_e2el_ms"], 500.0);
        assert_eq!(json["p99_ttft_ms"], 0.0);
        let text = report.to_string();
        for name in [
            "Median TTFT (ms):",
            "P99 ITL (ms):",
            "Output token throughput (tok/s):",
        ] {
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn an_invalid_answer_is_a_bad_result() {
        let invalid = report(Results {
            invalid: 1,
            ..Results::default()
        });
        assert!(!invalid.is_good());
        let failed = report(Results {
            failed: 1,
            ..Results::default()
        });
        assert!(!failed.is_good());
    }
}
