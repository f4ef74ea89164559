//! A part of a message that several requests hold together.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value behind an [`Arc`]: a clone costs a count, however large the value is. On the wire it is the value.
///
/// Answers to one prompt, and requests of one list, hold the same parameters, prompts and constraints. Two
/// that are the same in memory are equal without a look at them.
pub struct Shared<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Shared<T> {
    /// True if both are one value in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The value's pointer.
    pub fn as_arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Clone> Shared<T> {
    /// The value to change, of which this is the only holder then: a copy where there are others.
    pub fn make_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Default for Shared<[T]> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: ?Sized + PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || *self.0 == *other.0
    }
}

impl<T: ?Sized + Eq> Eq for Shared<T> {}

impl<T: PartialEq> PartialEq<Vec<T>> for Shared<[T]> {
    fn eq(&self, other: &Vec<T>) -> bool {
        *self.0 == **other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for Shared<[T]> {
    fn eq(&self, other: &[T; N]) -> bool {
        *self.0 == *other
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> From<Vec<T>> for Shared<[T]> {
    fn from(values: Vec<T>) -> Self {
        Self(values.into())
    }
}

impl<T, const N: usize> From<[T; N]> for Shared<[T]> {
    fn from(values: [T; N]) -> Self {
        Self(values.into())
    }
}

impl<T: Clone> From<&[T]> for Shared<[T]> {
    fn from(values: &[T]) -> Self {
        Self(values.into())
    }
}

impl<T> FromIterator<T> for Shared<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a Shared<[T]> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: ?Sized + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<[T]> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
