//! Which job a thread gets.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::TryRecvError;

use super::super::backend::StructuredOutputBackend;
use super::super::grammar_end::TellWhenGone;
use super::super::testing::{self, Memory, job};
use super::super::turn::Turn;
use super::*;
use crate::request_id::RequestId;

/// A queue, and a thread of each kind that does nothing by itself.
struct ByHand {
    queue: Arc<CompileQueue>,
    workers: [Worker; 3],
}

impl ByHand {
    fn new(max_new: usize) -> Self {
        let kinds = [Takes::Short, Takes::Shared, Takes::Apart];
        Self {
            queue: Arc::new(CompileQueue::new(max_new)),
            workers: kinds.map(Worker::new),
        }
    }

    /// Sends a new request's job that is to have a turn, for which it has to read so many KiB.
    fn send(&self, id: &str, num_kib: usize, turn: Turn) {
        let source_bytes = num_kib << 10;
        let job = CompileJob {
            turn: turn.for_text(source_bytes),
            source_bytes,
            ..job(id).0
        };
        self.queue.send_new(job).unwrap();
    }

    fn next(&mut self, takes: Takes) -> Option<CompileJob> {
        let mut workers = self.workers.iter_mut();
        let worker = workers.find(|worker| worker.takes == takes).unwrap();
        self.queue.try_next_job(worker)
    }

    /// The ids of the next jobs, which come to their end at once.
    fn ids<const N: usize>(&mut self, takes: Takes) -> [String; N] {
        std::array::from_fn(|_| self.next(takes).unwrap().request_id.to_string())
    }
}

/// A turn that is as long as so many first ones.
fn turn_of(arena: Arena, times: u64) -> Turn {
    let first = Turn::first(arena);
    let mut turn = first;
    while turn.fuel() < times * first.fuel() {
        turn = turn.next();
    }
    turn
}

const SHARED: Arena = Arena::Shared;

#[test]
fn what_waits_longest_has_half_of_the_work() {
    let mut threads = ByHand::new(100);
    for id in ["old", "older"] {
        threads.send(id, 0, turn_of(Arena::Apart, 4));
    }
    let mut order = Vec::new();
    for number in 0..10 {
        // Others that have taken less come all the time.
        threads.send(&format!("new {number}"), 0, Turn::first(Arena::Apart));
        let [id] = threads.ids(Takes::Apart);
        order.push(id);
    }
    // Its turn is as long as four of theirs.
    let expected = [
        "new 0", "new 1", "new 2", "new 3", "old", "new 5", "new 6", "new 7", "new 8", "older",
    ];
    assert_eq!(order, expected);
}

#[test]
fn who_comes_waits_for_no_crowd() {
    let mut threads = ByHand::new(10_000);
    for number in 0..1000 {
        threads.send(&format!("{number}"), 0, Turn::first(SHARED));
    }
    for takes in [Takes::Short, Takes::Shared] {
        for _ in 0..7 {
            threads.send("good", 0, Turn::first(SHARED));
            let order: [String; 2] = threads.ids(takes);
            assert!(order.contains(&"good".to_owned()), "{order:?}");
        }
    }
    // And those of the crowd that came first are served as well.
    assert_eq!(threads.ids(Takes::Short), ["999", "14", "998", "15"]);
}

#[test]
fn short_constraints_wait_for_no_crowd_of_long_ones() {
    let mut threads = ByHand::new(1000);
    for number in 0..20 {
        threads.send(&format!("long {number}"), 60, Turn::first(SHARED));
    }
    // A long text is as much as some turns' steps: here four.
    for number in 0..3 {
        threads.send(&format!("short {number}"), 1, Turn::first(SHARED));
    }
    threads.send("begun", 1, turn_of(SHARED, 2));
    let expected = [
        "short 2", "short 1", "short 0", "begun", "long 0", "long 19", "long 1",
    ];
    assert_eq!(threads.ids(Takes::Shared), expected);
    threads.send("begun long ago", 1, turn_of(SHARED, 16));
    assert_eq!(threads.ids(Takes::Shared), ["long 18", "long 2", "long 17"]);
}

#[test]
fn one_thread_is_there_for_short_turns() {
    let mut threads = ByHand::new(1000);
    for number in 0..100 {
        threads.send(&format!("long {number}"), 40, Turn::first(SHARED));
    }
    threads.send("second turn", 1, turn_of(SHARED, 2));
    threads.send("apart", 1, Turn::first(Arena::Apart));
    assert!(threads.next(Takes::Short).is_none());
    for number in 0..100 {
        threads.send(&format!("short {number}"), 1, Turn::first(SHARED));
    }
    for _ in 0..80 {
        let [id] = threads.ids(Takes::Short);
        assert!(id.starts_with("short"), "{id}");
    }
    // Meanwhile others go on with the long ones, however many short ones wait.
    let order: [String; 10] = threads.ids(Takes::Shared);
    let long = order.iter().filter(|id| id.starts_with("long"));
    assert_eq!(long.count(), 2, "{order:?}");
}

/// What is computed for a grammar is in memory that all share, and may be gone before its next turn where
/// many are begun at a time.
#[test]
fn few_long_texts_are_under_way_at_a_time() {
    let mut threads = ByHand::new(1000);
    for number in 0..100 {
        threads.send(&format!("long {number}"), 40, Turn::first(SHARED));
    }
    let next = |threads: &mut ByHand| threads.next(Takes::Shared);
    let mut begun: Vec<CompileJob> = (0..26).map(|_| next(&mut threads).unwrap()).collect();
    assert!(next(&mut threads).is_none());
    // Short ones are begun in any case.
    threads.send("short", 1, Turn::first(SHARED));
    assert_eq!(threads.ids(Takes::Shared), ["short"]);
    // They count wherever they wait in memory that is shared, until they end.
    let job = begun.pop().unwrap();
    let id = job.request_id.clone();
    let turn = job.turn.next();
    threads.queue.send(CompileJob { turn, ..job }).unwrap();
    let job = next(&mut threads).unwrap();
    assert_eq!(job.request_id, id);
    assert!(next(&mut threads).is_none());
    drop(job);
    begun.push(next(&mut threads).unwrap());
    assert!(next(&mut threads).is_none());
    // Or until they go on in memory apart, where all do in the end that are hostile.
    let job = begun.pop().unwrap();
    let mut turn = job.turn;
    while turn.arena == SHARED {
        turn = turn.next();
    }
    threads.queue.send(CompileJob { turn, ..job }).unwrap();
    begun.push(next(&mut threads).unwrap());
    assert!(next(&mut threads).is_none());
    assert!(threads.next(Takes::Apart).is_some());
    // Or wait for memory.
    let before = threads.queue.num_freed();
    threads.queue.wait_for_memory(begun.pop().unwrap(), before);
    begun.push(next(&mut threads).unwrap());
    assert!(next(&mut threads).is_none());
}

/// Who comes after a crowd is not begun after all of it.
#[test]
fn long_texts_after_a_crowd_are_begun_before_its_last() {
    let mut threads = ByHand::new(1000);
    for number in 0..100 {
        threads.send(&format!("hostile {number}"), 40, Turn::first(SHARED));
    }
    let mut begun: Vec<CompileJob> = (0..26)
        .map(|_| threads.next(Takes::Shared).unwrap())
        .collect();
    threads.send("good", 40, Turn::first(SHARED));
    let mut order = Vec::new();
    while order.len() < 5 {
        drop(begun.pop());
        let job = threads.next(Takes::Shared).unwrap();
        order.push(job.request_id.clone());
        begun.push(job);
    }
    let expected = [
        "good",
        "hostile 13",
        "hostile 86",
        "hostile 14",
        "hostile 85",
    ];
    assert_eq!(order, expected.map(RequestId::from));
}

/// One of 300 KiB has the room of seven of 40.
#[test]
fn the_shorter_long_texts_are_the_more_are_under_way() {
    for (num_kib, expected) in [(16, 64), (40, 26), (100, 11), (300, 4), (5000, 1)] {
        let mut threads = ByHand::new(1000);
        for number in 0..100 {
            threads.send(&format!("long {number}"), num_kib, Turn::first(SHARED));
        }
        let begun: Vec<CompileJob> = std::iter::from_fn(|| threads.next(Takes::Shared)).collect();
        assert_eq!(begun.len(), expected, "{num_kib}");
    }
}

#[test]
fn the_end_of_a_long_text_wakes_a_thread() {
    let mut threads = ByHand::new(1000);
    for id in ["first", "second"] {
        threads.send(id, 5000, Turn::first(SHARED));
    }
    let begun = threads.next(Takes::Shared).unwrap();
    let queue = Arc::clone(&threads.queue);
    let waits = std::thread::spawn(move || {
        let job = queue.next_job(&mut Worker::new(Takes::Shared));
        job.unwrap().request_id
    });
    drop(begun);
    assert_eq!(waits.join().unwrap(), "first".into());
}

#[test]
fn known_grammars_have_places_of_their_own() {
    let queue = Arc::new(CompileQueue::new(3));
    let new = |id: &str, was_known| CompileJob {
        was_known,
        ..job(id).0
    };
    let full = Err(SendError::Full(3));
    for id in ["a", "b", "c"] {
        queue.send_new(new(id, true)).unwrap();
    }
    assert_eq!(queue.send_new(new("d", true)), full);
    // Those that were begun count, but not where nobody waits for them any more.
    queue.send_new(new("d", false)).unwrap();
    queue.send(new("e", false)).unwrap();
    let aborted = CompileJob {
        turn: Turn::first(Arena::Apart),
        ..new("f", false)
    };
    let cancel = aborted.cancel.clone();
    queue.send(aborted).unwrap();
    assert_eq!(queue.send_new(new("g", false)), full);
    cancel.cancel();
    queue.send_new(new("h", false)).unwrap();
    assert_eq!(queue.send_new(new("i", false)), full);
    queue.close();
    assert!(queue.next_job(&mut Worker::new(Takes::Short)).is_none());
    let closed = Err(SendError::Closed);
    assert_eq!(queue.send_new(new("j", false)), closed);
}

#[test]
fn jobs_look_again_when_there_is_memory() {
    let mut threads = ByHand::new(8);
    let queue = Arc::clone(&threads.queue);
    let memory = Arc::new(Memory(AtomicBool::new(true)));
    let tell_when_gone = || TellWhenGone {
        queue: Arc::clone(&queue),
        backend: Arc::clone(&memory) as Arc<dyn StructuredOutputBackend>,
    };
    let job = |id: &str, arena| CompileJob {
        turn: Turn::first(arena),
        ..testing::job(id).0
    };
    let mut next = |takes| threads.next(takes).map(|job| job.request_id);
    let grammar = tell_when_gone();
    queue.wait_for_memory(job("a", SHARED), queue.num_freed());
    queue.wait_for_memory(job("b", Arena::Apart), queue.num_freed());
    assert_eq!(next(Takes::Shared), None);
    // Another grammar than those that have the memory.
    memory.0.store(false, Ordering::Relaxed);
    drop(tell_when_gone());
    assert_eq!(next(Takes::Shared), None);
    memory.0.store(true, Ordering::Relaxed);
    drop(grammar);
    assert_eq!(next(Takes::Shared), Some("a".into()));
    assert_eq!(next(Takes::Apart), Some("b".into()));
    // Who waits no more leaves when the next one comes.
    let (aborted, answer) = testing::job("aborted");
    aborted.cancel.cancel();
    queue.wait_for_memory(aborted, queue.num_freed());
    queue.wait_for_memory(job("d", Arena::Apart), queue.num_freed());
    assert_eq!(answer.try_recv().err(), Some(TryRecvError::Disconnected));
    // Gone between its look and its wait.
    let before = queue.num_freed();
    drop(tell_when_gone());
    queue.wait_for_memory(job("c", SHARED), before);
    assert_eq!(next(Takes::Shared), Some("c".into()));
    assert_eq!(next(Takes::Shared), None);
}
