//! A model's thinking told from its answer, while the output comes.

use std::sync::Arc;

/// The marks around a model's thinking and its answers, each a list of units: tokens, or the characters of plain
/// text, whatever tokens write them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SplitMarkers {
    /// Spellings of the mark that opens thinking. Where the output may begin with it, it comes first.
    pub starts: Vec<Vec<u32>>,
    /// Spellings of the mark that closes thinking, and a preamble.
    pub ends: Vec<Vec<u32>>,
    /// The units that the engine puts between thinking and the answer, see
    /// [`ThinkingTokens::separator_token_ids`](protocol::ThinkingTokens::separator_token_ids); or, with `has_header`,
    /// those that the model itself writes before an answer, after thinking or without.
    pub separator: Vec<u32>,
    /// True if the separator is the header of a channel.
    pub has_header: bool,
    /// The header of a channel of text for the user that comes before the answer; empty where there is none. Only with
    /// `has_header`.
    pub preamble: Vec<u32>,
    /// The mark behind an answer, and the end of what is told of the output; empty where there is none.
    pub answer_end: Vec<u32>,
    /// True if the units are characters.
    pub is_text: bool,
}

/// Tells a model's thinking from its answer, unit by unit. A mark may be several units: the first of them are held
/// until it is known whether the others follow. Memory: the longest mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingSplit {
    markers: Arc<SplitMarkers>,
    place: Place,
    /// True if thinking may begin where a part of the output does.
    may_think: bool,
    /// True once thinking has begun.
    has_thought: bool,
    /// True if a preamble came before what comes next.
    is_behind_preamble: bool,
    /// Units that may belong to a mark.
    held: Vec<u32>,
    /// Units of which it is known since the last call what they belong to.
    settled: Vec<(u32, Part)>,
}

/// Where an output stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the beginning, after a prompt that has opened thinking: the mark may come once more.
    Opened,
    /// Before a part of the output: thinking, a preamble or the answer.
    Between,
    Thinking,
    Preamble,
    /// In the separator, so many units of it taken.
    Separating(usize),
    Answer,
    /// Behind the answer.
    Over,
}

/// What a unit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Thinking.
    Reasoning,
    /// A mark.
    Marker,
    /// The last unit of a mark between two texts for the user, which a line end tells apart.
    LineEnd,
    /// Text for the user.
    Content,
    /// The mark behind the answer, or what follows it.
    Behind,
}

impl ThinkingSplit {
    /// The split of an output. `ended` says whether thinking has ended before it, `None` that it may yet begin.
    pub fn new(markers: Arc<SplitMarkers>, ended: Option<bool>) -> Self {
        let place = match ended {
            Some(false) => Place::Opened,
            None => Place::Between,
            Some(true) if markers.has_header => Place::Between,
            Some(true) => Place::Answer,
        };
        Self {
            markers,
            place,
            may_think: ended != Some(true),
            has_thought: ended == Some(false),
            is_behind_preamble: false,
            held: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// True if the units are the characters of plain text.
    pub fn is_text(&self) -> bool {
        self.markers.is_text
    }

    /// True in thinking that has begun.
    pub fn is_thinking(&self) -> bool {
        matches!(self.place, Place::Opened | Place::Thinking)
    }

    /// True if thinking has begun and no text for the user came after it.
    pub fn is_before_answer(&self) -> bool {
        let is_answer = matches!(self.place, Place::Preamble | Place::Answer | Place::Over);
        self.has_thought && !is_answer
    }

    /// Takes the output's next unit. What it decides is [`take_settled`](Self::take_settled)'s.
    pub fn push(&mut self, unit: u32) {
        match self.place {
            Place::Over => self.settled.push((unit, Part::Behind)),
            Place::Separating(taken) => self.separate(taken, unit),
            place => {
                self.held.push(unit);
                match place {
                    Place::Thinking => self.up_to_end(Part::Reasoning),
                    Place::Preamble => self.up_to_end(Part::Content),
                    Place::Answer => self.up_to_answer_end(),
                    _ => self.before_part(),
                }
            }
        }
    }

    /// The units of which it is known since the last call what they belong to, in their order. Their memory may be
    /// [given back](Self::reuse).
    pub fn take_settled(&mut self) -> Vec<(u32, Part)> {
        std::mem::take(&mut self.settled)
    }

    /// Takes memory back that `take_settled` gave.
    pub fn reuse(&mut self, mut settled: Vec<(u32, Part)>) {
        settled.clear();
        self.settled = settled;
    }

    /// Settles what is held at the end of an output.
    pub fn finish(&mut self) {
        let part = match self.is_thinking() {
            true => Part::Reasoning,
            false => Part::Content,
        };
        self.settle(self.held.len(), part);
    }

    /// Compares the held units with the marks by which a part of the output begins.
    fn before_part(&mut self) {
        let markers = Arc::clone(&self.markers);
        let is_opened = self.place == Place::Opened;
        let starts = (markers.starts.iter()).filter(|_| self.may_think || is_opened);
        let headers = [
            (&markers.separator, Place::Answer),
            (&markers.preamble, Place::Preamble),
        ];
        let headers = headers
            .into_iter()
            .filter(|(marker, _)| markers.has_header && !is_opened && !marker.is_empty());
        let marks = starts.map(|start| (start, Place::Thinking)).chain(headers);
        let mut is_begun = false;
        for (marker, place) in marks {
            if *marker == self.held {
                return self.begin(place);
            }
            is_begun |= marker.starts_with(&self.held);
        }
        if is_begun {
            return;
        }
        self.place = match is_opened {
            true => Place::Thinking,
            false => Place::Answer,
        };
        for unit in std::mem::take(&mut self.held) {
            self.push(unit);
        }
    }

    /// Begins a part of the output whose mark is held.
    fn begin(&mut self, place: Place) {
        let is_text = place != Place::Thinking;
        if is_text && std::mem::take(&mut self.is_behind_preamble) {
            self.settle(self.held.len() - 1, Part::Marker);
            self.settle(1, Part::LineEnd);
        }
        self.settle(self.held.len(), Part::Marker);
        self.has_thought |= !is_text;
        self.place = place;
    }

    /// Settles held units up to where the mark of thinking's end may begin, and goes on behind it where it is whole.
    fn up_to_end(&mut self, part: Part) {
        let markers = Arc::clone(&self.markers);
        let at = begin_of(&markers.ends, &self.held);
        self.settle(at, part);
        if self.held.is_empty() || !markers.ends.contains(&self.held) {
            return;
        }
        self.settle(self.held.len(), Part::Marker);
        self.is_behind_preamble |= part == Part::Content;
        self.place = match markers.separator.is_empty() {
            _ if markers.has_header => Place::Between,
            true => Place::Answer,
            false => Place::Separating(0),
        };
    }

    fn up_to_answer_end(&mut self) {
        let markers = Arc::clone(&self.markers);
        let end = std::slice::from_ref(&markers.answer_end);
        let at = begin_of(end, &self.held);
        self.settle(at, Part::Content);
        if !self.held.is_empty() && self.held == markers.answer_end {
            self.settle(self.held.len(), Part::Behind);
            self.place = Place::Over;
        }
    }

    fn separate(&mut self, taken: usize, unit: u32) {
        let separator = &self.markers.separator;
        if separator.get(taken) != Some(&unit) {
            self.place = Place::Answer;
            return self.push(unit);
        }
        self.place = match taken + 1 < separator.len() {
            true => Place::Separating(taken + 1),
            false => Place::Answer,
        };
        self.settled.push((unit, Part::Marker));
    }

    fn settle(&mut self, number: usize, part: Part) {
        let units = self.held.drain(..number);
        self.settled.extend(units.map(|unit| (unit, part)));
    }
}

/// Where the rest of `held` may go on to be one of the marks, or is it.
fn begin_of(marks: &[Vec<u32>], held: &[u32]) -> usize {
    let is_begun = |at: &usize| {
        let rest = held.get(*at..).unwrap_or_default();
        marks.iter().any(|mark| mark.starts_with(rest))
    };
    (0..held.len()).find(is_begun).unwrap_or(held.len())
}

#[cfg(test)]
mod tests;
