//! The names of all metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{EngineValues, ServerValues};
use crate::metrics::EngineMetrics;
use crate::metrics::text::TextWriter;

impl EngineValues {
    /// The scheduler and its caches.
    pub(super) fn write_engine(&self, text: &mut TextWriter, engine: &EngineMetrics) {
        let scheduler = &engine.scheduler;
        text.gauge(
            "vllm:num_requests_running",
            "Requests in the running batch.",
            scheduler.num_running_reqs,
        );
        text.gauge(
            "vllm:num_requests_waiting",
            "Requests that wait.",
            scheduler.num_waiting_reqs,
        );
        let name = "vllm:num_requests_waiting_by_reason";
        let help = "Requests that wait: for a place in the batch, or for their grammar.";
        text.family(name, "gauge", help);
        // Others pass these by.
        let deferred = engine.structured_output.num_queued_grammars;
        let for_capacity = scheduler.num_waiting_reqs.saturating_sub(deferred);
        text.sample(name, &[("reason", "capacity")], for_capacity);
        text.sample(name, &[("reason", "deferred")], deferred);
        text.gauge(
            "vllm:kv_cache_usage_perc",
            "Used share of the KV cache; 1 is all of it.",
            scheduler.kv_cache_usage,
        );
        let name = "vllm:cache_config_info";
        text.family(name, "gauge", "The KV cache's configuration.");
        let labels: Vec<_> = self
            .cache_config
            .iter()
            .map(|(k, v)| (*k, v.as_str()))
            .collect();
        text.sample(name, &labels, 1);
        // There are no adapters. Endpoint pickers miss the name otherwise, each time they read.
        let name = "vllm:lora_requests_info";
        let help = "LoRA adapters of requests: none. The value is when this was written, in seconds since 1970.";
        text.family(name, "gauge", help);
        let labels = [
            ("max_lora", "0"),
            ("running_lora_adapters", ""),
            ("waiting_lora_adapters", ""),
        ];
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        text.sample(name, &labels, now.unwrap_or_default().as_secs());
        text.counter(
            "vllm:prefix_cache_queries",
            "Tokens looked up in the prefix cache.",
            self.prefix_cache_queries,
        );
        text.counter(
            "vllm:prefix_cache_hits",
            "Tokens found in the prefix cache.",
            self.prefix_cache_hits,
        );
        text.counter(
            "vllm:num_preemptions",
            "Preemptions of running requests.",
            self.num_preemptions,
        );
        text.counter(
            "vllm:corrupted_requests",
            "Requests with NaNs in their logits.",
            self.corrupted_requests,
        );
        text.histogram(
            "vllm:iteration_tokens_total",
            "Tokens per step.",
            &self.iteration_tokens,
        );
        let drafts = &engine.spec_decoding;
        if drafts.num_drafts > 0 {
            text.counter(
                "vllm:spec_decode_num_drafts",
                "Drafts verified.",
                drafts.num_drafts,
            );
            text.counter(
                "vllm:spec_decode_num_draft_tokens",
                "Tokens of drafts.",
                drafts.num_draft_tokens,
            );
            text.counter(
                "vllm:spec_decode_num_accepted_tokens",
                "Tokens of drafts that were right.",
                drafts.num_accepted_tokens,
            );
            let name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
            text.family(name, "counter", "The same by position in the draft.");
            for (position, count) in drafts.num_accepted_tokens_per_pos.iter().enumerate() {
                text.sample(name, &[("position", &position.to_string())], count);
            }
        }
    }

    /// Requests and their tokens.
    pub(super) fn write_requests(&self, text: &mut TextWriter) {
        text.counter(
            "vllm:prompt_tokens",
            "Tokens of prompts.",
            self.prompt_tokens,
        );
        text.counter(
            "vllm:prompt_tokens_cached",
            "Tokens of prompts that came from the prefix cache.",
            self.prompt_tokens_cached,
        );
        // Where another engine's cache could be a third source, there is none here.
        let name = "vllm:prompt_tokens_by_source_total";
        text.family(
            name,
            "counter",
            "Tokens of prompts, by where they came from.",
        );
        let computed = self.prompt_tokens.saturating_sub(self.prompt_tokens_cached);
        text.sample(name, &[("source", "local_compute")], computed);
        let cached = [("source", "local_cache_hit")];
        text.sample(name, &cached, self.prompt_tokens_cached);
        let name = "vllm:prompt_tokens_cached_by_source_total";
        text.family(name, "counter", "Cached tokens of prompts, by cache.");
        text.sample(name, &cached, self.prompt_tokens_cached);
        text.counter(
            "vllm:generation_tokens",
            "Tokens generated.",
            self.generation_tokens,
        );
        let name = "vllm:request_success_total";
        text.family(name, "counter", "Requests that are over, by reason.");
        for (reason, count) in &self.request_success {
            text.sample(name, &[("finished_reason", reason)], count);
        }
        for (name, help, histogram) in [
            (
                "vllm:request_prompt_tokens",
                "Tokens of a prompt.",
                &self.request_prompt_tokens,
            ),
            (
                "vllm:request_generation_tokens",
                "Tokens of an answer.",
                &self.request_generation_tokens,
            ),
            (
                "vllm:request_max_num_generation_tokens",
                "Tokens of the longest of a request's n answers.",
                &self.request_max_num_generation_tokens,
            ),
            (
                "vllm:request_num_preemptions",
                "How often a request lost its blocks to others.",
                &self.request_num_preemptions,
            ),
            (
                "vllm:request_prefill_kv_computed_tokens",
                "Tokens of a prompt that were computed.",
                &self.request_prefill_kv_computed_tokens,
            ),
            (
                "vllm:request_params_n",
                "The parameter n.",
                &self.request_params_n,
            ),
            (
                "vllm:request_params_max_tokens",
                "The parameter max_tokens.",
                &self.request_params_max_tokens,
            ),
            (
                "vllm:time_to_first_token_seconds",
                "From a request's arrival to its first token.",
                &self.time_to_first_token,
            ),
            (
                "vllm:inter_token_latency_seconds",
                "From one token to the next.",
                &self.inter_token_latency,
            ),
            (
                "vllm:request_time_per_output_token_seconds",
                "The same as a mean per request.",
                &self.time_per_output_token,
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "From a request's arrival to its end.",
                &self.e2e_request_latency,
            ),
            (
                "vllm:request_queue_time_seconds",
                "Time in the queue.",
                &self.request_queue_time,
            ),
            (
                "vllm:request_inference_time_seconds",
                "From the first step to the last token.",
                &self.request_inference_time,
            ),
            (
                "vllm:request_prefill_time_seconds",
                "From the first step to the first token.",
                &self.request_prefill_time,
            ),
            (
                "vllm:request_decode_time_seconds",
                "From the first token to the last.",
                &self.request_decode_time,
            ),
        ] {
            text.histogram(name, help, histogram);
        }
    }

    /// Structured output and what else is Formwork's own.
    pub(super) fn write_structured(&self, text: &mut TextWriter, engine: &EngineMetrics) {
        text.histogram(
            "formwork:structured_output_compile_seconds",
            "Time to compile a grammar.",
            &engine.compile_seconds,
        );
        let stats = &engine.structured_output;
        text.gauge(
            "formwork:structured_output_queued_grammars",
            "Grammars that are compiled or wait for it.",
            stats.num_queued_grammars,
        );
        for (name, help, value) in [
            (
                "cache_hits",
                "Requests whose grammar was there.",
                stats.num_cache_hits,
            ),
            (
                "cache_misses",
                "Requests whose grammar was compiled.",
                stats.num_cache_misses,
            ),
            (
                "refused",
                "Requests refused because of their grammar.",
                stats.num_refused,
            ),
            (
                "renewed_grammars",
                "Grammars compiled again, since the memory they shared was full.",
                stats.num_renewed_grammars,
            ),
            (
                "deferred_answers",
                "Answers of grammars that took more work than a step may, found aside.",
                stats.num_deferred_answers,
            ),
            (
                "masked_steps",
                "Steps with at least one mask.",
                stats.num_masked_steps,
            ),
            ("masked_rows", "Rows with a mask.", stats.num_masked_rows),
            (
                "overridden_rows",
                "Rows that sampling limits would have emptied.",
                stats.num_overridden_rows,
            ),
            (
                "constrained_tokens",
                "Tokens under a constraint.",
                stats.num_constrained_tokens,
            ),
            (
                "forced_tokens",
                "Tokens appended without sampling.",
                stats.num_forced_tokens,
            ),
            (
                "head_rows",
                "Rows of the LM head of all sampled positions.",
                stats.num_head_rows,
            ),
            (
                "head_rows_skipped",
                "Of these, rows that a mask made superfluous.",
                stats.num_head_rows_skipped,
            ),
            (
                "rejections",
                "Requests that failed in their grammar.",
                stats.num_rejections,
            ),
            (
                "completed",
                "Constrained requests with a complete output.",
                stats.num_completed,
            ),
            (
                "completed_by_budget",
                "Of these, led to their end because tokens ran short.",
                stats.num_completed_by_budget,
            ),
            (
                "truncated",
                "Constrained requests cut off at a limit or by a stop string.",
                stats.num_truncated,
            ),
        ] {
            text.counter(&format!("formwork:structured_output_{name}"), help, value);
        }
        text.counter(
            "formwork:structured_output_fill_seconds",
            "Time to make masks and forced text.",
            stats.fill_seconds,
        );
        text.counter(
            "formwork:structured_output_exposed_fill_seconds",
            "Of this, time that the forward pass didn't hide.",
            stats.exposed_fill_seconds,
        );
        text.counter(
            "formwork:restored_rows",
            "Rows that sampling limits had emptied and a guard restored.",
            self.restored_rows,
        );
        text.counter(
            "formwork:engine_restarts",
            "Engine cores started in the place of one that died.",
            self.engine_restarts,
        );
        text.gauge(
            "formwork:engine_gone",
            "1 if the engine core is gone for good, and others serve on.",
            u8::from(self.is_gone),
        );
        if let Some(events) = &self.kv_events {
            text.counter(
                "formwork:kv_event_batches",
                "Batches of KV events published, one for each step that has any.",
                events.num_published(),
            );
            text.counter(
                "formwork:kv_event_batches_dropped",
                "Batches of KV events that subscribers were too slow for, of all subscribers together.",
                events.num_dropped(),
            );
        }
    }
}

impl ServerValues {
    /// The HTTP server.
    pub(super) fn write(&self, text: &mut TextWriter, model_name: &str) {
        let name = "vllm:admission_rejections_total";
        text.family(name, "counter", "Requests turned away, by reason.");
        for (reason, count) in &self.admission_rejections {
            text.sample(
                name,
                &[("model_name", model_name), ("reason", reason)],
                count,
            );
        }
        text.counter(
            "formwork:audit_log_lost_lines",
            "Lines of the audit log that could not be written.",
            self.lost_audit_lines,
        );
        self.http_requests.write(text);
    }
}
