//! What a value may be.

use hashbrown::HashMap;

use super::frame::Frame;
use super::text::{Spacing, Whitespace};
use crate::lexical::search::DEAD;
use crate::lexical::{EMPTY, ExprId, Lexicon};

/// A shape of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ShapeId(pub(super) u32);

/// A set of keys that an object has already, beside those that its shape names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct SeenId(pub(super) u32);

/// No key seen.
pub(super) const NOTHING_SEEN: SeenId = SeenId(0);

/// What a value may be.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(super) spacing: Spacing,
    /// `null`, booleans, numbers and strings, as one language.
    pub(super) scalars: ExprId,
    pub(super) array: Option<ArrayShape>,
    pub(super) object: Option<ObjectShape>,
    /// Length of the shortest text; [`DEAD`] where there is none.
    pub(super) min_bytes: u32,
}

/// What an array may be.
#[derive(Debug, Clone)]
pub(crate) struct ArrayShape {
    /// The first items.
    pub(super) prefix: Vec<ShapeId>,
    /// All further ones; `None` where there may be none.
    pub(super) rest: Option<ShapeId>,
    pub(super) min_items: u32,
    pub(super) max_items: Option<u32>,
}

/// What an object may be.
#[derive(Debug, Clone)]
pub(crate) struct ObjectShape {
    /// Members with a name, in the order in which they are written.
    pub(super) properties: Vec<Property>,
    /// All other members, which come after; `None` where there may be none.
    pub(super) additional: Option<ShapeId>,
    /// The keys of other members, in quotes.
    pub(super) other_keys: ExprId,
}

/// A member with a name.
#[derive(Debug, Clone)]
pub(crate) struct Property {
    /// The name's spellings, in quotes.
    pub(super) key: ExprId,
    pub(super) shape: ShapeId,
    pub(super) required: bool,
}

/// All shapes of a generation.
#[derive(Default)]
pub(crate) struct Programs {
    pub(super) shapes: Vec<Shape>,
    pub(super) seen: Vec<Vec<String>>,
    pub(super) seen_ids: HashMap<Vec<String>, SeenId>,
    /// The shape of any value, by spacing: one for all grammars.
    any: Vec<(Spacing, ShapeId)>,
    bytes: usize,
}

impl Programs {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// How many shapes there are.
    pub(crate) fn len(&self) -> usize {
        self.shapes.len()
    }

    pub(super) fn shape(&self, shape: ShapeId) -> &Shape {
        &self.shapes[shape.0 as usize]
    }

    /// A shape of no value, to be replaced by [`Programs::set`].
    pub(super) fn reserve(&mut self, spacing: Spacing) -> ShapeId {
        self.bytes += size_of::<Shape>();
        self.shapes.push(Shape {
            spacing,
            scalars: EMPTY,
            array: None,
            object: None,
            min_bytes: DEAD,
        });
        ShapeId((self.shapes.len() - 1) as u32)
    }

    pub(super) fn set(&mut self, id: ShapeId, shape: Shape) {
        let prefix = shape.array.as_ref().map_or(0, |array| array.prefix.len());
        let properties = shape
            .object
            .as_ref()
            .map_or(0, |object| object.properties.len());
        self.bytes += prefix * size_of::<ShapeId>() + properties * size_of::<Property>();
        self.shapes[id.0 as usize] = shape;
    }

    /// Computes the shortest texts of the shapes from `first` on, which may refer to each other.
    /// Repeats until nothing changes: as often as shapes are nested in their shortest texts.
    pub(super) fn find_shortest(&mut self, lexicon: &Lexicon, first: usize) {
        loop {
            let mut changed = false;
            for index in first..self.shapes.len() {
                let id = ShapeId(index as u32);
                let shape = self.shape(id);
                let mut least = lexicon.min_bytes(shape.scalars);
                if shape.array.is_some() {
                    least = least.min(self.after_bracket(lexicon, Frame::ArrayStart { shape: id }));
                }
                if shape.object.is_some() {
                    least =
                        least.min(self.after_bracket(lexicon, Frame::ObjectStart { shape: id }));
                }
                if least < self.shape(id).min_bytes {
                    self.shapes[index].min_bytes = least;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn after_bracket(&self, lexicon: &Lexicon, frame: Frame) -> u32 {
        self.min_bytes(lexicon, &frame).saturating_add(1)
    }

    /// The shape of any value.
    pub(super) fn any(&mut self, lexicon: &mut Lexicon, spacing: Spacing) -> ShapeId {
        if let Some(&(_, known)) = self.any.iter().find(|known| known.0 == spacing) {
            return known;
        }
        let id = self.reserve(spacing);
        self.any.push((spacing, id));
        let scalars = {
            let words = [&b"null"[..], b"true", b"false"].map(|word| lexicon.literal(word));
            let [null, yes, no] = words;
            let number = lexicon.json_number();
            let string = free_string(lexicon);
            lexicon.or(&[null, yes, no, number, string])
        };
        let shape = Shape {
            spacing,
            scalars,
            array: Some(ArrayShape {
                prefix: Vec::new(),
                rest: Some(id),
                min_items: 0,
                max_items: None,
            }),
            object: Some(ObjectShape {
                properties: Vec::new(),
                additional: Some(id),
                other_keys: free_string(lexicon),
            }),
            min_bytes: DEAD,
        };
        self.set(id, shape);
        self.find_shortest(lexicon, id.0 as usize);
        id
    }

    /// A grammar of any JSON object: the frames to start with.
    pub(crate) fn any_object(
        &mut self,
        lexicon: &mut Lexicon,
        whitespace: Whitespace,
    ) -> [Frame; 2] {
        let spacing = lexicon.spacing(whitespace);
        let any = self.any(lexicon, spacing);
        let first = self.shapes.len();
        let id = self.reserve(spacing);
        let shape = Shape {
            scalars: EMPTY,
            array: None,
            min_bytes: DEAD,
            ..self.shape(any).clone()
        };
        self.set(id, shape);
        self.find_shortest(lexicon, first);
        [Frame::End { shape: id }, Frame::Root { shape: id }]
    }
}

/// Any string, in quotes.
pub(super) fn free_string(lexicon: &mut Lexicon) -> ExprId {
    let char = lexicon.json_char();
    let body = lexicon.star(char);
    lexicon.json_quoted(body)
}
