//! Lists in Redis's format: nodes of packed elements, with redis-server's default sizes of nodes.

use strand_chain::Blob;
use strand_keyspace::types::list::{End, ListValue};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::write::{Splitter, Writer};

/// Writes the list, without its type number.
pub fn write(list: &ListValue, writer: &mut Writer<'_>) {
    let mut splitter = Splitter::list();
    let nodes = list.iter(0).filter(|element| splitter.begins_node(element.len())).count();
    writer.length(nodes as u64);
    let (mut splitter, mut node) = (Splitter::list(), Listpack::new());
    for element in list.iter(0) {
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

/// Adds the list to a digest.
pub fn digest(list: &ListValue, digest: &mut ValueDigest) {
    list.iter(0).for_each(|element| digest.element(&element));
}

/// Adds an element at the end.
pub fn add(list: &mut ListValue, element: Text<'_>) {
    match element {
        Text::Owned(bytes) => list.push(End::Back, &Blob::from(bytes)),
        element => list.push(End::Back, &*element),
    }
}
