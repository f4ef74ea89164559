//! What a trace says of a request besides its statistics.

use protocol::EngineCoreRequest;

/// A request as its caller sent it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TracedRequest {
    /// The caller's id.
    pub request_id: String,
    /// Unix time in seconds.
    pub arrival_time: f64,
    /// W3C trace context that the request came with: header names in lower case, and values.
    pub trace_headers: Vec<(String, String)>,
    /// The request's `temperature`.
    pub temperature: f32,
    /// The request's `top_p`.
    pub top_p: f32,
}

impl TracedRequest {
    /// What a trace says of this request.
    pub fn new(request: &EngineCoreRequest) -> Self {
        let own_id = request.external_req_id.as_ref();
        Self {
            request_id: own_id.unwrap_or(&request.request_id).clone(),
            arrival_time: request.arrival_time,
            trace_headers: request.trace_headers.to_vec(),
            temperature: request.sampling_params.temperature,
            top_p: request.sampling_params.top_p,
        }
    }
}
