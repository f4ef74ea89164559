//! A request that is over: its lines in the logs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use protocol::FinishReason;

use super::audit_log::{AuditLine, AuditLog};
use super::request_record::RequestRecord;
use crate::openai::ErrorInfo;

/// Status of a request whose client went before it was answered, as nginx has it.
const CLIENT_GONE: u16 = 499;

/// Writes a request's line when this is dropped: when its answer was sent, or its client is gone.
#[derive(Debug)]
pub(super) struct RequestEnd {
    /// The file of `--audit-log`.
    pub(super) audit_log: Option<AuditLog>,
    /// True under `--enable-log-requests`.
    pub(super) is_logged: bool,
    pub(super) request_id: Arc<str>,
    pub(super) client: Option<IpAddr>,
    pub(super) method: &'static str,
    pub(super) route: String,
    /// `None` until the request is answered.
    pub(super) status: Option<u16>,
    /// Why the request was refused, or failed before its answer began.
    pub(super) error: Option<String>,
    pub(super) record: Arc<RequestRecord>,
    pub(super) start: Instant,
}

impl RequestEnd {
    /// The request has an answer, which is yet to be sent.
    pub(super) fn answered(&mut self, status: u16, error: Option<&ErrorInfo>) {
        self.status = Some(status);
        // The message may quote the request.
        self.error = error.map(|error| match &error.param {
            Some(param) => format!("{} ({param})", error.error_type),
            None => error.error_type.clone(),
        });
    }

    /// The line of `--enable-log-requests`. It has nothing of what was asked or answered.
    fn log(&self, key: Option<&str>, status: u16, duration: f64) {
        let usage = &self.record.usage;
        let client = self.client.map(|client| client.to_string());
        // Answers that have not ended when nobody takes them any more are aborted soon after.
        let is_cut_off = self.error.is_none() && usage.prompt_tokens() > 0;
        let finish_reason = usage
            .finish_reasons()
            .or_else(|| is_cut_off.then(|| FinishReason::Abort.as_str().to_owned()));
        tracing::info!(
            request_id = &*self.request_id,
            client = client.as_deref(),
            key,
            method = self.method,
            handler = self.route,
            status,
            duration,
            prompt_tokens = usage.prompt_tokens(),
            completion_tokens = usage.completion_tokens(),
            finish_reason = finish_reason.as_deref(),
            error = self.error.as_deref(),
            "request"
        );
    }
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        let duration = self.start.elapsed();
        let seconds = duration.as_secs_f64();
        let status = self.status.unwrap_or(CLIENT_GONE);
        let key = self.record.key.get().map(|key| key.name.as_str());
        if self.is_logged {
            // A thousandth is enough for people.
            self.log(key, status, (seconds * 1e3).round() / 1e3);
        }
        let Some(log) = &self.audit_log else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let came = now.unwrap_or_default().saturating_sub(duration);
        log.write(&AuditLine {
            time: came.as_secs_f64(),
            request_id: &self.request_id,
            client: self.client,
            key,
            method: self.method,
            route: &self.route,
            status,
            prompt_tokens: self.record.usage.prompt_tokens(),
            completion_tokens: self.record.usage.completion_tokens(),
            duration: seconds,
        });
    }
}
