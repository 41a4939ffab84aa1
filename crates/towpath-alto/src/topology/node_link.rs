//! Topologies in node-link JSON, the format of networkx, with the fields of TopoHub.
//!
//! ```json
//! {
//!   "directed": false,
//!   "nodes": [{ "id": 0, "name": "Geneva", "pos": [6.14, 46.2] }, { "id": 1, "name": "Paris", "pos": [2.35, 48.86] }],
//!   "edges": [{ "source": 0, "target": 1, "dist": 410.5, "capacity": 100e9 }]
//! }
//! ```

use std::mem;

use serde::de::{DeserializeSeed as _, MapAccess, SeqAccess};

use super::{
    TopologyError,
    builder::{TopologyBuilder, WrittenLink, WrittenNode},
};
use crate::lenient::{self, PartialJson, PartialJsonSeed, Scalar};

/// Reads the nodes and links of a document.
///
/// # Errors
/// Returns an error if the document is not valid JSON, or `directed` is not a boolean.
pub(super) fn read(text: &str, builder: &mut TopologyBuilder) -> Result<(), TopologyError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = PartialJsonSeed(&mut Document(builder)).deserialize(&mut json);
    read.and_then(|()| json.end()).map_err(|error| TopologyError::Invalid(error.to_string()))
}

struct Document<'a>(&'a mut TopologyBuilder);

impl PartialJson for Document<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "directed" => self.0.is_directed = members.next_value()?,
            "nodes" => members.next_value_seed(PartialJsonSeed(&mut Nodes(self.0)))?,
            "links" | "edges" => members.next_value_seed(PartialJsonSeed(&mut Links(self.0)))?,
            _ => lenient::pass_over(members)?,
        }
        Ok(())
    }
}

struct Nodes<'a>(&'a mut TopologyBuilder);

impl PartialJson for Nodes<'_> {
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut node = WrittenNode::default();
        while elements.next_element_seed(PartialJsonSeed(&mut node))?.is_some() {
            self.0.add_node(mem::take(&mut node));
        }
        Ok(())
    }
}

impl PartialJson for WrittenNode {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "id" | "key" if self.id.is_empty() => self.id = taken_text(members)?,
            "pos" => {
                if let [longitude, latitude] = &lenient::take::<Position, A>(members)?.0[..] {
                    self.note("longitude", longitude);
                    self.note("latitude", latitude);
                }
            }
            field => {
                let value = lenient::take(members)?;
                self.note(field, &value);
            }
        }
        Ok(())
    }
}

/// The first two numbers of a position.
#[derive(Default)]
struct Position(Vec<Scalar>);

impl PartialJson for Position {
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut value = Scalar::default();
        while elements.next_element_seed(PartialJsonSeed(&mut value))?.is_some() {
            if self.0.len() < 2 {
                self.0.push(mem::take(&mut value));
            }
        }
        Ok(())
    }
}

struct Links<'a>(&'a mut TopologyBuilder);

impl PartialJson for Links<'_> {
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut link = WrittenLink::default();
        while elements.next_element_seed(PartialJsonSeed(&mut link))?.is_some() {
            self.0.add_link(mem::take(&mut link));
        }
        Ok(())
    }
}

impl PartialJson for WrittenLink {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "source" => self.from = taken_text(members)?,
            "target" => self.to = taken_text(members)?,
            field => {
                let value = lenient::take(members)?;
                self.note(field, &value);
            }
        }
        Ok(())
    }
}

fn taken_text<'de, A: MapAccess<'de>>(members: &mut A) -> Result<String, A::Error> {
    let value: Scalar = lenient::take(members)?;
    Ok(value.as_text().unwrap_or_default().into_owned())
}
