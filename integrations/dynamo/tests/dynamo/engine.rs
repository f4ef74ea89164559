//! The engine in this process.

use std::sync::Arc;
use std::time::Duration;

use dynamo_backend_common::testing::{cancelling_context, mock_context, run_conformance};
use dynamo_backend_common::{
    DynamoError, FinishReason, GenerateContext, LLMEngine, LLMEngineOutput, PreprocessedRequest,
};
use formwork_dynamo::FormworkEngine;
use futures::StreamExt;

use crate::support::{LONG, args, eventually, request};

#[tokio::test(flavor = "multi_thread")]
async fn dynamos_conformance_kit_passes() {
    let mut args = args(&[]);
    args.worker_config().unwrap();
    run_conformance(|| FormworkEngine::new(&args))
        .await
        .unwrap();
}

/// The same with two cores that the worker shares requests out to.
#[tokio::test(flavor = "multi_thread")]
async fn the_kit_passes_with_two_cores() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        eprintln!("skipped: this machine has one processor");
        return;
    }
    let mut args = args(&["--data-parallel-size", "2"]);
    args.engine.threads = None;
    args.worker_config().unwrap();
    run_conformance(|| FormworkEngine::new(&args))
        .await
        .unwrap();
}

async fn started(flags: &[&str]) -> FormworkEngine {
    let mut args = args(flags);
    args.worker_config().unwrap();
    let engine = FormworkEngine::new(&args);
    let config = engine.start(1).await.unwrap();
    assert_eq!(config.model, "formwork-builtin");
    let llm = config.llm.unwrap();
    assert_eq!(
        (llm.context_length, llm.kv_cache_block_size),
        (Some(2048), Some(16))
    );
    engine
}

async fn ask(
    engine: &FormworkEngine,
    request: PreprocessedRequest,
) -> Vec<Result<LLMEngineOutput, DynamoError>> {
    let context = GenerateContext::new(mock_context(), None);
    let stream = engine.generate(request, context).await.unwrap();
    tokio::time::timeout(LONG, stream.collect()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_work_whether_anybody_reads_or_not() {
    let engine = started(&[]).await;
    assert_eq!(engine.is_quiescent().await.unwrap(), Some(true));
    let endless = || {
        request(&[1, 2, 3], 2000, |stops, _, _| {
            stops.ignore_eos = Some(true)
        })
    };

    // It is stopped, and nobody reads.
    let context = mock_context();
    let stream = engine
        .generate(endless(), GenerateContext::new(context.clone(), None))
        .await
        .unwrap();
    assert_eq!(engine.is_quiescent().await.unwrap(), Some(false));
    context.stop_generating();
    eventually("it ends unread", async || {
        engine.is_quiescent().await.unwrap() == Some(true)
    })
    .await;
    let outputs: Vec<_> = stream.collect().await;
    let last = outputs.last().unwrap().as_ref().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
    let told: usize = outputs
        .iter()
        .map(|output| output.as_ref().unwrap().token_ids.len())
        .sum();
    assert_eq!(
        last.completion_usage.as_ref().unwrap().completion_tokens as usize,
        told
    );

    // Its stream is dropped, and nobody stops it.
    let stream = engine
        .generate(endless(), GenerateContext::new(mock_context(), None))
        .await
        .unwrap();
    drop(stream);
    eventually("it ends dropped", async || {
        engine.is_quiescent().await.unwrap() == Some(true)
    })
    .await;

    // It is stopped in its midst.
    let context = cancelling_context(Duration::from_millis(50));
    let stream = engine
        .generate(endless(), GenerateContext::new(context, None))
        .await
        .unwrap();
    let outputs: Vec<_> = tokio::time::timeout(LONG, stream.collect()).await.unwrap();
    let last = outputs.last().unwrap().as_ref().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
    engine.cleanup().await.unwrap();
    assert_eq!(engine.is_quiescent().await.unwrap(), None);
    let refused = engine
        .generate(endless(), GenerateContext::new(mock_context(), None))
        .await;
    let refused = refused.err().unwrap();
    assert!(refused.to_string().contains("has ended"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logprobs_and_stops_come_in_dynamos_form() {
    let engine = started(&[]).await;
    let whole = request(&[5, 6, 7, 8], 6, |_, sampling, output| {
        sampling.temperature = Some(0.0);
        output.logprobs = Some(3);
        output.prompt_logprobs = Some(1);
    });
    let outputs = ask(&engine, whole).await;
    let outputs: Vec<LLMEngineOutput> = outputs.into_iter().map(Result::unwrap).collect();
    let mut tokens = Vec::new();
    for output in &outputs {
        tokens.extend(&output.token_ids);
        let chosen = output.log_probs.as_deref().unwrap_or_default();
        assert_eq!(chosen.len(), output.token_ids.len());
        for ((id, chosen), top) in output
            .token_ids
            .iter()
            .zip(chosen)
            .zip(output.top_logprobs.iter().flatten())
        {
            // Greedy: the best is the one that was chosen.
            let ranks: Vec<u32> = top.iter().map(|logprob| logprob.rank).collect();
            assert_eq!(ranks, [1, 2, 3]);
            assert_eq!((top[0].token_id, top[0].logprob), (*id, *chosen));
            assert!(top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob);
        }
    }
    let prompt: Vec<&serde_json::Value> = outputs
        .iter()
        .filter_map(|output| output.engine_data.as_ref()?.get("prompt_logprobs"))
        .collect();
    assert_eq!(prompt.len(), 1);
    assert_eq!(prompt[0].as_array().unwrap().len(), 4);
    assert!(prompt[0][0].is_null());
    assert!(
        prompt[0][1]["6"]["logprob"].as_f64().unwrap() < 0.0,
        "{}",
        prompt[0][1]
    );
    let last = outputs.last().unwrap();
    let usage = last.completion_usage.as_ref().unwrap();
    assert_eq!(
        (usage.prompt_tokens, usage.completion_tokens as usize),
        (4, tokens.len())
    );

    // It stops at a token, hidden or not, and tells it.
    let stop_id = tokens[2];
    let first = tokens.iter().position(|id| *id == stop_id).unwrap();
    for which in 0..3 {
        let stopped = request(&[5, 6, 7, 8], 6, |stops, sampling, _| {
            sampling.temperature = Some(0.0);
            let ids = Some(vec![stop_id]);
            match which {
                0 => stops.stop_token_ids = ids,
                1 => stops.stop_token_ids_hidden = ids,
                _ => stops.stop_token_ids_visible = ids,
            }
        });
        let outputs = ask(&engine, stopped).await;
        let outputs: Vec<LLMEngineOutput> = outputs.into_iter().map(Result::unwrap).collect();
        let told: Vec<u32> = outputs
            .iter()
            .flat_map(|output| output.token_ids.clone())
            .collect();
        assert_eq!(told, tokens[..=first]);
        assert_eq!(
            outputs.last().unwrap().finish_reason,
            Some(FinishReason::Stop)
        );
    }
    engine.cleanup().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canary_is_a_request() {
    let engine = Arc::new(started(&[]).await);
    let canary = engine.health_check_payload().await.unwrap().unwrap();
    let canary: PreprocessedRequest = serde_json::from_value(canary).unwrap();
    let outputs = ask(&engine, canary).await;
    let last = outputs.last().unwrap().as_ref().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Length));
    engine.cleanup().await.unwrap();
}
