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
use strand_rdb::write::{Splitter, Writer};

impl Serial for ListValue {
    const KIND: ValueKind = ValueKind::List;
    type Builder = ListValue;

    fn value_type(&self) -> u8 {
        LIST_QUICKLIST_2
    }
    fn write(&self, writer: &mut Writer<'_>) {
        let mut splitter = Splitter::list();
        let nodes = self.iter(0).filter(|element| splitter.begins_node(element.len())).count();
        writer.length(nodes as u64);
        let (mut splitter, mut node) = (Splitter::list(), Listpack::new());
        for element in self.iter(0) {
            if splitter.begins_node(element.len()) && !node.is_empty() {
                writer.list_node(&mut node);
                node.clear();
            }
            node.push(&element);
        }
        if !node.is_empty() {
            writer.list_node(&mut node);
        }
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        self.iter(0).for_each(|element| digest.element(&element));
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
