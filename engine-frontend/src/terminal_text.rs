//! Text from others, for a terminal: it is read there and not obeyed.

use std::borrow::Cow;

/// Distance from a control character of ASCII to its picture: U+241B shows U+001B.
const PICTURES: u32 = 0x2400;

/// True for characters by which a text controls a terminal or stands in another order than it has:
/// all control characters but line feed and tab, and those that embed, override or isolate
/// directions of writing.
pub fn controls_terminals(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// The text with a picture (ASCII) or U+FFFD in the place of each [such](controls_terminals)
/// character. Each is judged alone, so the pieces of a stream give what the whole text would.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(controls_terminals) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        c if !controls_terminals(c) => c,
        '\u{7f}' => '\u{2421}',
        c if c.is_ascii() => char::from_u32(PICTURES + u32::from(c)).unwrap_or('\u{fffd}'),
        _ => '\u{fffd}',
    });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A title, a copy into the clipboard, colours, C1 forms of both, a line written over, names
    /// that run backwards.
    const HOSTILE: [(&str, &str); 8] = [
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x1b]52;c;bHM=\x1b\\", "␛]52;c;bHM=␛\\"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\u{9d}52;c;x\u{9c}", "\u{fffd}52;c;x\u{fffd}"),
        ("\u{9b}2J", "\u{fffd}2J"),
        ("safe\rrm \x08\x7f", "safe␍rm ␈␡"),
        ("\u{202e}gpj.exe\u{202c}", "\u{fffd}gpj.exe\u{fffd}"),
        ("\u{2066}a\u{2069}\0", "\u{fffd}a\u{fffd}␀"),
    ];

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (hostile, shown) in HOSTILE {
            assert_eq!(for_terminal(hostile), shown);
        }
    }

    #[test]
    fn text_stays_as_it_is() {
        let text = "Zeile\n\tSpalte “é” 日本語 עברית\u{200f} 👩\u{200d}🔬 🇨🇭\n";
        assert!(matches!(for_terminal(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn the_pieces_of_a_stream_give_what_the_whole_does() {
        for (hostile, shown) in HOSTILE {
            for (split, _) in hostile.char_indices() {
                let (a, b) = hostile.split_at(split);
                assert_eq!(format!("{}{}", for_terminal(a), for_terminal(b)), shown);
            }
        }
    }
}
