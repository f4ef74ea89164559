//! A limit on the memory that a message takes while it is decoded.
//!
//! A byte on the wire can stand for much more in memory: an empty string is one byte there and 24
//! here. [`WithinBudget`] wraps any serde deserializer and charges for what is about to be
//! allocated: the elements of sequences and the bytes of strings.

use std::cell::Cell;
use std::fmt;
use std::mem::size_of;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, SeqAccess, VariantAccess, Visitor,
};

/// A `Vec` whose length is known starts with room for this much at most (serde's own limit).
const MAX_PREALLOCATION: usize = 1 << 20;

/// Beyond that a `Vec` doubles, and holds old and new memory while it moves.
const GROWTH_FACTOR: usize = 3;

/// A `T` that was decoded within `BYTES` of heap memory, give or take [`MAX_PREALLOCATION`] per
/// level of nesting. Maps and byte strings are refused: no message has any.
pub(super) struct WithinBudget<T, const BYTES: usize>(pub(super) T);

impl<'de, T: Deserialize<'de>, const BYTES: usize> Deserialize<'de> for WithinBudget<T, BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let budget = Budget {
            left: Cell::new(BYTES),
            bytes: BYTES,
        };
        T::deserialize(Bounded {
            inner: deserializer,
            budget: &budget,
        })
        .map(Self)
    }
}

/// What is left.
struct Budget {
    left: Cell<usize>,
    /// What there was, for the error.
    bytes: usize,
}

impl Budget {
    fn charge<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom(format_args!(
                "it takes more than {} bytes of memory",
                self.bytes
            ))),
        }
    }
}

/// Something of serde's (deserializer, access, visitor, seed) that passes the budget on to
/// whatever is inside.
struct Bounded<'a, T> {
    inner: T,
    budget: &'a Budget,
}

impl<'a, T> Bounded<'a, T> {
    fn wrap<U>(&self, inner: U) -> Bounded<'a, U> {
        Bounded {
            inner,
            budget: self.budget,
        }
    }
}

/// Scalars take no memory of their own.
macro_rules! forward_scalars {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

/// What is inside these takes from the budget.
macro_rules! forward_compounds {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let visitor = self.wrap(visitor);
            self.inner.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    forward_scalars! {
        deserialize_bool deserialize_char
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
        deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    forward_compounds! {
        deserialize_any()
        deserialize_option()
        deserialize_str()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_map()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = Elements {
            visitor,
            budget: self.budget,
        };
        self.inner.deserialize_seq(visitor)
    }

    // Borrowed from the frame and then copied: an owned string's memory would be there before
    // anything could be charged.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_str(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.budget.charge(value.len())?;
        self.inner.visit_borrowed_str(value)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        let value = self.wrap(value);
        self.inner.visit_some(value)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        let value = self.wrap(value);
        self.inner.visit_newtype_struct(value)
    }

    // Fields: their memory is part of the struct's.
    fn visit_seq<A: SeqAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let fields = self.wrap(fields);
        self.inner.visit_seq(fields)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, value: A) -> Result<V::Value, A::Error> {
        let value = self.wrap(value);
        self.inner.visit_enum(value)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        let value = self.wrap(value);
        self.inner.deserialize(value)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'a, A> {
    type Error = A::Error;
    type Variant = Bounded<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let budget = self.budget;
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((
            value,
            Bounded {
                inner: variant,
                budget,
            },
        ))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.wrap(visitor);
        self.inner.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.wrap(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

/// A visitor of a sequence: unlike a struct's fields, every element takes memory of its own.
struct Elements<'a, V> {
    visitor: V,
    budget: &'a Budget,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Elements<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = ChargedElements {
            inner: elements,
            budget: self.budget,
            used: 0,
        };
        self.visitor.visit_seq(elements)
    }
}

/// The elements of a sequence.
struct ChargedElements<'a, A> {
    inner: A,
    budget: &'a Budget,
    /// Bytes of the elements so far.
    used: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ChargedElements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let size = size_of::<S::Value>();
        let seed = Bounded {
            inner: seed,
            budget: self.budget,
        };
        let element = self.inner.next_element_seed(seed)?;
        if element.is_some() {
            self.used += size;
            let factor = if self.used <= MAX_PREALLOCATION {
                1
            } else {
                GROWTH_FACTOR
            };
            self.budget.charge(factor * size)?;
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}
