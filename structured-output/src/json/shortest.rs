//! Short texts, written out: of a node, of a language.

use super::composites::BYTES_A_STEP;
use super::live::DEAD;
use super::node::{Kinds, NodeId};
use super::programs::Programs;
use super::shape::{Shape, Spellings};
use crate::bound::Bound;
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};

impl Programs {
    /// A short text of a node that has one.
    pub(super) fn write(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if self.costs.open.len() >= Bound::Nesting.max() {
            return Err(fuel.exhaust(Bound::Nesting));
        }
        self.costs.open.push(node);
        let written = self.write_shape(lexicon, node, text, fuel);
        self.costs.pop_open();
        written
    }

    fn write_shape(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let shape = self.shape(lexicon, node, fuel)?;
        let logic = &self.logic;
        let (array, object) = (logic.facts(shape.array), logic.facts(shape.object));
        let scalar = Self::cost_of_scalars(lexicon, &shape, fuel)?;
        if scalar != DEAD && (scalar <= 2 || !(array.closes || object.closes)) {
            return self.write_scalar(lexicon, &shape, scalar, text, fuel);
        }
        if array.closes {
            text.extend_from_slice(b"[]");
            return Ok(());
        }
        if object.closes {
            text.extend_from_slice(b"{}");
            return Ok(());
        }
        if self.array_cost(lexicon, shape.array, fuel)? != DEAD {
            let mut formula = shape.array;
            while let Some(&one) = self.costs.array_choices.get(&formula) {
                formula = one;
            }
            text.push(b'[');
            if let Some(items) = self.costs.text_ways.get(&formula) {
                let bytes: usize = items.iter().map(|item| item.len() + 1).sum();
                fuel.burn((bytes / BYTES_A_STEP) as u64)?;
                text.extend_from_slice(&items.join(&b","[..]));
            } else if let Some(items) = self.costs.item_ways.get(&formula).cloned() {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    fuel.burn(1)?;
                    self.write(lexicon, *item, text, fuel)?;
                }
            } else if let Some(mut plain) = self.plain_array(formula) {
                let mut is_first = true;
                while plain.min > 0 {
                    let (item, times) = plain.next(&mut self.logic.nodes);
                    for _ in 0..times {
                        if !std::mem::take(&mut is_first) {
                            text.push(b',');
                        }
                        fuel.burn(1)?;
                        self.write(lexicon, item, text, fuel)?;
                    }
                }
            }
            text.push(b']');
            return Ok(());
        }
        let at = self.object_start(lexicon, &[shape.object], fuel)?;
        let members = self.costs.member_ways.get(&(at, shape.object)).cloned();
        text.push(b'{');
        for (index, (key, value)) in members.iter().flat_map(|m| m.iter()).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            fuel.burn(1 + (key.len() / BYTES_A_STEP) as u64)?;
            text.extend_from_slice(key);
            text.push(b':');
            self.write(lexicon, *value, text, fuel)?;
        }
        text.push(b'}');
        Ok(())
    }

    fn write_scalar(
        &mut self,
        lexicon: &mut Lexicon,
        shape: &Shape,
        cost: u32,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let texts = self.texts(lexicon);
        for (spellings, free) in [(shape.number, texts.number), (shape.string, texts.string)] {
            let language = match spellings {
                Spellings::Free => free,
                Spellings::Only(language) => language,
            };
            if lexicon.distance(language, fuel)? == cost {
                return Self::write_shortest(lexicon, language, text, fuel);
            }
        }
        let words = [
            (Kinds::NULL, "null"),
            (Kinds::TRUE, "true"),
            (Kinds::FALSE, "false"),
        ];
        let word = words.iter().find(|(kind, _)| shape.words & kind.0 != 0);
        text.extend_from_slice(word.map_or(&b""[..], |word| word.1.as_bytes()));
        Ok(())
    }

    /// The shortest text of a language that has one, of several the one with the least bytes.
    pub(super) fn write_shortest(
        lexicon: &mut Lexicon,
        mut language: ExprId,
        text: &mut Vec<u8>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        while !lexicon.is_nullable(language) {
            let mut nearest: Option<(u32, u8, ExprId)> = None;
            let derivatives = lexicon.derivatives(language, fuel)?;
            fuel.burn(derivatives.len() as u64)?;
            for (bytes, next) in derivatives {
                let distance = lexicon.distance(next, fuel)?;
                let Some(byte) = bytes.iter().next() else {
                    continue;
                };
                if nearest.is_none_or(|known| (distance, byte) < (known.0, known.1)) {
                    nearest = Some((distance, byte, next));
                }
            }
            match nearest {
                Some((distance, byte, next)) if distance != DEAD => {
                    text.push(byte);
                    language = next;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
