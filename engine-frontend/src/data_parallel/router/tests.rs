use super::*;

fn request(tokens: impl IntoIterator<Item = u32>) -> EngineCoreRequest {
    EngineCoreRequest {
        prompt_token_ids: tokens.into_iter().collect(),
        ..EngineCoreRequest::default()
    }
}

/// A router between `num_cores` cores with a hundred blocks, each of as many tokens as a request weighs.
fn router(num_cores: usize) -> Router {
    Router::new(64, std::iter::repeat_n(100, num_cores))
}

/// Routes a request by itself, with these loads.
fn route(router: &mut Router, loads: &[usize], request: &EngineCoreRequest) -> usize {
    let loads = loads.iter().copied().map(Some).collect();
    router.routing(loads).route(request).unwrap()
}

#[test]
fn without_a_match_the_core_with_the_fewest_requests_is_chosen() {
    let mut router = router(3);
    assert_eq!(route(&mut router, &[2, 1, 1], &request(0..128)), 1);
    assert_eq!(route(&mut router, &[2, 1, 0], &request(1_000..1_128)), 2);
    // Less than a block matches nothing.
    assert_eq!(route(&mut router, &[5, 1, 2], &request(0..48)), 1);
}

#[test]
fn of_equals_the_one_that_was_chosen_longest_ago_is_chosen() {
    let mut router = router(3);
    let prompt = |n: u32| request(1_000 * n..1_000 * n + 128);
    // Far more than the cores have blocks.
    for n in 0..600 {
        assert_eq!(route(&mut router, &[0, 0, 0], &prompt(n)), n as usize % 3);
    }
    // What one core has stays there.
    for _ in 0..3 {
        assert_eq!(route(&mut router, &[0, 0, 0], &prompt(598)), 1);
    }
    router.forget(2);
    assert_eq!(route(&mut router, &[0, 0, 0], &prompt(900)), 0);
    assert_eq!(route(&mut router, &[0, 0, 0], &prompt(901)), 2);
}

#[test]
fn a_match_wins_while_it_saves_more_than_the_requests_there_cost() {
    let mut router = router(2);
    assert_eq!(route(&mut router, &[0, 0], &request(0..512)), 0);
    // Half of it is as much as four requests.
    assert_eq!(route(&mut router, &[3, 0], &request(0..512)), 0);
    // One block saves no more than an idle core does.
    assert_eq!(route(&mut router, &[1, 0], &request(0..64)), 1);
    // Now core 1 has one block of the eight too.
    assert_eq!(route(&mut router, &[0, 0], &request(0..512)), 0);
    assert_eq!(route(&mut router, &[2, 0], &request(0..512)), 1);
}

/// A system prompt of 15 blocks, and a block of each request's own.
#[test]
fn what_many_ask_for_is_soon_everywhere() {
    let mut router = router(2);
    let prompt = |n: u32| request((0..960).chain(10_000 + 64 * n..10_064 + 64 * n));
    assert_eq!(route(&mut router, &[0, 0], &prompt(0)), 0);
    // With another request there, core 1 computes it once more when a fifteenth of it is worth less than that one.
    for n in 1..14 {
        assert_eq!(route(&mut router, &[1, 0], &prompt(n)), 0, "{n}");
    }
    assert_eq!(route(&mut router, &[1, 0], &prompt(14)), 1);
    // From then on it decides nothing.
    assert_eq!(route(&mut router, &[1, 0], &prompt(16)), 1);
    assert_eq!(route(&mut router, &[0, 1], &prompt(17)), 0);
    // A conversation that grows by two blocks a turn stays where it is beside three requests.
    for turn in 1..=12 {
        let conversation = request(90_000..90_512 + 128 * turn);
        let loads = match turn {
            1 => [0, 1],
            _ => [3, 0],
        };
        let core = route(&mut router, &loads, &conversation);
        assert_eq!(core, 0, "{turn}");
    }
}

#[test]
fn a_prompt_that_comes_again_and_again_is_not_forgotten() {
    let mut router = router(2);
    let hot = request(0..384);
    assert_eq!(route(&mut router, &[0, 1], &hot), 0);
    for n in 1..100 {
        // Others fill the memory of core 0 many times.
        assert_eq!(
            route(&mut router, &[0, 9], &request(1_000 * n..1_000 * n + 384)),
            0
        );
        assert_eq!(route(&mut router, &[0, 0], &hot), 0, "{n}");
    }
}

#[test]
fn the_longest_match_wins_up_to_an_imbalance() {
    let mut router = router(2);
    assert_eq!(route(&mut router, &[0, 0], &request(0..1_024)), 0);
    assert_eq!(route(&mut router, &[4, 0], &request(0..1_024)), 0);
    assert_eq!(route(&mut router, &[5, 0], &request(0..1_024)), 1);
    // Now both have it.
    assert_eq!(route(&mut router, &[2, 1], &request(0..1_024)), 1);
    // The same tokens under another salt are another prompt.
    let salted = EngineCoreRequest {
        cache_salt: Some("s".to_owned()),
        ..request(0..1_024)
    };
    assert_eq!(route(&mut router, &[1, 0], &salted), 1);
}

#[test]
fn siblings_stay_together_until_they_are_many() {
    let mut router = router(2);
    let loads = vec![Some(0), Some(0)];
    let sibling = request(0..640);
    let mut routing = router.routing(loads);
    let cores: Vec<usize> = (0..12).map(|_| routing.route(&sibling).unwrap()).collect();
    assert_eq!(cores, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1]);
    for core in &routing.router.cores {
        let times = core.recent.blocks.values().map(|block| block.times);
        assert_eq!(
            times.collect::<Vec<_>>(),
            [1; 10],
            "each prompt counts once"
        );
    }
}

#[test]
fn a_core_that_takes_none_gets_none() {
    let mut router = router(2);
    let request = request(0..128);
    assert_eq!(route(&mut router, &[0, 0], &request), 0);
    assert_eq!(router.routing(vec![None, Some(7)]).route(&request), Some(1));
    assert_eq!(router.routing(vec![None, None]).route(&request), None);
    router.forget(0);
    router.forget(1);
    assert_eq!(route(&mut router, &[1, 0], &request), 1);
}

#[test]
fn no_more_is_remembered_than_a_cache_has() {
    let mut recent = RecentBlocks::new(3);
    recent.add(&[1, 2]);
    recent.add(&[1, 3]);
    assert_eq!(recent.num_matches(&[1, 2]), 2);
    recent.add(&[4]);
    assert_eq!(recent.num_matches(&[1, 2]), 1, "2 was sent once, and first");
    assert_eq!(recent.num_matches(&[1, 3]), 2);
    recent.add(&[5, 6, 7, 8]);
    assert_eq!(recent.num_matches(&[5, 6, 7, 8]), 3);
    assert_eq!((recent.blocks.len(), recent.by_age.len()), (3, 3));
    let mut none = RecentBlocks::new(0);
    none.add(&[1]);
    assert_eq!(none.num_matches(&[1]), 0);
    assert_eq!(RecentBlocks::new(usize::MAX).capacity, MAX_RECENT_BLOCKS);
}
