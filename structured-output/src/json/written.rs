//! Keys and items as far as they are looked at to tell them from others.
//!
//! What is written is read byte by byte, and what is known of a beginning is a small value: so a
//! long text is read once while it grows, not once for each of its bytes.

/// A key, or an item of an array of distinct items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// The first byte, one for all numbers.
    kind: u8,
    /// The sum of the hashes of all strings in it, and of how often each other kind occurs: equal values
    /// have equal ones, however they are spelled. `None` where a string can't be read.
    sum: Option<u64>,
}

impl Written {
    /// A key, from the text of its lexeme; `None` where that has none.
    pub(crate) fn key(lexeme: &[u8]) -> Option<Self> {
        let mut scan = Scan::of_key();
        scan.read(lexeme);
        scan.written()
    }

    /// An item, perhaps with what separates it from others.
    pub(crate) fn item(text: &[u8]) -> Option<Self> {
        let mut scan = Scan::of_item();
        scan.read(text);
        scan.written()
    }

    /// Whether both may be the same key, or equal items. False is certain.
    pub(crate) fn may_equal(&self, other: &Self) -> bool {
        let is_unknown = self.sum.is_none() || other.sum.is_none();
        self.kind == other.kind && (is_unknown || self.sum == other.sum)
    }
}

/// Where in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the quote of a key.
    BeforeKey,
    /// Before the first sign of an item.
    BeforeItem,
    /// Between values within an item.
    Between,
    /// Within a number or a word of an array or object.
    Word,
    String,
    /// After a backslash; `high` is the first half of a pair that was escaped just before, or 0.
    Escape {
        high: u16,
    },
    /// Within the digits after `\u`.
    Digits {
        high: u16,
        unit: u16,
        count: u8,
    },
    /// After the first half of a pair.
    Half {
        high: u16,
    },
    /// A string can't be read.
    Unreadable,
    /// After the value.
    End,
}

/// What is known of the beginning of a key or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    at: At,
    kind: u8,
    depth: u32,
    sum: u64,
    /// Of the string so far.
    hash: u64,
}

impl Scan {
    /// No byte of a key's lexeme.
    pub(crate) fn of_key() -> Self {
        Self::at(At::BeforeKey)
    }

    /// No byte of an item.
    pub(crate) fn of_item() -> Self {
        Self::at(At::BeforeItem)
    }

    fn at(at: At) -> Self {
        Self {
            at,
            kind: 0,
            depth: 0,
            sum: 0,
            hash: 0,
        }
    }

    /// What a text that ends here is; `None` where it has no key.
    pub(crate) fn written(&self) -> Option<Written> {
        let sum = match self.at {
            At::BeforeKey => return None,
            At::BeforeItem | At::Between | At::Word | At::End => Some(self.sum),
            At::String | At::Escape { .. } | At::Digits { .. } | At::Half { .. } => None,
            At::Unreadable => None,
        };
        Some(Written {
            kind: self.kind,
            sum,
        })
    }

    /// Reads on. Costs a few operations per byte.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.read_byte(byte);
        }
    }

    /// Reads one more byte.
    pub(crate) fn read_byte(&mut self, byte: u8) {
        self.at = match self.at {
            At::BeforeKey if byte != b'"' => At::BeforeKey,
            At::BeforeItem if is_space(byte) || byte == b',' => At::BeforeItem,
            At::BeforeKey | At::BeforeItem => {
                self.kind = kind_of(byte);
                self.read_sign(byte)
            }
            At::Between => self.read_sign(byte),
            At::Word if is_space(byte) || b",:]}".contains(&byte) => self.read_sign(byte),
            At::Word => At::Word,
            At::String => match byte {
                b'"' => {
                    self.add(self.hash);
                    self.after_value()
                }
                b'\\' => At::Escape { high: 0 },
                0..b' ' => At::Unreadable,
                _ => self.read_in_string(byte),
            },
            At::Escape { high } => self.read_escaped(byte, high),
            At::Digits { high, unit, count } => match char::from(byte).to_digit(16) {
                Some(digit) => self.after_digit(high, (unit << 4) | digit as u16, count + 1),
                None => At::Unreadable,
            },
            At::Half { high } if byte == b'\\' => At::Escape { high },
            At::Half { .. } | At::Unreadable => At::Unreadable,
            At::End => At::End,
        };
    }

    /// A byte that is not within a string or a word.
    fn read_sign(&mut self, byte: u8) -> At {
        match byte {
            b'"' => {
                self.hash = EMPTY_HASH;
                At::String
            }
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => At::Between,
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                self.after_value()
            }
            b'[' | b'{' => {
                self.depth += 1;
                self.add(u64::from(byte));
                At::Between
            }
            _ => {
                self.add(u64::from(kind_of(byte)));
                if self.depth == 0 { At::End } else { At::Word }
            }
        }
    }

    fn after_value(&self) -> At {
        if self.depth == 0 {
            At::End
        } else {
            At::Between
        }
    }

    fn read_in_string(&mut self, byte: u8) -> At {
        // FNV-1a: texts that it takes for equal are looked at in full.
        self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        At::String
    }

    fn read_escaped(&mut self, letter: u8, high: u16) -> At {
        let char = match letter {
            b'u' => {
                return At::Digits {
                    high,
                    unit: 0,
                    count: 0,
                };
            }
            _ if high != 0 => return At::Unreadable,
            b'"' | b'\\' | b'/' => letter,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return At::Unreadable,
        };
        self.read_in_string(char)
    }

    fn after_digit(&mut self, high: u16, unit: u16, count: u8) -> At {
        if count < 4 {
            return At::Digits { high, unit, count };
        }
        if high == 0 && (0xd800..0xdc00).contains(&unit) {
            return At::Half { high: unit };
        }
        let units = [high, unit];
        let from = usize::from(high == 0);
        let mut chars = char::decode_utf16(units.into_iter().skip(from));
        let (Some(Ok(char)), None) = (chars.next(), chars.next()) else {
            return At::Unreadable;
        };
        for &byte in char.encode_utf8(&mut [0; 4]).as_bytes() {
            self.read_in_string(byte);
        }
        At::String
    }

    /// Adds a part of the value.
    fn add(&mut self, part: u64) {
        self.sum = self.sum.wrapping_add(mixed(part));
    }
}

/// The hash of an empty string.
const EMPTY_HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// Spreads the bits of a hash, so that sums of them differ (the end of SplitMix64).
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The kind of a value or sign by its first byte.
fn kind_of(first: u8) -> u8 {
    match first {
        b'-' | b'0'..=b'9' => b'0',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::Written;

    fn item(text: &str) -> Written {
        Written::item(text.as_bytes()).unwrap()
    }

    #[test]
    fn equal_values_are_never_told_apart() {
        let equal = [
            [r#""é\n""#, r#" , "\u00e9\u000a" ]"#],
            ["1.0", "1,"],
            ["-0", "0.0e7]"],
            [
                r#"{"a":[1,"x"],"b":null}"#,
                r#"{ "b" : null, "\u0061":[1.0 , "x"]}, 7"#,
            ],
            ["[[],[{}]]", " [ [ ],[{ }]]"],
            ["\"\u{1f600}\"", r#""\ud83d\ude00", 1"#],
            ["[true,\"\"]", "[ true , \"\" ]]"],
        ];
        for [one, other] in equal {
            assert!(item(one).may_equal(&item(other)), "{one:?} {other:?}");
        }
        let different = [
            "\"a\"",
            "\"b\"",
            "1",
            "[]",
            "[[]]",
            "{}",
            "null",
            "true",
            "{\"a\":1}",
            "{\"a\":{}}",
        ];
        for (at, one) in different.iter().enumerate() {
            for other in &different[at + 1..] {
                assert!(!item(one).may_equal(&item(other)), "{one:?} {other:?}");
            }
        }
        // A string that can't be read may be any.
        for one in [
            r#""\ud800""#,
            r#""\ud800\u0061""#,
            r#""\udc00""#,
            r#""\x""#,
            r#""a"#,
        ] {
            assert!(item(one).may_equal(&item("\"a\"")), "{one}");
        }
        assert_eq!(Written::key(b"}"), None);
        assert_eq!(Written::key(b" \"a\" :"), Some(item("\"a\"")));
    }
}
