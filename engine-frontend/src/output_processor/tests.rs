use protocol::{
    GrammarPlace, GrammarPosition, GrammarProblem, LogprobsLists, RequestOutputKind, StopReason,
};

use super::*;
use crate::input_processor::CallersFields;
use crate::openai::ServingError;
use crate::test_support::{EOS, THINK_END, THINK_START, ids, output, tokenizer};
use crate::thinking_split::{SplitMarkers, ThinkingSplit};
use crate::token_usage::TokenUsage;

struct Fixture {
    processor: OutputProcessor,
    queue: Arc<RequestOutputCollector>,
    usage: Arc<TokenUsage>,
    children: Vec<EngineCoreRequest>,
}

impl Fixture {
    fn new(params: SamplingParams) -> Self {
        Self::replaying("", params)
    }

    /// A request whose output so far is `replayed`.
    fn replaying(replayed: &str, params: SamplingParams) -> Self {
        Self::with_inputs(replayed, params, |_| ())
    }

    fn with_inputs(
        replayed: &str,
        params: SamplingParams,
        change: impl FnOnce(&mut ProcessedInputs),
    ) -> Self {
        let mut processor = OutputProcessor::new(tokenizer());
        let delta = params.output_kind == RequestOutputKind::Delta;
        let usage = Arc::<TokenUsage>::default();
        let queue = RequestOutputCollector::new(delta).with_usage(Some(usage.clone()));
        let queue = Arc::new(queue);
        let request = EngineCoreRequest {
            request_id: "r".to_owned(),
            external_req_id: Some("mine".to_owned()),
            prompt_token_ids: ids("p").into(),
            sampling_params: params,
            output_token_ids: ids(replayed),
            ..EngineCoreRequest::default()
        };
        let mut inputs = ProcessedInputs {
            prompt: Some("p".into()),
            ..ProcessedInputs::new(request)
        };
        change(&mut inputs);
        let budget = AnswerBudget::new(&inputs.request.sampling_params, 260, false);
        let children = processor.add_request(inputs, &queue, &budget);
        Self {
            processor,
            queue,
            usage,
            children,
        }
    }

    /// Feeds one output; returns what must be aborted.
    fn feed(&mut self, output: EngineCoreOutput) -> Vec<String> {
        self.processor.process_outputs(&[output])
    }

    fn next(&self) -> Option<RequestOutput> {
        self.queue.get_nowait().map(Result::unwrap)
    }

    fn text(&self) -> Option<String> {
        self.next().map(|output| output.outputs[0].text.clone())
    }
}

fn kind(output_kind: RequestOutputKind) -> SamplingParams {
    SamplingParams {
        output_kind,
        ..SamplingParams::default()
    }
}

#[test]
fn cumulative_delta_and_final_outputs() {
    for (output_kind, expected) in [
        (RequestOutputKind::Cumulative, [Some("a"), Some("abc")]),
        (RequestOutputKind::Delta, [Some("a"), Some("bc")]),
        (RequestOutputKind::FinalOnly, [None, Some("abc")]),
    ] {
        let mut fixture = Fixture::new(kind(output_kind));
        fixture.feed(output("r", "a", None));
        assert_eq!(fixture.text().as_deref(), expected[0]);
        fixture.feed(output("r", "bc", Some(FinishReason::Length)));
        let last = fixture.next().unwrap();
        assert_eq!(Some(last.outputs[0].text.as_str()), expected[1]);
        assert_eq!(last.outputs[0].finish_reason, Some(FinishReason::Length));
        assert!(last.finished);
        assert_eq!(last.request_id, "mine");
        assert_eq!(fixture.processor.num_unfinished_requests(), 0);
        assert_eq!(fixture.processor.num_generation_tokens(), 3);
    }
}

#[test]
fn a_stop_string_ends_the_request_here() {
    let mut fixture = Fixture::new(SamplingParams {
        stop: vec!["bc".to_owned()].into(),
        ..kind(RequestOutputKind::FinalOnly)
    });
    assert!(fixture.feed(output("r", "ab", None)).is_empty());
    assert_eq!(fixture.feed(output("r", "cd", None)), ["r"]);
    let last = fixture.next().unwrap();
    assert_eq!(last.outputs[0].text, "a");
    assert_eq!(
        last.outputs[0].stop_reason,
        Some(StopReason::String("bc".to_owned()))
    );
    // What was generated before the core heard of it is ignored.
    assert!(fixture.feed(output("r", "x", None)).is_empty());
    assert!(fixture.next().is_none());
}

#[test]
fn stream_interval_sends_the_first_and_the_last() {
    let mut fixture = Fixture::new(SamplingParams {
        stream_interval: Some(3),
        ..kind(RequestOutputKind::Delta)
    });
    let mut texts = Vec::new();
    for (text, finish) in [
        ("a", None),
        ("b", None),
        ("c", None),
        ("d", None),
        ("e", Some(FinishReason::Length)),
    ] {
        fixture.feed(output("r", text, finish));
        texts.push(fixture.text());
    }
    let expected = [Some("a"), None, None, Some("bcd"), Some("e")];
    assert_eq!(texts, expected.map(|text| text.map(str::to_owned)));
}

#[test]
fn several_answers_come_together_in_order() {
    let mut fixture = Fixture::new(SamplingParams {
        n: 2,
        ..kind(RequestOutputKind::FinalOnly)
    });
    let sent: Vec<_> = fixture.children.iter().map(|c| &c.request_id).collect();
    assert_eq!(sent, ["0_r", "1_r"]);
    fixture.feed(output("1_r", "one", Some(FinishReason::Length)));
    assert!(fixture.next().is_none());
    fixture.feed(output("0_r", "nil", Some(FinishReason::Length)));
    let last = fixture.next().unwrap();
    let texts: Vec<_> = last.outputs.iter().map(|o| (o.index, &*o.text)).collect();
    assert_eq!(texts, [(0, "nil"), (1, "one")]);
    assert!(last.finished);
}

#[test]
fn an_error_ends_all_siblings() {
    let mut fixture = Fixture::new(SamplingParams {
        n: 3,
        ..kind(RequestOutputKind::Delta)
    });
    fixture.feed(output("2_r", "x", Some(FinishReason::Length)));
    let failed = EngineCoreOutput {
        request_id: "0_r".to_owned(),
        finish_reason: Some(FinishReason::Error),
        error: Some(RequestError::new(RequestErrorCode::ValidationError, "no")),
        ..EngineCoreOutput::default()
    };
    assert_eq!(fixture.feed(failed), ["1_r"]);
    assert_eq!(fixture.text().as_deref(), Some("x"));
    let error = fixture.queue.get_nowait().unwrap().unwrap_err();
    assert_eq!(error.status_code(), 400);
    assert_eq!(fixture.processor.num_unfinished_requests(), 0);
}

#[test]
fn an_error_without_words_is_internal() {
    let mut fixture = Fixture::new(kind(RequestOutputKind::Delta));
    fixture.feed(output("r", "", Some(FinishReason::Error)));
    let error = fixture.queue.get_nowait().unwrap().unwrap_err();
    assert_eq!(error.status_code(), 500);
}

#[test]
fn aborted_requests_are_forgotten() {
    let mut fixture = Fixture::new(SamplingParams {
        n: 2,
        ..kind(RequestOutputKind::Delta)
    });
    fixture.feed(output("1_r", "x", Some(FinishReason::Length)));
    assert_eq!(fixture.processor.abort_request("r"), ["0_r"]);
    assert!(fixture.processor.abort_request("r").is_empty());
    assert_eq!(fixture.processor.num_unfinished_requests(), 0);
}

#[test]
fn logprobs_follow_the_tokens() {
    let mut fixture = Fixture::new(SamplingParams {
        logprobs: Some(1),
        prompt_logprobs: Some(0),
        stop: vec!["b".to_owned()].into(),
        ..kind(RequestOutputKind::Delta)
    });
    let mut first = output("r", "a", None);
    first.new_logprobs = Some(LogprobsLists {
        logprob_token_ids: vec![vec![97, 120]],
        logprobs: vec![vec![-1.0, -0.5]],
        sampled_token_ranks: vec![2],
    });
    first.new_prompt_logprobs = Some(LogprobsLists::default());
    fixture.feed(first);
    let sent = fixture.next().unwrap();
    assert_eq!(sent.prompt_logprobs, Some([None].into()));
    let position = &sent.outputs[0].logprobs.as_ref().unwrap()[0];
    let seen: Vec<_> = position
        .iter()
        .map(|l| (l.token_id, l.rank, l.decoded_token()))
        .collect();
    assert_eq!(
        seen,
        [(97, Some(2), "a".into()), (120, Some(1), "x".into())]
    );
    assert_eq!(sent.outputs[0].cumulative_logprob, Some(-1.0));
    // Of two tokens, the one behind the stop string is dropped with its row.
    let mut second = output("r", "bc", None);
    second.new_logprobs = Some(LogprobsLists {
        logprob_token_ids: vec![vec![98, 98], vec![99, 99]],
        logprobs: vec![vec![-2.0, -2.0], vec![-4.0, -4.0]],
        sampled_token_ranks: vec![1, 1],
    });
    fixture.feed(second);
    let last = fixture.next().unwrap();
    assert_eq!(last.outputs[0].token_ids, ids("b"));
    assert_eq!(last.outputs[0].logprobs.as_ref().unwrap().len(), 1);
    assert_eq!(last.outputs[0].cumulative_logprob, Some(-3.0));
}

/// A request's share of a step with one logprob per token.
fn output_with_logprobs(
    text: &str,
    logprob: f32,
    finish: Option<FinishReason>,
) -> EngineCoreOutput {
    let token_ids = ids(text);
    EngineCoreOutput {
        new_logprobs: Some(LogprobsLists {
            logprob_token_ids: token_ids.iter().map(|&id| vec![id]).collect(),
            logprobs: vec![vec![logprob]; token_ids.len()],
            sampled_token_ranks: vec![1; token_ids.len()],
        }),
        ..output("r", text, finish)
    }
}

/// The token and the logprob of each position; `None` for a position without any.
fn chosen(completion: &CompletionOutput) -> Vec<Option<(u32, f32)>> {
    let positions = completion.logprobs.as_ref().unwrap();
    let first = |position: &Vec<crate::logprobs::Logprob>| {
        position.first().map(|l| (l.token_id, l.logprob))
    };
    positions.iter().map(first).collect()
}

#[test]
fn a_replayed_stream_goes_on_where_it_was() {
    let mut fixture = Fixture::replaying(
        "xyz",
        SamplingParams {
            logprobs: Some(0),
            ..kind(RequestOutputKind::Delta)
        },
    );
    fixture.feed(output_with_logprobs("a", -1.0, None));
    let first = fixture.next().unwrap();
    assert_eq!(first.outputs[0].text, "a");
    assert_eq!(first.outputs[0].token_ids, ids("a"));
    assert_eq!(chosen(&first.outputs[0]), [Some((97, -1.0))]);
    assert_eq!(first.outputs[0].cumulative_logprob, Some(-1.0));
    fixture.feed(output_with_logprobs("bc", -2.0, Some(FinishReason::Length)));
    let last = fixture.next().unwrap();
    assert_eq!(last.outputs[0].text, "bc");
    assert_eq!(last.outputs[0].token_ids, ids("bc"));
    assert_eq!(
        chosen(&last.outputs[0]),
        [Some((98, -2.0)), Some((99, -2.0))]
    );
}

#[test]
fn a_replayed_request_is_answered_as_a_whole() {
    for output_kind in [RequestOutputKind::Cumulative, RequestOutputKind::FinalOnly] {
        let mut fixture = Fixture::replaying(
            "xyz",
            SamplingParams {
                logprobs: Some(0),
                stop: vec!["b".to_owned()].into(),
                ..kind(output_kind)
            },
        );
        fixture.feed(output_with_logprobs("abc", -1.0, None));
        let last = fixture.next().unwrap();
        assert_eq!(last.outputs[0].text, "xyza");
        assert_eq!(last.outputs[0].token_ids, ids("xyzab"));
        // One entry per token; the token behind the stop string is gone with its row.
        assert_eq!(
            chosen(&last.outputs[0]),
            [None, None, None, Some((97, -1.0)), Some((98, -1.0))]
        );
        assert_eq!(last.outputs[0].cumulative_logprob, Some(-2.0));
    }
}

#[test]
fn an_interval_counts_from_the_replayed_tokens_on() {
    let mut fixture = Fixture::replaying(
        "xyz",
        SamplingParams {
            stream_interval: Some(2),
            ..kind(RequestOutputKind::Delta)
        },
    );
    fixture.feed(output("r", "a", None));
    assert_eq!(fixture.text(), None);
    fixture.feed(output("r", "b", None));
    assert_eq!(fixture.text().as_deref(), Some("ab"));
}

#[tokio::test]
async fn an_admission_is_no_output() {
    let mut fixture = Fixture::new(kind(RequestOutputKind::Delta));
    fixture.feed(EngineCoreOutput {
        events: vec![EngineCoreEvent {
            event_type: EngineCoreEventType::Admitted,
            timestamp: 1.0,
        }],
        ..output("r", "", None)
    });
    assert_eq!(fixture.queue.admitted().await, Ok(()));
    assert!(fixture.next().is_none());
    assert_eq!(fixture.processor.num_unfinished_requests(), 1);
}

#[tokio::test]
async fn a_refused_grammar_is_the_fault_of_its_field() {
    let mut fixture = Fixture::with_inputs("", kind(RequestOutputKind::Delta), |inputs| {
        inputs.callers_fields = Some(guided_json());
    });
    fixture.feed(EngineCoreOutput {
        error: Some(RequestError {
            problem: Some(Box::new(GrammarProblem {
                language: Some("schema".to_owned()),
                place: Some(GrammarPlace {
                    position: Some(GrammarPosition::Pointer("/not".to_owned())),
                    words: String::new(),
                }),
                ..GrammarProblem::default()
            })),
            ..RequestError::new(RequestErrorCode::GrammarRefused, "too large")
        }),
        ..output("r", "", Some(FinishReason::Error))
    });
    let error = fixture.queue.admitted().await.unwrap_err();
    assert_eq!(error.status_code(), 400);
    assert_eq!(
        error.to_string(),
        "guided_json: schema, at `#/not`: too large"
    );
    assert_eq!(fixture.queue.get().await, Err(error));
}

/// Where others' grammars fill the queue, the caller is told which field makes the request wait there.
#[tokio::test]
async fn a_full_queue_of_grammars_names_the_field() {
    let mut fixture = Fixture::with_inputs("", kind(RequestOutputKind::Delta), |inputs| {
        inputs.callers_fields = Some(guided_json());
    });
    fixture.feed(EngineCoreOutput {
        error: Some(RequestError {
            field: Some("structured_outputs".to_owned()),
            ..RequestError::new(RequestErrorCode::QueueOverflow, "8 requests wait")
        }),
        ..output("r", "", Some(FinishReason::Error))
    });
    let error = fixture.queue.admitted().await.unwrap_err();
    assert_eq!(error.to_string(), "guided_json: 8 requests wait");
    let body = ServingError::from(error).to_response().error;
    assert_eq!(
        (body.code, body.param.as_deref()),
        (503, Some("guided_json"))
    );
}

#[test]
fn a_request_with_nans_counts_once() {
    let mut fixture = Fixture::new(kind(RequestOutputKind::Delta));
    for num_nans_in_logits in [0, 3, 1] {
        fixture.feed(EngineCoreOutput {
            num_nans_in_logits,
            ..output("r", "a", None)
        });
    }
    let stats = fixture.processor.take_iteration_stats();
    assert_eq!(stats.num_corrupted_reqs, 1);
}

fn guided_json() -> Arc<CallersFields> {
    Arc::new(CallersFields {
        constraint: "guided_json".to_owned(),
        max_tokens: "max_tokens".to_owned(),
        ..CallersFields::default()
    })
}

/// At a limit a text may end with or without a stop token, whatever the reason.
#[test]
fn a_constrained_text_is_all_tokens_but_a_stop_token() {
    let text = |pieces: &str, stop: bool, reason| {
        let params = SamplingParams {
            // As with calls.
            skip_special_tokens: false,
            eos_token_id: Some(EOS),
            ..kind(RequestOutputKind::FinalOnly)
        };
        let mut fixture = Fixture::with_inputs("", params, |inputs| {
            inputs.callers_fields = Some(guided_json());
        });
        let mut last = output("r", pieces, Some(reason));
        last.new_token_ids.extend(stop.then_some(EOS));
        fixture.feed(last);
        fixture.next().unwrap().outputs[0].text.clone()
    };
    for reason in [FinishReason::Stop, FinishReason::Length] {
        for stop in [true, false] {
            assert_eq!(text("ab", stop, reason), "ab", "{reason:?} {stop}");
        }
    }
}

#[test]
fn an_aborted_answer_says_whether_it_is_whole() {
    let whole = |pieces: &[(&str, Option<bool>)]| {
        let params = kind(RequestOutputKind::FinalOnly);
        let mut fixture = Fixture::with_inputs("", params, |inputs| {
            inputs.callers_fields = Some(guided_json());
        });
        for (text, complete) in pieces {
            fixture.feed(EngineCoreOutput {
                structured_output_complete: *complete,
                ..output("r", text, None)
            });
        }
        fixture.feed(output("r", "", Some(FinishReason::Abort)));
        fixture.next().unwrap().outputs[0].structured_output_complete
    };
    assert_eq!(whole(&[]), Some(false));
    assert_eq!(whole(&[("a", Some(false))]), Some(false));
    assert_eq!(whole(&[("a", Some(false)), ("b", Some(true))]), Some(true));
}

/// A core that took over after a crash doesn't know what the one before it did.
#[test]
fn an_answer_remembers_that_it_was_led() {
    let led = |complete| {
        let mut fixture = Fixture::new(kind(RequestOutputKind::FinalOnly));
        fixture.feed(EngineCoreOutput {
            structured_output_complete: Some(false),
            completed_by_budget: true,
            repetition_closed: true,
            ..output("r", "a", None)
        });
        fixture.feed(EngineCoreOutput {
            structured_output_complete: Some(complete),
            ..output("r", "b", Some(FinishReason::Length))
        });
        let output = fixture.next().unwrap().outputs.remove(0);
        (
            output.structured_output_completed_by_budget,
            output.structured_output_repetition_closed,
            fixture.usage.finish_reasons().unwrap(),
        )
    };
    let both = "length,completed_by_budget,repetition_closed";
    assert_eq!(led(true), (true, true, both.to_owned()));
    let loop_alone = "length,repetition_closed".to_owned();
    assert_eq!(led(false), (false, true, loop_alone), "it is not whole");
}

#[test]
fn the_core_says_whether_a_constrained_answer_is_whole() {
    let said = |text: &str, complete, finish| EngineCoreOutput {
        structured_output_complete: Some(complete),
        ..output("r", text, finish)
    };
    let whole = |fixture: &Fixture| fixture.next().unwrap().outputs[0].structured_output_complete;

    let mut fixture = Fixture::new(kind(RequestOutputKind::Delta));
    fixture.feed(said("a", true, None));
    assert_eq!(whole(&fixture), None, "it isn't at its end");
    fixture.feed(said("b", false, Some(FinishReason::Length)));
    assert_eq!(whole(&fixture), Some(false));
    let ends = |fixture: &mut Fixture| {
        let ends = fixture.processor.take_structured_ends();
        (ends.num_completed, ends.num_truncated)
    };
    assert_eq!(ends(&mut fixture), (0, 1));

    let stop = || SamplingParams {
        stop: vec!["\n".to_owned()].into(),
        ..kind(RequestOutputKind::FinalOnly)
    };
    let mut fixture = Fixture::new(stop());
    fixture.feed(said("a@b.com", false, None));
    fixture.feed(said("\n", true, None));
    assert_eq!(whole(&fixture), Some(true));
    assert_eq!(ends(&mut fixture), (1, 0), "though the core never ended it");
    // What the core says is of tokens that the stop string cut off.
    let mut fixture = Fixture::new(stop());
    fixture.feed(said("a\nb", true, None));
    assert_eq!(whole(&fixture), Some(false));
    assert_eq!(ends(&mut fixture), (0, 1), "its caller cut it off");
    // A text may be whole in the midst of what comes at once: what follows is forced, or a draft.
    for (complete_after, is_whole) in [(vec![2, 3], true), (vec![1, 3], false)] {
        let mut fixture = Fixture::new(stop());
        fixture.feed(EngineCoreOutput {
            complete_after,
            ..said("a\nb", true, None)
        });
        assert_eq!(whole(&fixture), Some(is_whole));
    }
}

/// What tells thinking apart between two marks, with what separates the answer from it.
fn split(start: &[u32], end: &[u32], separator: &[u32], ended: Option<bool>) -> ThinkingSplit {
    let markers = SplitMarkers {
        starts: vec![start.to_vec()],
        ends: vec![end.to_vec()],
        separator: separator.to_vec(),
        ..SplitMarkers::default()
    };
    ThinkingSplit::new(Arc::new(markers), ended)
}

/// A request whose thinking is told apart.
fn thinking(ended: Option<bool>, params: SamplingParams) -> Fixture {
    Fixture::with_inputs("", params, |inputs| {
        inputs.thinking = Some(split(&[THINK_START], &[THINK_END], &[], ended));
    })
}

/// The bytes of `text`, with `<` and `>` for the tokens around thinking.
fn marked(text: &str, finish: Option<FinishReason>) -> EngineCoreOutput {
    let mut marked = output("r", text, finish);
    for id in &mut marked.new_token_ids {
        *id = match *id {
            0x3c => THINK_START,
            0x3e => THINK_END,
            id => id,
        };
    }
    marked
}

#[test]
fn an_answer_without_time_to_think_has_all_its_tokens() {
    let mut fixture = thinking(None, kind(RequestOutputKind::FinalOnly));
    fixture.feed(EngineCoreOutput {
        no_time_to_think: true,
        ..output("r", "", None)
    });
    fixture.feed(marked("<yes", Some(FinishReason::Length)));
    let completion = &fixture.next().unwrap().outputs[0];
    assert_eq!(completion.text, "<think>yes");
    assert_eq!(completion.reasoning, None);
}

#[test]
fn what_separates_thinking_from_an_answer_is_part_of_neither() {
    for (ended, text, content) in [
        (Some(false), "hm>  yes", "yes"),
        // Only behind thinking, and no more of it than that.
        (Some(false), "hm>  a  b", "a  b"),
        (Some(false), "hm>   b", " b"),
        (Some(false), "hm> a  b", "a  b"),
        (None, "<hm>  yes", "yes"),
        (None, "  yes", "  yes"),
    ] {
        let params = kind(RequestOutputKind::FinalOnly);
        let mut fixture = Fixture::with_inputs("", params, |inputs| {
            inputs.thinking = Some(split(&[THINK_START], &[THINK_END], &[0x20, 0x20], ended));
        });
        fixture.feed(marked(text, Some(FinishReason::Length)));
        let completion = &fixture.next().unwrap().outputs[0];
        assert_eq!(completion.text, content, "{text}");
    }
}

#[test]
fn thinking_is_told_apart_by_its_tokens() {
    for (ended, text, reasoning, content) in [
        (Some(false), "hm>yes", Some("hm"), "yes"),
        (Some(false), "<hm>yes", Some("hm"), "yes"),
        (Some(false), "hm", Some("hm"), ""),
        (None, "<hm>yes", Some("hm"), "yes"),
        (None, "yes<hm>", None, "yes<think>hm</think>"),
        (Some(true), "<hm>", None, "<think>hm</think>"),
    ] {
        for output_kind in [RequestOutputKind::FinalOnly, RequestOutputKind::Delta] {
            let mut fixture = thinking(ended, kind(output_kind));
            let mut read = (None, String::new());
            let last = text.len() - 1;
            for (index, token) in text.char_indices() {
                let finish = (index == last).then_some(FinishReason::Length);
                fixture.feed(marked(&token.to_string(), finish));
                let Some(output) = fixture.next() else {
                    continue;
                };
                let completion = &output.outputs[0];
                if let Some(new) = &completion.reasoning {
                    read.0.get_or_insert(String::new()).push_str(new);
                }
                read.1.push_str(&completion.text);
            }
            assert_eq!(
                read,
                (reasoning.map(str::to_owned), content.to_owned()),
                "{text}"
            );
        }
    }
}

/// What opens thinking is `((`, and what closes it `)).`: the parts of either alone are text.
#[test]
fn thinking_is_told_apart_by_sequences_of_tokens() {
    for (ended, text, reasoning, content) in [
        (None, "((hm)).yes", Some("hm"), "yes"),
        (None, "(hm)).yes", None, "(hm)).yes"),
        (None, "(", None, "("),
        (None, "((", None, ""),
        (Some(false), "hm)).yes)).", Some("hm"), "yes))."),
        (Some(false), "((hm)).", Some("hm"), ""),
        (Some(false), "(hm)).", Some("(hm"), ""),
        (Some(false), "h) )m))).yes", Some("h) )m)"), "yes"),
        (Some(false), "hm))", Some("hm))"), ""),
        (Some(true), "((hm)).", None, "((hm))."),
    ] {
        for output_kind in [RequestOutputKind::FinalOnly, RequestOutputKind::Delta] {
            let mut fixture = Fixture::with_inputs("", kind(output_kind), |inputs| {
                inputs.thinking = Some(split(&ids("(("), &ids("))."), &[], ended));
            });
            let (mut thought, mut answer) = (None, String::new());
            for (index, token) in text.char_indices() {
                let finish = (index == text.len() - 1).then_some(FinishReason::Length);
                fixture.feed(output("r", &token.to_string(), finish));
                let Some(output) = fixture.next() else {
                    continue;
                };
                let completion = &output.outputs[0];
                if let Some(new) = &completion.reasoning {
                    thought.get_or_insert(String::new()).push_str(new);
                }
                answer.push_str(&completion.text);
            }
            assert_eq!(thought.as_deref(), reasoning, "{text}");
            assert_eq!(answer, content, "{text}");
        }
    }
}

#[test]
fn stop_strings_are_looked_for_in_the_answer() {
    let mut fixture = thinking(
        Some(false),
        SamplingParams {
            stop: vec![".".to_owned()].into(),
            ..kind(RequestOutputKind::FinalOnly)
        },
    );
    assert!(fixture.feed(marked("a.b>c", None)).is_empty());
    assert_eq!(fixture.feed(marked("d.", None)), ["r"]);
    let last = fixture.next().unwrap();
    assert_eq!(last.outputs[0].reasoning.as_deref(), Some("a.b"));
    assert_eq!(last.outputs[0].text, "cd");
}
