//! The proof of a deletion: for each removed document a run reports the container, the entry in it and the entry's
//! token.

use crate::fake::Fake;
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use crate::nested::{deflated, zip};
use std::path::Path;
use strand_import::{ImportOptions, MaxDelete, Outcome, Progress};

/// Container, entry and token.
type Proof = (String, String, Vec<u8>);

/// Collects each removed document with the proof that the run reported just before the removal.
#[derive(Default)]
struct Proofs {
    next: Option<Proof>,
    removed: Vec<(String, Option<Proof>)>,
}

impl Progress for Proofs {
    fn removed_from(&mut self, container: &[u8], name: &[u8], token: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.next = Some((text(container), text(name), token.to_vec()));
    }
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        if outcome == Outcome::Removed {
            self.removed.push((String::from_utf8_lossy(path).into_owned(), self.next.take()));
        }
    }
}

/// Runs an import. Returns path, container and entry of each document that it removed, in the order of the paths.
fn removed(fake: &Fake, source: &Path) -> Vec<[String; 3]> {
    let mut proofs = Proofs::default();
    let options = ImportOptions { max_delete: MaxDelete::Percent(100), ..fake.options(source) };
    strand_import::run(&options, &mut proofs).expect("nothing goes wrong");
    let each = proofs.removed.into_iter().map(|(path, proof)| {
        let (container, entry, token) = proof.unwrap_or_else(|| panic!("{path} is removed without a proof"));
        assert!(!token.is_empty(), "{path} has no token");
        [path, container, entry]
    });
    let mut each: Vec<_> = each.collect();
    each.sort();
    each
}

fn tree() -> Tree {
    let (one, two) = (mail("one", "1"), mail("two", "2"));
    let inner = zip(&[deflated("deep.eml", two.as_bytes())]);
    let tree = Tree::new(&[("a.eml", &one), ("in/b.eml", &one), ("in/deep/c.eml", &two), ("keep.eml", &two)]);
    tree.write("x.zip", zip(&[deflated("e.eml", one.as_bytes()), deflated("in/i.zip", &inner)]));
    tree
}

const ALL: [[&str; 3]; 7] = [
    ["a.eml", "", "a.eml"],
    ["in/b.eml", "in", "b.eml"],
    ["in/deep/c.eml", "in/deep", "c.eml"],
    ["x.zip", "", "x.zip"],
    ["x.zip/e.eml", "x.zip", "e.eml"],
    ["x.zip/in/i.zip", "x.zip/in", "i.zip"],
    ["x.zip/in/i.zip/deep.eml", "x.zip/in/i.zip", "deep.eml"],
];

#[test]
fn each_removed_document_names_container_entry_and_token() {
    let tree = tree();
    let fake = Fake::start();
    fake.import(tree.path());
    // First an entry of an inner archive is removed, then everything but one document.
    let empty = zip(&[]);
    tree.write("x.zip", zip(&[deflated("e.eml", mail("one", "1").as_bytes()), deflated("in/i.zip", &empty)]));
    assert_eq!(removed(&fake, tree.path()), [ALL[6]]);
    ["a.eml", "in", "x.zip"].iter().for_each(|name| tree.remove(name));
    assert_eq!(removed(&fake, tree.path()), ALL[..6]);
    assert_eq!(fake.ids(), ["keep.eml"]);
}

#[test]
fn each_document_removed_from_a_revision_names_container_entry_and_token() {
    let tree = tree();
    init(&tree);
    commit(&tree);
    ["a.eml", "in", "x.zip"].iter().for_each(|name| tree.remove(name));
    commit(&tree);
    let fake = Fake::start();
    fake.import(&source(tree.path(), "main~1"));
    assert_eq!(removed(&fake, &source(tree.path(), "main")), ALL);
    assert_eq!(fake.ids(), ["keep.eml"]);
}
