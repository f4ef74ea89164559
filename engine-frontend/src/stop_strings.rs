//! Looking for stop strings in text as it comes.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::{Anchored, nfa::contiguous::NFA};

use protocol::Shared;

/// A request's stop strings and what finds them: built once, shared by all its answers.
///
/// Memory is some 20 bytes per byte of the strings, which
/// [`verify`](crate::verify) bounds.
#[derive(Debug, Default)]
pub struct StopStrings {
    /// Never empty strings.
    strings: Vec<String>,
    /// `None` where there are no strings.
    automaton: Option<NFA>,
    longest_chars: usize,
}

/// How far an answer's text was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StopSearch {
    /// Where the automaton stands behind the text that was read; `None` at its start.
    state: Option<StateID>,
    /// Bytes that were read.
    num_bytes: usize,
}

impl StopStrings {
    /// What finds these strings; empty ones stop nothing. Costs a pass over them.
    pub fn new(stop: &Shared<[String]>) -> Self {
        let strings: Vec<String> = stop.iter().filter(|s| !s.is_empty()).cloned().collect();
        if strings.is_empty() {
            return Self::default();
        }
        // It fails only beyond the 2^31 states that bounded strings never have.
        let automaton = NFA::new(&strings)
            .inspect_err(|error| tracing::error!("stop strings can't be looked for: {error}"));
        Self {
            longest_chars: strings.iter().map(|s| s.chars().count()).max().unwrap_or(0),
            automaton: automaton.ok(),
            strings,
        }
    }

    /// Characters of the longest string.
    pub(crate) fn longest_chars(&self) -> usize {
        self.longest_chars
    }

    /// Reads what `text` has behind the last call's. Returns the stop string that ends first there, and where:
    /// of several that end at one place the first of the request's list. Matches before `from` are passed
    /// over. Looks at each byte once, however many strings there are and however long they are.
    pub(crate) fn find(
        &self,
        search: &mut StopSearch,
        text: &str,
        from: usize,
    ) -> Option<(&str, std::ops::Range<usize>)> {
        let automaton = self.automaton.as_ref()?;
        let mut state = match search.state {
            Some(state) => state,
            None => automaton.start_state(Anchored::No).ok()?,
        };
        for &byte in text.as_bytes().get(search.num_bytes..)? {
            state = automaton.next_state(Anchored::No, state, byte);
            search.state = Some(state);
            search.num_bytes += 1;
            if search.num_bytes > from && automaton.is_match(state) {
                let matches =
                    (0..automaton.match_len(state)).map(|i| automaton.match_pattern(state, i));
                let first = matches.map(|pattern| pattern.as_usize()).min()?;
                let stop = self.strings.get(first)?;
                let end = search.num_bytes;
                return Some((stop, end - stop.len()..end));
            }
        }
        None
    }
}

impl PartialEq for StopStrings {
    fn eq(&self, other: &Self) -> bool {
        self.strings == other.strings
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shared(strings: &[&str]) -> Shared<[String]> {
        strings.iter().map(|&s| s.to_owned()).collect()
    }

    /// The definition, by looking everywhere: the string that ends first behind `from`.
    fn reference<'a>(
        strings: &[&'a str],
        text: &str,
        from: usize,
    ) -> Option<(&'a str, std::ops::Range<usize>)> {
        (from + 1..=text.len()).find_map(|end| {
            let ends = |s: &&&str| text.as_bytes()[..end].ends_with(s.as_bytes());
            let stop = strings.iter().find(ends)?;
            Some((*stop, end - stop.len()..end))
        })
    }

    proptest! {
        #[test]
        fn pieces_are_searched_as_the_whole_is(
            strings in prop::collection::vec("[ab]{1,4}", 1..5),
            pieces in prop::collection::vec("[abc]{0,3}", 0..8),
            from in 0..6_usize,
        ) {
            let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
            let stop = StopStrings::new(&shared(&strings));
            let mut search = StopSearch::default();
            let mut text = String::new();
            let mut found = None;
            for piece in &pieces {
                text.push_str(piece);
                found = found.or_else(|| stop.find(&mut search, &text, from));
                // Each byte was looked at once.
                if found.is_none() {
                    prop_assert_eq!(search.num_bytes, text.len());
                }
            }
            prop_assert_eq!(found, reference(&strings, &text, from));
        }
    }

    #[test]
    fn nothing_stops_where_there_is_nothing_to_look_for() {
        let stop = StopStrings::new(&shared(&["", ""]));
        assert!(stop.automaton.is_none());
        assert_eq!(stop.find(&mut StopSearch::default(), "text", 0), None);
    }
}
