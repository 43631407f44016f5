//! Lists in Redis's format: nodes of packed elements, with redis-server's default sizes of nodes.

use super::build::{BadValue, Builder, MISPLACED, Serial};
use strand_chain::Blob;
use strand_keyspace::Settings;
use strand_keyspace::types::list::{End, ListValue};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::value::{ValueKind, ValuePart};
use strand_rdb::value_type::LIST_QUICKLIST_2;
use strand_rdb::write::{LIST_ELEMENT_BYTES_MIN, Splitter, Writer};

impl Serial for ListValue {
    const KIND: ValueKind = ValueKind::List;
    type Builder = ListValue;

    fn value_type(&self) -> u8 {
        LIST_QUICKLIST_2
    }
    fn write(&self, writer: &mut Writer<'_>) {
        write(self, writer, LIST_ELEMENT_BYTES_MIN);
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        self.iter(0).for_each(|element| digest.element(&element));
    }
}

/// Writes a list. An element of at least `large_min` bytes is a node by itself, because a listpack has at most 4 GiB.
/// `large_min` must exceed the size of a node.
pub(super) fn write(list: &ListValue, writer: &mut Writer<'_>, large_min: usize) {
    let mut splitter = Splitter::list();
    // An element that exceeds the size of a node begins one, and so does the element after it.
    let nodes = list.iter(0).filter(|element| splitter.begins_node(element.len())).count();
    writer.length(nodes as u64);
    let (mut splitter, mut node) = (Splitter::list(), Listpack::new());
    for element in list.iter(0) {
        if splitter.begins_node(element.len()) && !node.is_empty() {
            writer.list_node(&mut node);
            node.clear();
        }
        match element.len() >= large_min {
            true => writer.list_element(&element),
            false => node.push(&element),
        }
    }
    if !node.is_empty() {
        writer.list_node(&mut node);
    }
}

impl Builder for ListValue {
    type Value = ListValue;

    fn add_part(&mut self, part: ValuePart<'_>, _: &Settings) -> Result<(), BadValue> {
        match part {
            ValuePart::Element(Text::Owned(bytes)) => self.push(End::Back, &Blob::from(bytes)),
            ValuePart::Element(element) => self.push(End::Back, &*element),
            _ => return Err(MISPLACED),
        }
        Ok(())
    }
    fn finish(self, _: &Settings) -> Result<ListValue, BadValue> {
        Ok(self)
    }
}
