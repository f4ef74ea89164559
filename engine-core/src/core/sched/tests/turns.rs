//! Owners take turns: exact schedules.

use super::*;

const ALICE: u64 = 1;
const BOB: u64 = 2;

fn owned(
    id: &str,
    owner: u64,
    num_prompt_tokens: u32,
    max_tokens: Option<u32>,
) -> EngineCoreRequest {
    let mut request = request(id, num_prompt_tokens);
    request.owner = owner;
    request.sampling_params.max_tokens = max_tokens;
    request
}

#[test]
fn a_flood_waits_behind_itself_alone() {
    let mut scheduler = scheduler(config(100, 2), 100);
    for id in ["a0", "a1", "a2", "a3", "a4", "a5"] {
        add(&mut scheduler, owned(id, ALICE, 2, Some(1)));
    }
    for id in ["b0", "b1"] {
        add(&mut scheduler, owned(id, BOB, 2, Some(1)));
    }
    assert_eq!(step(&mut scheduler), "a0:2 b0:2");
    assert_eq!(step(&mut scheduler), "a1:2 b1:2");
    assert_eq!(step(&mut scheduler), "a2:2 a3:2");
    assert_eq!(step(&mut scheduler), "a4:2 a5:2");
    step(&mut scheduler);
    assert_idle(&scheduler);
}

#[test]
fn with_one_place_owners_alternate() {
    let mut scheduler = scheduler(config(100, 1), 100);
    for id in ["a0", "a1", "a2"] {
        add(&mut scheduler, owned(id, ALICE, 2, Some(1)));
    }
    assert_eq!(step(&mut scheduler), "a0:2");
    // Who comes anew stands behind who waits.
    add(&mut scheduler, owned("b0", BOB, 2, Some(1)));
    assert_eq!(step(&mut scheduler), "a1:2");
    assert_eq!(step(&mut scheduler), "b0:2");
    add(&mut scheduler, owned("b1", BOB, 2, Some(1)));
    assert_eq!(step(&mut scheduler), "a2:2");
    assert_eq!(step(&mut scheduler), "b1:2");
}

#[test]
fn more_than_a_fair_share_of_places_is_given_up() {
    let mut scheduler = scheduler(config(100, 4), 100);
    for id in ["a0", "a1", "a2", "a3", "a4"] {
        add(&mut scheduler, owned(id, ALICE, 2, None));
    }
    assert_eq!(step(&mut scheduler), "a0:2 a1:2 a2:2 a3:2");
    // Nobody else waits: everything is Alice's.
    assert_eq!(step(&mut scheduler), "a0:1 a1:1 a2:1 a3:1");
    for id in ["b0", "b1", "b2"] {
        add(&mut scheduler, owned(id, BOB, 2, None));
    }
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a0:1 a1:1");
    assert_eq!(strings(&output.preempted_req_ids), ["a3", "a2"]);
    let sampled = sampling(&scheduler, &output, 7);
    scheduler.update_from_output(&output, sampled);
    assert_eq!(step(&mut scheduler), "a0:1 a1:1 b0:2 b1:2");
    // Each has its share: nobody is preempted any more.
    for _ in 0..3 {
        assert_eq!(step(&mut scheduler), "a0:1 a1:1 b0:1 b1:1");
    }
    assert_eq!(waiting_ids(&scheduler), ["a2", "a3", "a4", "b2"]);
}

#[test]
fn who_has_most_gives_up_blocks() {
    let mut scheduler = scheduler(config(100, 4), 4);
    add(&mut scheduler, owned("a0", ALICE, 4, None));
    add(&mut scheduler, owned("a1", ALICE, 4, None));
    add(&mut scheduler, owned("b0", BOB, 4, None));
    // Owners in turns.
    assert_eq!(step(&mut scheduler), "a0:4 b0:4 a1:4");
    // Each needs another block, and one is left. Bob's request stays.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a0:1 b0:1");
    assert_eq!(strings(&output.preempted_req_ids), ["a1"]);
}

#[test]
fn the_last_of_all_gives_up_blocks_only_if_its_owner_has_most() {
    let mut scheduler = scheduler(config(100, 4), 5);
    add(&mut scheduler, owned("a0", ALICE, 4, None));
    add(&mut scheduler, owned("a1", ALICE, 4, None));
    assert_eq!(step(&mut scheduler), "a0:4 a1:4");
    add(&mut scheduler, owned("b0", BOB, 3, None));
    assert_eq!(step(&mut scheduler), "a0:1 a1:1 b0:3");
    assert_eq!(step(&mut scheduler), "a0:1 a1:1 b0:1");
    // Bob's is the last that was admitted, and needs a block that only Alice's can give.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a0:1 b0:1");
    assert_eq!(strings(&output.preempted_req_ids), ["a1"]);
}

#[test]
fn a_full_queue_has_room_for_others() {
    let config = SchedulerConfig {
        max_num_queued_reqs: Some(4),
        ..config(100, 1)
    };
    let mut scheduler = scheduler(config, 100);
    for id in ["a0", "a1", "a2", "a3", "a4", "a5"] {
        add(&mut scheduler, owned(id, ALICE, 2, Some(1)));
    }
    for id in ["b0", "b1", "b2"] {
        add(&mut scheduler, owned(id, BOB, 2, Some(1)));
    }
    let refused: Vec<&str> = scheduler
        .pending_outputs
        .iter()
        .map(|pending| &*pending.output.request_id)
        .collect();
    assert_eq!(refused, ["a5", "b2"]);
}

#[test]
fn a_long_prompt_leaves_a_share_to_other_owners() {
    let mut scheduler = scheduler(config(16, 8), 100);
    add(&mut scheduler, owned("a0", ALICE, 60, None));
    // Alone it takes all of a step.
    assert_eq!(step(&mut scheduler), "a0:16");
    // Who comes anew has a quarter.
    add(&mut scheduler, owned("b0", BOB, 6, None));
    assert_eq!(step(&mut scheduler), "a0:12 b0:4");
    assert_eq!(step(&mut scheduler), "a0:14 b0:2");
    add(&mut scheduler, owned("a1", ALICE, 20, None));
    // Tokens that are chosen one by one are never held up by a prompt.
    assert_eq!(step(&mut scheduler), "a0:15 b0:1");
    assert_eq!(step(&mut scheduler), "a0:3 b0:1 a1:12");
    assert_eq!(step(&mut scheduler), "a0:1 b0:1 a1:8");
}

#[test]
fn many_long_prompts_leave_each_other_shares() {
    let mut scheduler = scheduler(config(16, 8), 100);
    for (id, owner) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        add(&mut scheduler, owned(id, owner, 40, None));
    }
    let all = [
        "a:16",
        "a:12 b:4",
        "a:8 b:4 c:4",
        "a:4 b:4 c:4 d:4",
        "a:1 b:7 c:4 d:4",
    ];
    let all: Vec<String> = all.map(str::to_owned).into();
    let steps: Vec<String> = all.iter().map(|_| step(&mut scheduler)).collect();
    assert_eq!(steps, all);
}
