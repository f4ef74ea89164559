use protocol::{EngineCoreOutput, FinishReason, LogprobsLists};

use super::*;

fn request(id: &str) -> EngineCoreRequest {
    EngineCoreRequest {
        request_id: id.to_owned(),
        ..EngineCoreRequest::default()
    }
}

fn step(outputs: Vec<EngineCoreOutput>) -> EngineCoreOutputs {
    EngineCoreOutputs {
        outputs,
        ..EngineCoreOutputs::default()
    }
}

fn token(id: &str, token: u32) -> EngineCoreOutput {
    EngineCoreOutput {
        request_id: id.to_owned(),
        new_token_ids: vec![token],
        ..EngineCoreOutput::default()
    }
}

fn ids(requests: &[EngineCoreRequest]) -> Vec<&str> {
    requests.iter().map(|r| r.request_id.as_str()).collect()
}

fn with(names: &[&str]) -> InFlight {
    let mut in_flight = InFlight::default();
    for name in names {
        in_flight.add(request(name), true);
    }
    in_flight
}

#[test]
fn what_has_come_is_part_of_what_is_sent_again() {
    let mut in_flight = with(&["a"]);
    in_flight.note(&mut step(vec![token("a", 5)]));
    in_flight.note(&mut step(vec![token("a", 6)]));
    let died = in_flight.core_died(true);
    assert_eq!(died.suspects, ["a"]);
    assert!(died.failed.is_empty(), "the first death is nobody's fault");
    let again = in_flight.next_to_send();
    assert_eq!(again[0].output_token_ids, [5, 6]);
}

#[test]
fn what_a_core_had_is_a_replay_for_every_later_one() {
    let mut in_flight = with(&["a", "b", "c"]);
    in_flight.core_died(true);
    in_flight.add(request("new"), false);
    in_flight.next_to_send();
    // Neither "c" nor "new" was sent to this one.
    in_flight.core_died(true);
    let mut sent = Vec::new();
    while !in_flight.requests.is_empty() {
        let again = in_flight.next_to_send();
        in_flight.abort(again.iter().map(|r| r.request_id.clone()).collect());
        sent.extend(again.into_iter().map(|r| (r.request_id, r.is_replay)));
    }
    sent.sort();
    let expected = [("a", true), ("b", true), ("c", true), ("new", false)];
    assert_eq!(sent, expected.map(|(id, replay)| (id.to_owned(), replay)));
}

#[test]
fn finished_and_aborted_requests_are_forgotten() {
    let mut in_flight = with(&["a", "b", "c"]);
    let mut last = token("a", 5);
    last.finish_reason = Some(FinishReason::Stop);
    in_flight.note(&mut step(vec![last]));
    assert_eq!(in_flight.abort(vec!["b".into(), "x".into()]), ["b"]);
    assert_eq!(in_flight.core_died(true).suspects, ["c"]);
}

#[test]
fn suspects_come_back_in_halves_and_new_ones_wait() {
    let mut in_flight = with(&["a", "b", "c"]);
    in_flight.core_died(true);
    assert!(!in_flight.is_open());
    in_flight.add(request("new"), false);
    assert_eq!(ids(&in_flight.next_to_send()), ["a", "b"]);
    in_flight.note(&mut step(vec![token("a", 1)]));
    assert!(in_flight.next_to_send().is_empty(), "b has shown nothing");
    in_flight.note(&mut step(vec![token("b", 1)]));
    assert_eq!(ids(&in_flight.next_to_send()), ["c"]);
    assert!(in_flight.next_to_send().is_empty());
    // An abort is as good as an output.
    assert_eq!(in_flight.abort(vec!["c".into()]), ["c"]);
    assert_eq!(ids(&in_flight.next_to_send()), ["new"]);
    assert!(in_flight.is_open());
}

#[test]
fn an_empty_output_clears_nobody() {
    let mut in_flight = with(&["a"]);
    in_flight.core_died(true);
    in_flight.next_to_send();
    let admitted = EngineCoreOutput {
        request_id: "a".to_owned(),
        ..EngineCoreOutput::default()
    };
    in_flight.note(&mut step(vec![admitted]));
    assert!(!in_flight.is_open());
}

/// A core that dies of one request, at the step that this is in: everybody else is answered, it
/// alone fails, and the deaths are few.
#[test]
fn a_killer_is_found_and_everybody_else_goes_on() {
    for n in [1_usize, 2, 3, 7, 64, 100] {
        for killer in [0, n / 2, n - 1] {
            let names: Vec<String> = (0..n).map(|i| format!("r{i:03}")).collect();
            let mut in_flight = InFlight::default();
            for name in &names {
                in_flight.add(request(name), false);
            }
            let mut core: Vec<String> = Vec::new();
            let (mut deaths, mut failed) = (0, Vec::new());
            let mut steps: HashMap<String, usize> = HashMap::new();
            loop {
                core.extend(in_flight.next_to_send().into_iter().map(|r| r.request_id));
                if core.is_empty() {
                    break;
                }
                if core.contains(&names[killer]) {
                    deaths += 1;
                    core.clear();
                    failed.extend(in_flight.core_died(true).failed);
                    continue;
                }
                let mut outputs: Vec<_> = core.iter().map(|id| token(id, 1)).collect();
                for output in &mut outputs {
                    let steps = steps.entry(output.request_id.clone()).or_default();
                    *steps += 1;
                    if *steps == 3 {
                        output.finish_reason = Some(FinishReason::Stop);
                    }
                }
                core.retain(|id| steps.get(id) != Some(&3));
                in_flight.note(&mut step(outputs));
            }
            assert_eq!(failed, [names[killer].clone()], "{n} {killer}");
            assert_eq!(steps.values().filter(|s| **s == 3).count(), n - 1);
            assert!(deaths <= 3 + n.ilog2() as usize + 1, "{n}: {deaths} deaths");
        }
    }
}

#[test]
fn on_a_shared_core_nobody_is_to_blame() {
    let mut in_flight = with(&["a"]);
    for _ in 0..3 {
        assert!(in_flight.core_died(false).failed.is_empty());
        in_flight.next_to_send();
    }
}

#[test]
fn fewer_suspects_are_progress() {
    let mut in_flight = with(&["a", "b", "c", "d"]);
    assert!(!in_flight.core_died(true).narrowed);
    in_flight.next_to_send();
    assert!(in_flight.core_died(true).narrowed);
    in_flight.next_to_send();
    let died = in_flight.core_died(true);
    assert_eq!(died.failed, ["a"]);
    assert!(died.narrowed);
}

#[test]
fn prompt_logprobs_are_given_out_once() {
    let mut in_flight = with(&["a"]);
    let mut first = step(vec![token("a", 1)]);
    first.outputs[0].new_prompt_logprobs = Some(LogprobsLists::default());
    in_flight.note(&mut first);
    assert!(first.outputs[0].new_prompt_logprobs.is_some());
    in_flight.core_died(true);
    in_flight.next_to_send();
    let mut again = step(vec![token("a", 2)]);
    again.outputs[0].new_prompt_logprobs = Some(LogprobsLists::default());
    in_flight.note(&mut again);
    assert_eq!(again.outputs[0].new_prompt_logprobs, None);
}
