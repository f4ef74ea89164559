//! What a message will take in memory where it is decoded, found without decoding it: what
//! [`WithinBudget`](super::memory_budget) charges for, added up while the message is walked.

use std::cell::Cell;
use std::fmt;
use std::mem::size_of_val;

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::memory_budget::{GROWTH_FACTOR, MAX_PREALLOCATION};

/// Bytes that a receiver is charged for `message`. Costs a walk over it, and no memory.
pub(super) fn memory_needed<T: Serialize>(message: &T) -> usize {
    let bytes = Cell::new(0);
    match message.serialize(Count { bytes: &bytes }) {
        Ok(()) => bytes.get(),
        // It has no encoding either.
        Err(Unencodable) => usize::MAX,
    }
}

/// Adds up bytes.
#[derive(Clone, Copy)]
struct Count<'a> {
    bytes: &'a Cell<usize>,
}

impl Count<'_> {
    fn charge(self, bytes: usize) -> Result<(), Unencodable> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        Ok(())
    }
}

/// Something that no message has, or a value that refuses to be encoded.
#[derive(Debug)]
struct Unencodable;

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value has no encoding")
    }
}

impl std::error::Error for Unencodable {}

impl Error for Unencodable {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// The elements of a sequence: each takes memory of its own, unlike a struct's fields.
struct Elements<'a> {
    count: Count<'a>,
    used: usize,
}

impl SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = Unencodable;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Unencodable> {
        let size = size_of_val(value);
        self.used += size;
        let factor = if self.used <= MAX_PREALLOCATION {
            1
        } else {
            GROWTH_FACTOR
        };
        self.count.charge(factor * size)?;
        value.serialize(self.count)
    }

    fn end(self) -> Result<(), Unencodable> {
        Ok(())
    }
}

/// What is inside these is counted, they themselves are part of what they are in.
macro_rules! count_fields {
    ($($trait:ident::$method:ident($($name:ident: $type:ty)?))*) => {$(
        impl $trait for Count<'_> {
            type Ok = ();
            type Error = Unencodable;

            fn $method<T: ?Sized + Serialize>(
                &mut self,
                $($name: $type,)?
                value: &T,
            ) -> Result<(), Unencodable> {
                $(let _ = $name;)?
                value.serialize(*self)
            }

            fn end(self) -> Result<(), Unencodable> {
                Ok(())
            }
        }
    )*};
}

count_fields! {
    SerializeTuple::serialize_element()
    SerializeTupleStruct::serialize_field()
    SerializeTupleVariant::serialize_field()
    SerializeStruct::serialize_field(name: &'static str)
    SerializeStructVariant::serialize_field(name: &'static str)
}

impl SerializeMap for Count<'_> {
    type Ok = ();
    type Error = Unencodable;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, _: &T) -> Result<(), Unencodable> {
        Err(Unencodable)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, _: &T) -> Result<(), Unencodable> {
        Err(Unencodable)
    }

    fn end(self) -> Result<(), Unencodable> {
        Ok(())
    }
}

/// Scalars take no memory of their own.
macro_rules! ignore_scalars {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, _: $type) -> Result<(), Unencodable> {
            Ok(())
        }
    )*};
}

impl<'a> Serializer for Count<'a> {
    type Ok = ();
    type Error = Unencodable;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    ignore_scalars! {
        serialize_bool(bool) serialize_char(char)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_f32(f32) serialize_f64(f64)
        serialize_unit_struct(&'static str)
    }

    fn serialize_str(self, value: &str) -> Result<(), Unencodable> {
        self.charge(value.len())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unencodable> {
        Err(Unencodable)
    }

    fn serialize_none(self) -> Result<(), Unencodable> {
        Ok(())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Unencodable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unencodable> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), Unencodable> {
        Ok(())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unencodable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unencodable> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, Unencodable> {
        Ok(Elements {
            count: self,
            used: 0,
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unencodable> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Unencodable> {
        Err(Unencodable)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unencodable> {
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
