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
    let again = in_flight.next_to_send(Instant::now());
    assert_eq!(again[0].output_token_ids, [5, 6]);
}

#[test]
fn what_a_core_had_is_a_replay_for_every_later_one() {
    let mut in_flight = with(&["a", "b", "c"]);
    in_flight.core_died(true);
    in_flight.add(request("new"), false);
    in_flight.next_to_send(Instant::now());
    // Neither "c" nor "new" was sent to this one.
    in_flight.core_died(true);
    let mut sent = Vec::new();
    while !in_flight.requests.is_empty() {
        let again = in_flight.next_to_send(Instant::now());
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
    assert_eq!(ids(&in_flight.next_to_send(Instant::now())), ["a", "b"]);
    in_flight.note(&mut step(vec![token("a", 1)]));
    assert!(
        in_flight.next_to_send(Instant::now()).is_empty(),
        "b has shown nothing"
    );
    in_flight.note(&mut step(vec![token("b", 1)]));
    assert_eq!(ids(&in_flight.next_to_send(Instant::now())), ["c"]);
    assert!(in_flight.next_to_send(Instant::now()).is_empty());
    // An abort is as good as an output.
    assert_eq!(in_flight.abort(vec!["c".into()]), ["c"]);
    assert_eq!(ids(&in_flight.next_to_send(Instant::now())), ["new"]);
    assert!(in_flight.is_open());
}

#[test]
fn an_empty_output_clears_nobody() {
    let mut in_flight = with(&["a"]);
    in_flight.core_died(true);
    in_flight.next_to_send(Instant::now());
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
                core.extend(
                    in_flight
                        .next_to_send(Instant::now())
                        .into_iter()
                        .map(|r| r.request_id),
                );
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
fn a_slow_half_keeps_nobody_out_for_long() {
    let mut in_flight = with(&["a", "b", "c"]);
    in_flight.core_died(true);
    in_flight.add(request("new"), false);
    let start = Instant::now();
    assert_eq!(ids(&in_flight.next_to_send(start)), ["a", "b"]);
    in_flight.note(&mut step(vec![token("a", 1)]));
    let before = start + FIRST_PATIENCE - Duration::from_millis(1);
    assert!(in_flight.next_to_send(before).is_empty());
    // "b" goes on, the other half comes and has its own time.
    let second = start + FIRST_PATIENCE;
    assert_eq!(ids(&in_flight.next_to_send(second)), ["c"]);
    assert!(!in_flight.is_open());
    assert!(in_flight.next_to_send(second).is_empty());
    assert_eq!(
        ids(&in_flight.next_to_send(second + FIRST_PATIENCE)),
        ["new"]
    );
    assert!(in_flight.is_open());
    // Who was waited for in vain is suspected, nobody else, and now is waited for longer.
    assert_eq!(in_flight.core_died(true).suspects, ["b", "c"]);
    assert_eq!(ids(&in_flight.next_to_send(start)), ["b"]);
    assert!(
        in_flight
            .next_to_send(start + FIRST_PATIENCE * 2 - Duration::from_millis(1))
            .is_empty()
    );
    // An answer is as good later.
    assert_eq!(
        ids(&in_flight.next_to_send(start + FIRST_PATIENCE * 2)),
        ["c"]
    );
    in_flight.note(&mut step(vec![token("b", 1), token("c", 1)]));
    assert_eq!(ids(&in_flight.next_to_send(start)), ["a", "new"]);
    assert!(in_flight.is_open());
    assert_eq!(in_flight.patience, FIRST_PATIENCE);
    assert_eq!(in_flight.core_died(true).suspects, ["a", "b", "c", "new"]);
}

/// A killer among many who are slow to answer: the halves of all the deaths until it is found keep others
/// out for no longer than one half does.
#[test]
fn the_waits_of_several_deaths_do_not_add_up() {
    let names: Vec<String> = (0..64).map(|index| format!("r{index:02}")).collect();
    let mut in_flight = with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut now = Instant::now();
    let mut deaths = 1;
    let mut died = in_flight.core_died(true);
    while died.failed.is_empty() {
        let sent = in_flight.next_to_send(now);
        assert!(sent.iter().any(|request| request.request_id == "r00"));
        now += Duration::from_millis(500);
        deaths += 1;
        died = in_flight.core_died(true);
    }
    assert_eq!(died.failed, ["r00"]);
    assert!(deaths <= 8, "{deaths} deaths");
    in_flight.add(request("new"), false);
    let found = now;
    while !in_flight.is_open() {
        in_flight.next_to_send(now);
        now += Duration::from_millis(100);
    }
    let waited = now - found;
    assert!(
        waited <= FIRST_PATIENCE + Duration::from_millis(200),
        "{waited:?}"
    );
}

/// A core that dies of one request some time after that came, while others wait for long without being to
/// blame, and new ones come: it alone fails, the deaths are few, and new ones wait for seconds.
#[test]
fn a_slow_killer_is_found_while_others_are_served() {
    for (n, killer) in [(1, 0), (7, 3), (40, 39)] {
        let time_to_kill = Duration::from_secs(20);
        let time_to_answer = Duration::from_secs(30);
        let mut in_flight = InFlight::default();
        for index in 0..n {
            in_flight.add(request(&format!("r{index:02}")), false);
        }
        let killer = format!("r{killer:02}");
        let mut now = Instant::now();
        let mut came: HashMap<String, Instant> = HashMap::new();
        let (mut deaths, mut failed, mut ended) = (0, Vec::new(), 0);
        let mut waits = Vec::new();
        let mut waiting_since = now;
        while ended + failed.len() < n {
            for request in in_flight.next_to_send(now) {
                came.insert(request.request_id, now);
            }
            // A quick newcomer each second.
            if in_flight.is_open() {
                waits.push(now - waiting_since);
                waiting_since = now;
            }
            now += Duration::from_secs(1);
            if came
                .get(&killer)
                .is_some_and(|came| now - *came >= time_to_kill)
            {
                deaths += 1;
                assert!(deaths < 20, "not found");
                came.clear();
                failed.extend(in_flight.core_died(true).failed);
                continue;
            }
            let is_due = |(id, came): (&String, &Instant)| {
                (*id != killer && now - *came >= time_to_answer).then(|| id.clone())
            };
            let due: Vec<String> = came.iter().filter_map(is_due).collect();
            let mut outputs: Vec<_> = due.iter().map(|id| token(id, 1)).collect();
            for output in &mut outputs {
                output.finish_reason = Some(FinishReason::Stop);
                came.remove(&output.request_id);
                ended += 1;
            }
            in_flight.note(&mut step(outputs));
        }
        assert_eq!(failed, [killer], "{n}");
        assert_eq!(ended, n - 1);
        println!(
            "{n}: {deaths} deaths, longest wait {:?}",
            waits.iter().max()
        );
    }
}

#[test]
fn on_a_shared_core_nobody_is_to_blame() {
    let mut in_flight = with(&["a"]);
    for _ in 0..3 {
        assert!(in_flight.core_died(false).failed.is_empty());
        in_flight.next_to_send(Instant::now());
    }
}

#[test]
fn fewer_suspects_are_progress() {
    let mut in_flight = with(&["a", "b", "c", "d"]);
    assert!(!in_flight.core_died(true).narrowed);
    in_flight.next_to_send(Instant::now());
    assert!(in_flight.core_died(true).narrowed);
    in_flight.next_to_send(Instant::now());
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
    in_flight.next_to_send(Instant::now());
    let mut again = step(vec![token("a", 2)]);
    again.outputs[0].new_prompt_logprobs = Some(LogprobsLists::default());
    in_flight.note(&mut again);
    assert_eq!(again.outputs[0].new_prompt_logprobs, None);
}

#[test]
fn after_a_death_all_may_go_to_another_core_once() {
    let mut first = with(&["a", "b"]);
    first.note(&mut step(vec![token("b", 5)]));
    first.add(request("waits"), false);
    assert!(
        ids_of(&first.take_movable()) == ["waits"],
        "it has the others itself"
    );
    first.core_died(true);
    let moved = first.take_movable();
    assert_eq!(ids_of(&moved), ["a", "b"]);
    assert!(first.is_empty() && first.is_open());

    let mut second = with(&["own"]);
    second.take_over(moved);
    assert!(second.is_open(), "nobody waits for them");
    let sent = second.next_to_send(Instant::now());
    assert_eq!(ids(&sent), ["a", "b"]);
    assert!(sent.iter().all(|request| request.is_replay));
    assert_eq!(sent[1].output_token_ids, [5]);

    // They are blamed before "own", which may go elsewhere; they may not.
    let died = second.core_died(true);
    assert_eq!(died.suspects, ["a", "b"]);
    assert_eq!(ids_of(&second.take_movable()), ["own"]);
    assert_eq!(ids(&second.next_to_send(Instant::now())), ["a"]);
}

#[test]
fn a_moved_request_that_brings_an_output_is_suspected_no_more_than_others() {
    let mut first = with(&["a"]);
    first.core_died(true);
    let mut second = with(&["own"]);
    second.take_over(first.take_movable());
    second.next_to_send(Instant::now());
    second.note(&mut step(vec![token("a", 1)]));
    assert_eq!(second.core_died(true).suspects, ["own", "a"]);
    // Suspected twice, it stays.
    assert_eq!(ids_of(&second.take_movable()), ["own"]);
}

#[test]
fn a_killer_ends_two_cores_and_then_only_its_own() {
    for num_cores in [2_usize, 3] {
        let names: Vec<String> = (0..60).map(|i| format!("r{i:02}")).collect();
        let killer = &names[17];
        let mut cores: Vec<InFlight> = (0..num_cores).map(|_| InFlight::default()).collect();
        for (i, name) in names.iter().enumerate() {
            cores[i % num_cores].add(request(name), true);
        }
        let mut deaths = vec![0; num_cores];
        let mut failed = Vec::new();
        let mut answered = 0;
        while cores.iter().any(|core| !core.is_empty()) {
            for i in 0..num_cores {
                let sent: Vec<String> = cores[i]
                    .requests
                    .values()
                    .filter(|entry| entry.sent)
                    .map(|entry| entry.request.request_id.clone())
                    .collect();
                if sent.contains(killer) {
                    failed.extend(cores[i].core_died(true).failed);
                    deaths[i] += 1;
                    let moved = cores[i].take_movable();
                    cores[(i + 1) % num_cores].take_over(moved);
                } else {
                    for id in sent {
                        let mut last = token(&id, 1);
                        last.finish_reason = Some(FinishReason::Stop);
                        cores[i].note(&mut step(vec![last]));
                        answered += 1;
                    }
                }
                for core in &mut cores {
                    core.next_to_send(Instant::now());
                }
            }
        }
        assert_eq!(
            (failed.as_slice(), answered),
            (std::slice::from_ref(killer), 59)
        );
        deaths.sort_unstable();
        let (most, others) = deaths.split_last().unwrap();
        assert_eq!(others.iter().sum::<u32>(), 1, "{deaths:?}");
        assert!((1..=8).contains(most), "{deaths:?}");
    }
}

fn ids_of(moved: &[MovedRequest]) -> Vec<&str> {
    moved
        .iter()
        .map(|m| m.request().request_id.as_str())
        .collect()
}
