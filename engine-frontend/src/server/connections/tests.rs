use std::net::IpAddr;

use super::*;
use crate::server::memory::Share;

const MIB: u64 = 1 << 20;

fn connections(max: u32, max_per_address: u32, has_keys: bool) -> Arc<Connections> {
    Connections::new(Limits {
        max,
        max_per_address,
        has_keys,
        max_head: 64 << 10,
    })
}

fn address(number: u8) -> Option<IpAddr> {
    Some([10, 0, 0, number].into())
}

/// True where the connection was given up.
async fn is_closed(connection: &Connection) -> bool {
    let closed = timeout(Duration::ZERO, connection.closed());
    closed.await.is_ok()
}

#[tokio::test]
async fn an_address_has_its_part_of_the_places() {
    let all = connections(20, 2, false);
    let first = all.enter(address(1)).await.unwrap();
    let second = all.enter(address(1)).await.unwrap();
    let _other = all.enter(address(2)).await.unwrap();
    // A third takes the place of the one that has been silent the longest.
    let third = all.enter(address(1)).await.unwrap();
    assert!(is_closed(&first.connection).await);
    assert!(!is_closed(&second.connection).await);
    drop(first);
    // Those that have sent a request are left alone, also between two.
    drop(second.connection.begin_request());
    let _busy = third.connection.begin_request();
    assert!(all.enter(address(1)).await.is_none());
    assert!(all.enter(address(2)).await.is_some());
    drop(third);
    assert!(all.enter(address(1)).await.is_some());
    // Unix domain sockets have no address.
    for _ in 0..3 {
        std::mem::forget(all.enter(None).await.unwrap());
    }
}

#[tokio::test]
async fn places_are_taken_from_the_silent_first() {
    let all = connections(3, 3, false);
    let worked_on = all.enter(address(1)).await.unwrap();
    let _busy = worked_on.connection.begin_request();
    let idle = all.enter(address(2)).await.unwrap();
    drop(idle.connection.begin_request());
    let silent = all.enter(address(3)).await.unwrap();
    for given_up in [silent, idle] {
        let entering = tokio::spawn({
            let all = all.clone();
            async move { all.enter(address(4)).await.unwrap() }
        });
        given_up.connection.closed().await;
        drop(given_up);
        let place = entering.await.unwrap();
        // It stays.
        std::mem::forget(place.connection.begin_request());
        std::mem::forget(place);
    }
    assert!(!is_closed(&worked_on.connection).await);
    let entering = timeout(Duration::from_millis(1), all.enter(address(5)));
    assert!(entering.await.is_err(), "nobody can be given up");
}

#[tokio::test]
async fn a_request_that_waits_for_its_turn_keeps_nobody_out() {
    let all = connections(1, 1, true);
    let waiting = all.enter(address(1)).await.unwrap();
    let busy = waiting.connection.begin_request();
    let turn = waiting.connection.wait_for_turn();
    let entering = tokio::spawn({
        let all = all.clone();
        async move { all.enter(address(2)).await.unwrap() }
    });
    waiting.connection.closed().await;
    drop(turn);
    drop((busy, waiting));
    let place = entering.await.unwrap();
    let _busy = place.connection.begin_request();
    drop(place.connection.wait_for_turn());
    // It has had its turn, and is worked on.
    let entering = timeout(Duration::from_millis(1), all.enter(address(3)));
    assert!(entering.await.is_err());
}

#[tokio::test]
async fn clients_without_a_key_have_places_of_their_own() {
    let all = connections(16_384, 16_384, true);
    let mut places = Vec::new();
    for _ in 0..MAX_STRANGERS {
        places.push(all.enter(address(1)).await.unwrap());
    }
    places[0].connection.set_key(7);
    places.push(all.enter(address(1)).await.unwrap());
    for place in &places {
        assert!(!is_closed(&place.connection).await);
    }
    let _next = all.enter(address(1)).await.unwrap();
    assert!(is_closed(&places[1].connection).await);
    assert!(!is_closed(&places[0].connection).await);
    places.clear();
    assert_eq!(all.open().num_strangers, 1);
    // One that came first is left alone while another address has more.
    let honest = all.enter(address(2)).await.unwrap();
    for _ in 0..MAX_STRANGERS + 10 {
        places.push(all.enter(address(1)).await.unwrap());
    }
    assert!(!is_closed(&honest.connection).await);
    assert!(is_closed(&places[0].connection).await);
    drop(honest);
    places.clear();
    // Where there are no keys nobody lacks one.
    let all = connections(16_384, 16_384, false);
    for _ in 0..=MAX_STRANGERS {
        places.push(all.enter(address(1)).await.unwrap());
    }
    assert!(!is_closed(&places[0].connection).await);
}

/// A client of this address whose body of so many MiB is incomplete.
async fn half_sent(
    all: &Arc<Connections>,
    budget: &Budget,
    number: u8,
    mebibytes: u64,
) -> (Place, Busy, Share) {
    let place = all.enter(address(number)).await.unwrap();
    let busy = place.connection.begin_request();
    std::mem::forget(place.connection.wait_for_body());
    let mut share = budget.share(&place.connection);
    assert!(share.grow(mebibytes * MIB));
    (place, busy, share)
}

#[tokio::test]
async fn memory_is_taken_from_the_client_that_is_waited_for_and_holds_most() {
    let all = connections(100, 100, false);
    let budget = Budget::new(Pool::Requests, 256 * MIB);
    // An honest client sends slowly, and began first.
    let honest = half_sent(&all, &budget, 1, 10).await;
    let mut hostile = Vec::new();
    for _ in 0..7 {
        hostile.push(half_sent(&all, &budget, 2, 32).await);
    }
    let mut worked_on = half_sent(&all, &budget, 2, 22).await;
    drop(worked_on.0.connection.wait_for_body());
    assert_eq!(budget.taken(), 256 * MIB);
    let place = all.enter(address(3)).await.unwrap();
    let mut share = budget.share(&place.connection);
    assert!(share.grow(40 * MIB));
    let refused: Vec<bool> = hostile
        .iter()
        .map(|(p, ..)| p.connection.is_given_up())
        .collect();
    assert_eq!(refused, [true, true, false, false, false, false, false]);
    assert!(!honest.0.connection.is_given_up() && !worked_on.0.connection.is_given_up());
    // They held 64 MiB, which is enough for this as well.
    assert!(share.grow(20 * MIB));
    assert!(!hostile[2].0.connection.is_given_up());
    hostile.drain(..2);
    assert_eq!(budget.taken(), 252 * MIB);
    // Who holds the most can't make the others pay.
    assert!(worked_on.2.grow(8 * MIB));
    assert!(!honest.0.connection.is_given_up());
    assert!(hostile[0].0.connection.is_given_up());
    assert!(!share.grow(250 * MIB), "there is not so much");
    assert!(!hostile[1].0.connection.is_given_up());
    assert!(!honest.0.connection.is_given_up());
}

#[tokio::test]
async fn memory_is_taken_from_clients_that_read_no_answer() {
    let all = connections(100, 100, false);
    let budget = Budget::new(Pool::Requests, 100 * MIB);
    let slow = all.enter(address(1)).await.unwrap();
    let mut answer = budget.share(&slow.connection);
    let _stream = slow.connection.begin_request();
    assert!(answer.grow(90 * MIB));
    let place = all.enter(address(2)).await.unwrap();
    let mut share = budget.share(&place.connection);
    assert!(!share.grow(20 * MIB), "it is worked on");
    slow.connection.set_write_waits(true);
    assert!(share.grow(20 * MIB));
    assert!(is_closed(&slow.connection).await);
}

#[test]
fn an_ipv6_network_is_one_address() {
    let network_of = |text: &str| network(text.parse().unwrap());
    assert_eq!(
        network_of("2001:db8:1:2:3::4"),
        network_of("2001:db8:1:2::")
    );
    assert_ne!(
        network_of("2001:db8:1:2:3::4"),
        network_of("2001:db8:1:3::")
    );
    assert_eq!(network_of("::ffff:10.0.0.1"), network_of("10.0.0.1"));
    assert_ne!(network_of("10.0.0.1"), network_of("10.0.0.2"));
}

#[test]
fn files_are_left_for_other_things_than_connections() {
    for (max, files, expected) in [
        (16_384, None, 16_384),
        (16_384, Some(1 << 20), 16_384),
        (100, Some(1024), 100),
        (16_384, Some(1024), 896),
        (16_384, Some(256), 128),
        (16_384, Some(64), 32),
        (16_384, Some(0), 1),
    ] {
        assert_eq!(within_files(max, files), expected, "{max} {files:?}");
    }
}
