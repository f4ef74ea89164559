//! The events of a streamed response.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::response::{
    ContentPart, ItemKind, ItemLogProbs, LogProbs, ResponseOutputItem, ResponsesResponse,
};

/// An event of a streamed response.
#[derive(Debug)]
pub(super) struct ResponseStreamEvent {
    pub(super) name: &'static str,
    pub(super) sequence_number: u64,
    pub(super) data: EventData,
}

/// What an event tells.
#[derive(Debug)]
pub(super) enum EventData {
    /// The response as a whole.
    Response(ResponsesResponse),
    /// An item that begins, or is complete.
    Item(Arc<ResponseOutputItem>, usize),
    /// The content of an item that begins, or is complete.
    Part(Arc<ResponseOutputItem>, usize),
    /// More text of an item.
    Delta(Delta),
    /// All text of an item.
    Done(Arc<ResponseOutputItem>, usize),
    /// What went wrong.
    Error(Map<String, Value>),
}

/// More text of the item with this id and number in the output.
#[derive(Debug)]
pub(super) struct Delta {
    pub(super) item_id: String,
    pub(super) output_index: usize,
    pub(super) content_index: Option<u32>,
    pub(super) text: String,
    /// Of messages.
    pub(super) logprobs: Option<ItemLogProbs>,
}

impl Serialize for ResponseStreamEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_map(None)?;
        event.serialize_entry("type", self.name)?;
        event.serialize_entry("sequence_number", &self.sequence_number)?;
        match &self.data {
            EventData::Response(response) => event.serialize_entry("response", response)?,
            EventData::Item(item, output_index) => {
                event.serialize_entry("output_index", output_index)?;
                event.serialize_entry("item", &**item)?;
            }
            EventData::Part(item, output_index) => {
                place(
                    &mut event,
                    &item.id,
                    *output_index,
                    item.kind.content_index(),
                )?;
                event.serialize_entry("part", &ContentPart(item))?;
            }
            EventData::Delta(Delta {
                item_id,
                output_index,
                content_index,
                text,
                logprobs,
            }) => {
                place(&mut event, item_id, *output_index, *content_index)?;
                event.serialize_entry("delta", text)?;
                if let Some(logprobs) = logprobs {
                    event.serialize_entry("logprobs", &LogProbs(logprobs))?;
                }
            }
            EventData::Done(item, output_index) => {
                place(
                    &mut event,
                    &item.id,
                    *output_index,
                    item.kind.content_index(),
                )?;
                event.serialize_entry(item.kind.text_field(), &item.text)?;
                match &item.kind {
                    ItemKind::Reasoning => {}
                    ItemKind::Message => {
                        event.serialize_entry("logprobs", &LogProbs(&item.logprobs))?;
                    }
                    ItemKind::FunctionCall { names, .. } => {
                        event.serialize_entry("name", &names.get("name"))?;
                    }
                }
            }
            EventData::Error(fields) => {
                for (field, value) in fields {
                    event.serialize_entry(field, value)?;
                }
            }
        }
        event.end()
    }
}

/// Where an item's text is.
fn place<M: SerializeMap>(
    event: &mut M,
    item_id: &str,
    output_index: usize,
    content_index: Option<u32>,
) -> Result<(), M::Error> {
    event.serialize_entry("item_id", item_id)?;
    event.serialize_entry("output_index", &output_index)?;
    match content_index {
        Some(index) => event.serialize_entry("content_index", &index),
        None => Ok(()),
    }
}
