use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Marks of channels, each of which begins as others do.
fn channels() -> SplitMarkers {
    SplitMarkers {
        starts: vec![units("xb"), units("xdb")],
        ends: vec![units("yy"), units("ya")],
        separator: units("xa"),
        has_header: true,
        preamble: units("xc"),
        answer_end: units("zy"),
        is_text: true,
    }
}

/// Marks of thinking alone.
fn plain() -> SplitMarkers {
    SplitMarkers {
        separator: Vec::new(),
        has_header: false,
        preamble: Vec::new(),
        ..channels()
    }
}

fn units(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

fn text(units: &[u32]) -> String {
    units
        .iter()
        .filter_map(|&unit| char::from_u32(unit))
        .collect()
}

fn split(markers: &SplitMarkers, ended: Option<bool>, output: &str) -> (String, String) {
    let mut split = ThinkingSplit::new(Arc::new(markers.clone()), ended);
    let (mut thought, mut answer) = (String::new(), String::new());
    let mut take = |split: &mut ThinkingSplit| {
        for (unit, part) in split.take_settled() {
            let char = char::from_u32(unit).unwrap();
            match part {
                Part::Reasoning => thought.push(char),
                Part::Content => answer.push(char),
                Part::LineEnd => answer.push('\n'),
                Part::Marker | Part::Behind => {}
            }
        }
    };
    for char in output.chars() {
        split.push(char.into());
        take(&mut split);
    }
    split.finish();
    take(&mut split);
    (thought, answer)
}

/// The same of a whole text, by searching it.
fn reference(markers: &SplitMarkers, ended: Option<bool>, output: &str) -> (String, String) {
    let texts = |list: &[Vec<u32>]| list.iter().map(|mark| text(mark)).collect::<Vec<_>>();
    let (starts, ends) = (texts(&markers.starts), texts(&markers.ends));
    let after = |rest: &str, marks: &[String]| {
        let found = marks.iter().find(|mark| rest.starts_with(mark.as_str()))?;
        Some(rest[found.len()..].to_owned())
    };
    // The text up to the first of the marks, and what is behind it.
    let up_to = |rest: &str, marks: &[String]| {
        let places = rest.char_indices();
        let mut places = places.filter_map(|(at, _)| Some((at, after(&rest[at..], marks)?)));
        match places.next() {
            Some((at, behind)) => (rest[..at].to_owned(), Some(behind)),
            None => (rest.to_owned(), None),
        }
    };
    let (mut thought, mut answer) = (String::new(), String::new());
    let mut rest = Some(output.to_owned());
    let mut is_open = ended == Some(false);
    let mut is_behind_preamble = false;
    if is_open {
        rest = after(output, &starts).or(rest);
    }
    while let Some(here) = rest.take() {
        if is_open {
            let (inner, behind) = up_to(&here, &ends);
            thought.push_str(&inner);
            is_open = false;
            rest = behind;
            if markers.has_header || rest.is_none() {
                continue;
            }
            answer.push_str(&up_to(&rest.take().unwrap(), &[text(&markers.answer_end)]).0);
            break;
        }
        if let Some(behind) = after(&here, &starts).filter(|_| ended != Some(true)) {
            is_open = true;
            rest = Some(behind);
            continue;
        }
        let header = [text(&markers.separator)];
        let preamble = [text(&markers.preamble)];
        let has_header = markers.has_header;
        let behind_header = after(&here, &header).filter(|_| has_header);
        let behind_preamble = after(&here, &preamble).filter(|_| has_header);
        if is_behind_preamble && (behind_header.is_some() || behind_preamble.is_some()) {
            answer.push('\n');
        }
        if let Some(behind) = behind_preamble {
            let (inner, behind) = up_to(&behind, &ends);
            answer.push_str(&inner);
            is_behind_preamble = true;
            rest = behind;
            continue;
        }
        let inner = behind_header.unwrap_or(here);
        answer.push_str(&up_to(&inner, &[text(&markers.answer_end)]).0);
    }
    (thought, answer)
}

#[test]
fn what_models_write_is_told_apart() {
    for (ended, output, thought, answer) in [
        (None, "xbhmyyxaok", "hm", "ok"),
        (None, "xbhmyyxcfirstyyxaok", "hm", "first\nok"),
        (None, "xcfirstyyxbhmyyxaok", "hm", "first\nok"),
        (
            None,
            "xbayyxdbbyaxcfirstyyxcsecondyyxaok",
            "ab",
            "first\nsecond\nok",
        ),
        (Some(false), "hmyyxaokzyxaa", "hm", "ok"),
        (Some(true), "xaok", "", "ok"),
        (Some(true), "xbok", "", "xbok"),
        // What was begun and not ended.
        (None, "xbhmy", "hmy", ""),
        (None, "xbhmyyx", "hm", "x"),
        (None, "xbhmyyxcfirsty", "hm", "firsty"),
        (None, "xaokz", "", "okz"),
    ] {
        let expected = (thought.to_owned(), answer.to_owned());
        assert_eq!(split(&channels(), ended, output), expected, "{output}");
    }
}

proptest! {
    #[test]
    fn a_split_is_what_a_search_of_the_whole_finds(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "xa", "xb", "xc", "xdb", "yy", "ya", "zy", "x", "y", "z", "a", "b", "d", "\u{e9}",
            ]),
            0..16,
        ),
        ended in prop::sample::select(vec![None, Some(false), Some(true)]),
        has_channels in any::<bool>(),
    ) {
        let markers = if has_channels { channels() } else { plain() };
        let output = pieces.concat();
        prop_assert_eq!(split(&markers, ended, &output), reference(&markers, ended, &output));
    }
}
