//! Which requests a model can serve: text, probabilities of tokens, vectors, or scores of a classifier.

use protocol::{EngineCoreRequest, PoolerInfo, PoolingTask, RunnerType};

/// Checks that the model has what a request asks for, as far as the core's life depends on it.
pub(super) fn check_pooling(request: &EngineCoreRequest, info: &PoolerInfo) -> Result<(), String> {
    let is_scored = !request.scored_positions.is_empty();
    let Some(params) = &request.pooling_params else {
        if is_scored && !info.has_lm_head {
            return Err(
                "scored_positions: this model has no LM head, so it tells no probabilities of tokens; \
                 pooling_params are what it takes"
                    .to_owned(),
            );
        }
        return match info.runner == RunnerType::Pooling && !is_scored {
            true => Err(
                "this core generates no text (runner: pooling): pooling_params are needed"
                    .to_owned(),
            ),
            false => Ok(()),
        };
    };
    if is_scored {
        return Err("pooling_params and scored_positions: only one of them is possible".to_owned());
    }
    let sampling = &request.sampling_params;
    for (field, is_there) in [
        ("structured_outputs", sampling.structured_outputs.is_some()),
        ("prompt_logprobs", sampling.prompt_logprobs.is_some()),
        (
            "prompt_logprob_token_ids",
            sampling.prompt_logprob_token_ids.is_some(),
        ),
        ("output_token_ids", !request.output_token_ids.is_empty()),
    ] {
        if is_there {
            return Err(format!(
                "{field}: must be absent beside pooling_params, which generate nothing"
            ));
        }
    }
    if params.task == PoolingTask::Classify && info.num_labels == 0 {
        return Err(
            "pooling_params.task: classify is not there, since this model has no classifier; embed is"
                .to_owned(),
        );
    }
    if let Some(dimensions) = params.dimensions
        && !(1..=info.hidden_size).contains(&dimensions)
    {
        return Err(format!(
            "pooling_params.dimensions: {dimensions} must be from 1 to the model's width, {}",
            info.hidden_size
        ));
    }
    if let Some(first) = params.compressed_token_type_ids {
        let prompt_len = request.prompt_token_ids.len();
        if info.num_token_types < 2 || first as usize > prompt_len {
            return Err(format!(
                "pooling_params.compressed_token_type_ids: {first} must be at most the prompt's {prompt_len} \
                 tokens, in a model with two types of tokens (this one has {})",
                info.num_token_types
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::{PoolingParams, SamplingParams, ScoredPosition};

    use super::*;

    fn asks(pooling_params: Option<PoolingParams>) -> EngineCoreRequest {
        EngineCoreRequest {
            prompt_token_ids: [1, 2, 3].into(),
            pooling_params,
            ..EngineCoreRequest::default()
        }
    }

    #[test]
    fn what_a_model_lacks_is_refused_by_name() {
        let decoder = PoolerInfo {
            runner: RunnerType::Pooling,
            hidden_size: 8,
            has_lm_head: true,
            ..PoolerInfo::default()
        };
        let encoder = PoolerInfo {
            num_token_types: 2,
            num_labels: 1,
            has_lm_head: false,
            ..decoder
        };
        let embed = PoolingParams::default();
        let check = |request: &EngineCoreRequest, info| check_pooling(request, info).err();
        assert_eq!(check(&asks(Some(embed)), &decoder), None);
        let classify = PoolingParams {
            task: PoolingTask::Classify,
            compressed_token_type_ids: Some(2),
            ..embed
        };
        assert_eq!(check(&asks(Some(classify)), &encoder), None);
        let scored = EngineCoreRequest {
            scored_positions: [ScoredPosition::default()].into(),
            ..asks(None)
        };
        assert_eq!(check(&scored, &decoder), None);
        let with_logprobs = EngineCoreRequest {
            sampling_params: SamplingParams {
                prompt_logprobs: Some(1),
                ..SamplingParams::default()
            },
            ..asks(Some(embed))
        };
        let both = EngineCoreRequest {
            pooling_params: Some(embed),
            ..scored.clone()
        };
        let dimensions = |dimensions| {
            asks(Some(PoolingParams {
                dimensions: Some(dimensions),
                ..embed
            }))
        };
        for (request, info, part) in [
            (asks(None), &decoder, "generates no text"),
            (scored, &encoder, "no LM head"),
            (both, &decoder, "only one"),
            (with_logprobs, &decoder, "prompt_logprobs"),
            (dimensions(9), &decoder, "dimensions: 9"),
            (dimensions(0), &decoder, "dimensions: 0"),
            (asks(Some(classify)), &decoder, "no classifier"),
            (
                asks(Some(PoolingParams {
                    compressed_token_type_ids: Some(4),
                    ..embed
                })),
                &encoder,
                "compressed_token_type_ids: 4",
            ),
        ] {
            let message = check(&request, info).unwrap();
            assert!(message.contains(part), "{message}");
        }
    }
}
