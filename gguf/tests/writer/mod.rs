//! Writes GGUF files, version 3. Test support: `#[path]` it from wherever one is needed.

#![allow(unreachable_pub, reason = "support of several crates' tests")]
#![allow(dead_code, reason = "each user needs a part of it")]

use std::path::Path;

/// A file in the making.
#[derive(Clone, Default)]
pub struct GgufWriter {
    /// Keys with the bytes of key, type and value.
    entries: Vec<(String, Vec<u8>)>,
    num_tensors: u64,
    tensors: Vec<u8>,
    data: Vec<u8>,
}

/// Tensors lie at multiples of this.
pub const ALIGNMENT: usize = 32;

fn string(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

impl GgufWriter {
    /// With `general.architecture`.
    pub fn new(architecture: &str) -> Self {
        let mut writer = Self::default();
        writer.str("general.architecture", architecture);
        writer
    }

    /// An entry of any type, by its number and bytes.
    pub fn entry(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        let mut entry = Vec::new();
        string(key, &mut entry);
        entry.extend(kind.to_le_bytes());
        entry.extend(value);
        self.entries.push((key.to_owned(), entry));
        self
    }

    /// Takes all entries of a key out again.
    pub fn remove(&mut self, key: &str) -> &mut Self {
        self.entries.retain(|(existing, _)| existing != key);
        self
    }

    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::new();
        string(value, &mut bytes);
        self.entry(key, 8, &bytes)
    }

    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.entry(key, 7, &[value.into()])
    }

    fn array(&mut self, key: &str, kind: u32, len: usize, elements: &[u8]) -> &mut Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((len as u64).to_le_bytes());
        bytes.extend(elements);
        self.entry(key, 9, &bytes)
    }

    pub fn strings<T: AsRef<str>>(&mut self, key: &str, values: &[T]) -> &mut Self {
        let mut bytes = Vec::new();
        values
            .iter()
            .for_each(|value| string(value.as_ref(), &mut bytes));
        self.array(key, 8, values.len(), &bytes)
    }

    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.array(key, 5, values.len(), &bytes)
    }

    pub fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.array(key, 6, values.len(), &bytes)
    }

    /// A tensor of a row-major shape, its type by number, and its blocks.
    pub fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, data: &[u8]) -> &mut Self {
        self.num_tensors += 1;
        string(name, &mut self.tensors);
        self.tensors.extend((shape.len() as u32).to_le_bytes());
        for dim in shape.iter().rev() {
            self.tensors.extend((*dim as u64).to_le_bytes());
        }
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(data);
        self.data
            .resize(self.data.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(self.num_tensors.to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        self.entries
            .iter()
            .for_each(|(_, entry)| bytes.extend(entry));
        bytes.extend(&self.tensors);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend(&self.data);
        bytes
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.bytes())
    }
}
