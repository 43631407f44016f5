//! Trees of a restic repository: the JSON of folders.

use super::repository::{Id, Repository, hex, id, other};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// Maximum number of trees in memory: the trees from the root to the current folder, and some more.
const TREES_KEPT: usize = 64;
/// Maximum number of nodes of all trees in memory. A single tree may have more nodes.
const NODES_KEPT: usize = 200_000;

/// The kind of a node.
pub(super) enum NodeKind {
    /// A file, with the blobs of its bytes.
    File(Vec<Id>),
    /// A folder, with its tree.
    Folder(Id),
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Special,
}

/// One entry of a tree.
pub(super) struct Node {
    pub(super) name: Vec<u8>,
    pub(super) kind: NodeKind,
    pub(super) size: u64,
}

impl Node {
    /// The tree of the folder, if the node is a folder.
    pub(super) fn subtree(&self) -> Option<Id> {
        if let NodeKind::Folder(tree) = self.kind { Some(tree) } else { None }
    }
    /// The version token of a file: the id of its only blob, or the SHA-256 of the ids of its blobs. `None` when the
    /// node is not a file.
    pub(super) fn token(&self) -> Option<Id> {
        let NodeKind::File(content) = &self.kind else { return None };
        Some(match &content[..] {
            [only] => *only,
            several => Sha256::digest(several.concat()).into(),
        })
    }
}

/// A folder.
pub(super) struct Tree {
    /// The nodes in the order of their names.
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct TreeFile {
    #[serde(default)]
    nodes: Option<Vec<NodeFile>>,
}

#[derive(Deserialize)]
struct NodeFile {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    content: Option<Vec<String>>,
    #[serde(default)]
    subtree: Option<String>,
}

impl Tree {
    fn parse(bytes: &[u8]) -> io::Result<Tree> {
        let file: TreeFile = serde_json::from_slice(bytes).map_err(other)?;
        let mut nodes = Vec::new();
        for node in file.nodes.unwrap_or_default() {
            let kind = match &node.kind[..] {
                "file" => {
                    let content = node.content.unwrap_or_default();
                    NodeKind::File(content.iter().map(|part| id(part)).collect::<Result<_, _>>()?)
                }
                "dir" => NodeKind::Folder(id(node.subtree.as_deref().unwrap_or_default())?),
                "symlink" => NodeKind::Link,
                _ => NodeKind::Special,
            };
            let name = unquote(&node.name)
                .ok_or_else(|| other(format!("the name {:?} has an invalid escape", node.name)))?;
            nodes.push(Node { name, kind, size: node.size });
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Tree { nodes })
    }
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// The node called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.name[..].cmp(name)).ok()?;
        Some(&self.nodes[at])
    }
}

/// The bytes of a name. restic escapes names like quoted strings in Go: unprintable characters, and bytes that are not
/// UTF-8, are escape sequences. `None` when an escape sequence is not valid.
fn unquote(name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        let digits = |from: usize, len: usize, radix: u32| {
            u32::from_str_radix(rest.get(at + from..at + from + len)?, radix).ok()
        };
        let character = |code: u32, out: &mut Vec<u8>| {
            let mut utf8 = [0; 4];
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut utf8).as_bytes());
            Some(())
        };
        let len = match escape {
            b'x' => {
                out.push(u8::try_from(digits(2, 2, 16)?).ok()?);
                4
            }
            b'u' => {
                character(digits(2, 4, 16)?, &mut out)?;
                6
            }
            b'U' => {
                character(digits(2, 8, 16)?, &mut out)?;
                10
            }
            b'0'..=b'7' => {
                out.push(u8::try_from(digits(1, 3, 8)?).ok()?);
                4
            }
            _ => {
                let plain = *b"\x07\x08\x0c\n\r\t\x0b\\\"'"
                    .get(b"abfnrtv\\\"'".iter().position(|b| *b == escape)?)?;
                out.push(plain);
                2
            }
        };
        rest = rest.get(at + len..)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}

/// A cache of the trees that were used last.
#[derive(Default)]
pub(super) struct Trees {
    kept: VecDeque<(Id, Rc<Tree>)>,
}

impl Trees {
    /// Returns the tree `id`, from the cache or the repository.
    ///
    /// # Errors
    /// When the tree is missing or damaged.
    pub(super) fn get(&mut self, repository: &Repository, id: &Id) -> io::Result<Rc<Tree>> {
        if let Some(at) = self.kept.iter().position(|(kept, _)| kept == id) {
            let found = self.kept.remove(at).expect("just found");
            self.kept.push_back(found.clone());
            return Ok(found.1);
        }
        let missing = || other(format!("the tree {} is not in the repository's index", hex(id)));
        let bytes = repository.read(repository.find(id).ok_or_else(missing)?)?;
        let tree = Tree::parse(&bytes).map_err(|error| other(format!("the tree {}: {error}", hex(id))))?;
        let tree = Rc::new(tree);
        self.kept.push_back((*id, tree.clone()));
        let nodes = |kept: &VecDeque<(Id, Rc<Tree>)>| kept.iter().map(|(_, t)| t.nodes.len()).sum::<usize>();
        while self.kept.len() > 1 && (self.kept.len() > TREES_KEPT || nodes(&self.kept) > NODES_KEPT) {
            self.kept.pop_front();
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unquoted_as_go_quotes_them() {
        for (quoted, name) in [
            ("plain name", &b"plain name"[..]),
            ("caf\u{e9}", "caf\u{e9}".as_bytes()),
            ("caf\\xe9", b"caf\xe9"),
            ("a\\\\b\\\"c\\n\\t", b"a\\b\"c\n\t"),
            ("\\u00e9\\U0001F600\\177", "\u{e9}\u{1f600}\x7f".as_bytes()),
            ("", b""),
        ] {
            assert_eq!(unquote(quoted).as_deref(), Some(name), "{quoted}");
        }
        for bad in ["\\", "\\q", "\\x1", "\\xzz", "\\u12", "\\ud800", "\\400", "\\x\u{e9}"] {
            assert!(unquote(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_tree_is_parsed_and_invalid_trees_are_refused() {
        let a = "aa".repeat(32);
        let json = format!(
            r#"{{"nodes":[{{"name":"z","type":"dir","subtree":"{a}","mode":1}},
            {{"name":"f","type":"file","size":3,"content":["{a}","{a}"]}},
            {{"name":"e","type":"file","content":null}},{{"name":"l","type":"symlink","linktarget":"x"}},{{"name":"p","type":"fifo"}}]}}"#
        );
        let tree = Tree::parse(json.as_bytes()).unwrap();
        let names: Vec<_> = tree.nodes().iter().map(|node| node.name.clone()).collect();
        assert_eq!(names, [b"e", b"f", b"l", b"p", b"z"]);
        assert_eq!(tree.find(b"z").and_then(Node::subtree), Some([0xaa; 32]));
        assert_ne!(tree.find(b"f").and_then(Node::token), tree.find(b"e").and_then(Node::token));
        assert!(tree.find(b"x").is_none() && tree.find(b"l").is_some_and(|node| node.token().is_none()));
        assert!(Tree::parse(br#"{"nodes":null}"#).unwrap().nodes().is_empty());
        for bad in ["", "{", r#"{"nodes":[{"name":"x"}]}"#, r#"{"nodes":[{"name":"x","type":"dir"}]}"#] {
            assert!(Tree::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
