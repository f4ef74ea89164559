use protocol::RepetitionDetection;

use super::*;

const LIMITS: ModelLimits = ModelLimits {
    max_model_len: 64,
    vocab_size: 100,
    max_logprobs: 20,
};

fn verified(change: impl FnOnce(&mut SamplingParams)) -> Result<SamplingParams, ValidationError> {
    let mut params = SamplingParams::default();
    change(&mut params);
    verify(&mut params, &LIMITS)?;
    Ok(params)
}

/// The refused parameter's name, or "accepted".
fn refused(change: impl FnOnce(&mut SamplingParams)) -> String {
    match verified(change) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => {
            assert!(error.value.is_some(), "{error:?} lacks its value");
            error.parameter.unwrap()
        }
    }
}

#[test]
fn defaults_are_valid_and_unchanged() {
    assert_eq!(verified(|_| ()).unwrap(), SamplingParams::default());
}

#[test]
fn range_edges() {
    assert_eq!(refused(|p| p.n = 0), "n");
    assert_eq!(refused(|p| p.n = 16_385), "n");
    assert_eq!(refused(|p| p.n = 16_384), "accepted");
    for bad in [-2.01, 2.01, f32::NAN, f32::INFINITY] {
        assert_eq!(refused(|p| p.presence_penalty = bad), "presence_penalty");
        assert_eq!(refused(|p| p.frequency_penalty = bad), "frequency_penalty");
    }
    assert_eq!(refused(|p| p.presence_penalty = -2.0), "accepted");
    assert_eq!(refused(|p| p.frequency_penalty = 2.0), "accepted");
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(
            refused(|p| p.repetition_penalty = bad),
            "repetition_penalty"
        );
    }
    for bad in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
        assert_eq!(refused(|p| p.temperature = bad), "temperature");
    }
    assert_eq!(refused(|p| p.temperature = 2.0), "accepted");
    for bad in [0.0, -0.5, 1.01, f32::NAN] {
        assert_eq!(refused(|p| p.top_p = bad), "top_p");
    }
    for bad in [-0.01, 1.01, f32::NAN] {
        assert_eq!(refused(|p| p.min_p = bad), "min_p");
    }
    assert_eq!(refused(|p| p.stream_interval = Some(0)), "stream_interval");
    assert_eq!(refused(|p| p.max_tokens = Some(0)), "max_tokens");
    assert_eq!(refused(|p| p.min_tokens = 17), "min_tokens");
    assert_eq!(refused(|p| p.min_tokens = 16), "accepted");
}

#[test]
fn repetition_detection_edges() {
    let with = |max, min, count| {
        refused(|p| {
            p.repetition_detection = Some(RepetitionDetection {
                max_pattern_size: max,
                min_pattern_size: min,
                min_count: count,
            })
        })
    };
    assert_eq!(with(4, 1, 2), "accepted");
    // As in vLLM: off, and 1.
    assert_eq!(with(0, 0, 0), "accepted");
    assert_eq!(with(4, 0, 2), "accepted");
    assert_eq!(with(4, 5, 2), "repetition_detection.min_pattern_size");
    assert_eq!(with(4, 1, 1), "repetition_detection.min_count");
}

#[test]
fn lists_and_ids() {
    assert_eq!(refused(|p| p.stop = vec![String::new()].into()), "stop");
    assert_eq!(
        refused(|p| {
            p.stop = vec!["x".to_owned()].into();
            p.detokenize = false;
        }),
        "stop"
    );
    assert_eq!(refused(|p| p.stop_token_ids = vec![99].into()), "accepted");
    assert_eq!(
        refused(|p| p.stop_token_ids = vec![100].into()),
        "stop_token_ids"
    );
    assert_eq!(
        refused(|p| p.logit_bias = vec![(100, 1.0)].into()),
        "logit_bias"
    );
    assert_eq!(
        refused(|p| p.logit_bias = vec![(1, f32::NAN)].into()),
        "logit_bias"
    );
    assert_eq!(
        refused(|p| p.allowed_token_ids = Some(vec![].into())),
        "allowed_token_ids"
    );
    assert_eq!(
        refused(|p| p.allowed_token_ids = Some(vec![5, 100].into())),
        "allowed_token_ids"
    );
    assert_eq!(
        refused(|p| p.bad_words = vec![String::new()].into()),
        "bad_words"
    );
    assert_eq!(
        refused(|p| p.bad_words = vec!["a".to_owned(); 129].into()),
        "bad_words"
    );
    assert_eq!(
        refused(|p| p.logprob_token_ids = Some(vec![1; 129].into())),
        "logprob_token_ids"
    );
    assert_eq!(
        refused(|p| p.prompt_logprob_token_ids = Some(vec![100].into())),
        "prompt_logprob_token_ids"
    );
    assert_eq!(
        refused(|p| p.extra_args = Some("[]".to_owned().into())),
        "extra_args"
    );
}

#[test]
fn logprobs_limit_can_be_lifted() {
    assert_eq!(refused(|p| p.logprobs = Some(-2)), "logprobs");
    assert_eq!(refused(|p| p.logprobs = Some(-1)), "logprobs");
    assert_eq!(refused(|p| p.logprobs = Some(20)), "accepted");
    assert_eq!(refused(|p| p.prompt_logprobs = Some(21)), "prompt_logprobs");
    let unlimited = ModelLimits {
        max_logprobs: -1,
        ..LIMITS
    };
    let mut params = SamplingParams {
        logprobs: Some(-1),
        ..SamplingParams::default()
    };
    assert!(verify(&mut params, &unlimited).is_ok());
    let error = verify(&mut params, &LIMITS).unwrap_err();
    assert_eq!(
        error.message,
        "logprobs of -1 (all tokens) needs --max-logprobs -1"
    );
}

#[test]
fn greedy_drops_filters() {
    let greedy = verified(|p| {
        p.temperature = 1e-6;
        p.top_p = 0.5;
        p.top_k = 7;
        p.min_p = 0.1;
    })
    .unwrap();
    assert_eq!(
        (greedy.temperature, greedy.top_p, greedy.top_k, greedy.min_p),
        (0.0, 1.0, 0, 0.0)
    );
    let several = verified(|p| {
        p.temperature = 0.0;
        p.n = 2;
    });
    assert!(several.is_ok());
}

#[test]
fn tiny_temperatures_and_large_biases_are_pulled_in() {
    let params = verified(|p| {
        p.temperature = 0.005;
        p.logit_bias = vec![(1, 1000.0), (2, f32::NEG_INFINITY)].into();
    })
    .unwrap();
    assert_eq!(params.temperature, MIN_TEMPERATURE);
    assert_eq!(params.logit_bias, vec![(1, 100.0), (2, -100.0)]);
}

#[test]
fn integers_of_extra_args_have_64_bits() {
    let with = |value: &str| {
        let args = format!("{{\"a\": {{\"b\": [0, {value}]}}}}");
        refused(|p| p.extra_args = Some(args.into()))
    };
    for good in [
        "-9223372036854775808",
        "18446744073709551615",
        "0.5",
        "-1.5e-300",
        "1e19",
        "\"18446744073709551616\"",
        "null",
    ] {
        assert_eq!(with(good), "accepted", "{good}");
    }
    for bad in ["18446744073709551616", "-9223372036854777856", "1e300"] {
        assert_eq!(with(bad), "extra_args", "{bad}");
    }
}

/// What is looked for in every answer, or read in every step, is short whatever a body may hold.
#[test]
fn texts_and_lists_are_bounded() {
    let texts = |count: usize, bytes: usize| -> Shared<[String]> {
        (0..count).map(|_| "x".repeat(bytes)).collect()
    };
    for (count, bytes, is_taken) in [
        (1, 1024, true),
        (1, 1025, false),
        (16, 1024, true),
        (17, 1024, false),
        (128, 128, true),
    ] {
        let (stop, bad_words) = match is_taken {
            true => ("accepted", "accepted"),
            false => ("stop", "bad_words"),
        };
        assert_eq!(refused(|p| p.stop = texts(count, bytes)), stop);
        assert_eq!(refused(|p| p.bad_words = texts(count, bytes)), bad_words);
    }
    let ids = |count: usize| -> Shared<[u32]> { vec![7; count].into() };
    assert_eq!(refused(|p| p.stop_token_ids = ids(1024)), "accepted");
    assert_eq!(refused(|p| p.stop_token_ids = ids(1025)), "stop_token_ids");
    assert_eq!(
        refused(|p| p.allowed_token_ids = Some(ids(100))),
        "accepted"
    );
    assert_eq!(
        refused(|p| p.allowed_token_ids = Some(ids(101))),
        "allowed_token_ids"
    );
    assert_eq!(
        refused(|p| p.logit_bias = vec![(7, 1.0); 101].into()),
        "logit_bias"
    );
}

#[test]
fn allowed_ids_ascend_each_once() {
    let allowed = |ids: &[u32]| {
        let params = verified(|p| p.allowed_token_ids = Some(ids.into())).unwrap();
        params.allowed_token_ids.unwrap().to_vec()
    };
    assert_eq!(allowed(&[9, 3, 9, 1, 3]), [1, 3, 9]);
    assert_eq!(allowed(&[1, 2]), [1, 2]);
}
