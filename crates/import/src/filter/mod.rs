//! Filters: which documents of a source belong to a dataset.
//!
//! [`FilterOptions`] are the user's options. [`Filter`] is the compiled form of checked options. [`Filtered`] is a
//! source that lists only the wanted documents. A folder that an exclusion names is not listed at all. Globs and files
//! of exclusions have gitignore's syntax, and the file types are ripgrep's (the `ignore` crate). [`Ignoring`] obeys the
//! `.gitignore` files in a source.
//!
//! The filter decides about the files of the source. If an archive is wanted, all documents in the archive are wanted.
//!
//! In a source with [`Tokens::Content`], equal tokens of two containers mean equal documents below them. Under another
//! filter the documents of a tree differ. So [`Filtered`] makes a container's token of the tree's token and the
//! filter's digest.

mod error;
mod ignoring;
mod size;

pub use error::FilterError;
pub use ignoring::Ignoring;
pub use size::{ByteSize, SizeError};

use crate::container::{
    Container, ContainerBuilder, ContainerDigest, ContainerError, Entry, EntryKind, digest,
};
use crate::source::{FLAGS_KEY, ListError, Listing, Source, Tokens, delegates_to_source, parts};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of globs of all options and files together.
pub const GLOBS_MAX: usize = 10_000;
/// Largest file of exclusions in bytes.
pub const EXCLUDE_FILE_BYTES_MAX: u64 = 4 << 20;
/// File types besides ripgrep's: name and globs.
pub const TYPES: [(&str, &[&str]); 4] = [
    ("mail", &["*.eml", "*.emlx", "*.mbox", "*.mbx"]),
    ("archive", &["*.zip", "*.jar", "*.tar", "*.tgz", "*.gz", "*.txz", "*.xz", "*.tzst", "*.zst"]),
    ("office", &["*.docx", "*.xlsx", "*.pptx", "*.odt", "*.ods", "*.odp"]),
    ("text", &["*.txt", "*.text", "*.md", "*.rst", "*.csv", "*.tsv", "*.log"]),
];

/// Which documents of a source are wanted. By default all documents are wanted. A document must pass every option.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    /// A document must match one of these globs. Empty: every document passes.
    pub include: Vec<String>,
    /// A document or folder must match none of these globs, even if it matches `include`.
    pub exclude: Vec<String>,
    /// Files with exclusions in gitignore's syntax, relative to the source's root.
    pub exclude_from: Vec<PathBuf>,
    /// True: obey the `.gitignore` files in the source.
    pub gitignore: bool,
    /// A document must have one of these file types. Empty: every document passes.
    pub types: Vec<String>,
    /// A document must have none of these file types.
    pub types_not: Vec<String>,
    /// Minimum size of a document.
    pub min_size: Option<ByteSize>,
    /// Maximum size of a document.
    pub max_size: Option<ByteSize>,
}

/// A compiled filter.
#[derive(Debug)]
pub struct Filter {
    globs: Override,
    ignored: Gitignore,
    types: Types,
    sizes: std::ops::RangeInclusive<u64>,
    digest: ContainerDigest,
}

impl Filter {
    /// Compiles the options. `None` when every document is wanted.
    ///
    /// # Errors
    /// [`FilterError`] names the wrong option and its value.
    pub(crate) fn new(options: &FilterOptions) -> Result<Option<Filter>, FilterError> {
        // One text for each glob, line and type. The digest of the filter is made of them.
        let mut rules = Vec::new();
        let mut globs = OverrideBuilder::new("");
        for (option, sign, list) in
            [("--include", "", &options.include), ("--exclude", "!", &options.exclude)]
        {
            for glob in list {
                if glob.is_empty() || glob.starts_with('!') {
                    return Err(FilterError::EmptyOrNegated { option, glob: glob.clone() });
                }
                let signed = format!("{sign}{glob}");
                // The error shows the glob as the user wrote it, without the sign.
                globs.add(&signed).map_err(|error| FilterError::Glob {
                    option,
                    glob: glob.clone(),
                    error,
                })?;
                rules.push(format!("{option}={signed}"));
            }
        }
        let mut ignored = GitignoreBuilder::new("");
        for file in &options.exclude_from {
            for (number, line) in read_lines(file)?.into_iter().enumerate() {
                let added = ignored.add_line(Some(file.clone()), &line);
                let wrong = |error| FilterError::Line { file: file.clone(), line: number + 1, error };
                added.map_err(wrong)?;
                rules.push(format!("--exclude-from={line}"));
            }
        }
        let mut types = TypesBuilder::new();
        types.add_defaults();
        for (name, globs) in TYPES {
            types.clear(name);
            for glob in globs {
                types.add(name, glob).expect("the table has good names and globs");
            }
        }
        for name in &options.types {
            types.select(name);
            rules.push(format!("--type={name}"));
        }
        for name in &options.types_not {
            types.negate(name);
            rules.push(format!("--type-not={name}"));
        }
        let least = options.min_size.map_or(0, |size| size.0);
        let most = options.max_size.map_or(u64::MAX, |size| size.0);
        if rules.is_empty() && (least, most) == (0, u64::MAX) {
            return Ok(None);
        }
        if least > most {
            return Err(FilterError::Sizes { least, most });
        }
        if rules.len() > GLOBS_MAX {
            return Err(FilterError::TooMany { found: rules.len() });
        }
        rules.push(format!("{least}-{most}"));
        let build = |options| move |error| FilterError::Build { options, error };
        let wrong_type = |error: ignore::Error| match error {
            ignore::Error::UnrecognizedFileType(name) => {
                let option = if options.types.contains(&name) { "--type" } else { "--type-not" };
                FilterError::UnknownType { option, name }
            }
            error => FilterError::Build { options: "--type, --type-not", error },
        };
        Ok(Some(Filter {
            globs: globs.build().map_err(build("--include, --exclude"))?,
            ignored: ignored.build().map_err(build("--exclude-from"))?,
            types: types.build().map_err(wrong_type)?,
            sizes: least..=most,
            digest: digest(rules.join("\0").as_bytes()),
        }))
    }

    /// True when the folder must be listed.
    fn takes_folder(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        !self.globs.matched(path, true).is_ignore() && !self.ignored.matched(path, true).is_ignore()
    }

    /// True when the name of the document is wanted. A document in a Maildir has the type `mail`, whatever its name.
    fn takes_name(&self, path: &[u8], in_maildir: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let named;
        let typed = match in_maildir {
            true => {
                named = path.with_extension("eml");
                &named
            }
            false => path,
        };
        !self.globs.matched(path, false).is_ignore()
            && !self.ignored.matched(path, false).is_ignore()
            && !self.types.matched(typed, false).is_ignore()
    }

    fn needs_sizes(&self) -> bool {
        self.sizes != (0..=u64::MAX)
    }
}

fn read_lines(file: &Path) -> Result<Vec<String>, FilterError> {
    let failed = |error| FilterError::Read { file: file.to_owned(), error };
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mut text = Vec::new();
    let mut limited = std::io::Read::take(opened, EXCLUDE_FILE_BYTES_MAX + 1);
    std::io::Read::read_to_end(&mut limited, &mut text).map_err(failed)?;
    if text.len() as u64 > EXCLUDE_FILE_BYTES_MAX {
        return Err(FilterError::FileTooLarge { file: file.to_owned() });
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.trim_start_matches('\u{feff}').lines().map(str::to_owned).collect())
}

/// A source without the documents and folders that its filter does not want.
pub struct Filtered {
    source: Box<dyn Source>,
    filter: Filter,
}

impl Filtered {
    /// The documents of `source` that `filter` wants.
    pub fn new(source: Box<dyn Source>, filter: Filter) -> Filtered {
        Filtered { source, filter }
    }

    fn takes(&mut self, path: &[u8], entry: &Entry<'_>) -> bool {
        let at = crate::job::join(path, entry.name);
        match entry.kind {
            EntryKind::Container if parts::number(entry.name).is_some() => true,
            EntryKind::Container => self.filter.takes_folder(&at),
            EntryKind::Document => {
                self.filter.takes_name(&at, entry.get(FLAGS_KEY).is_some())
                    // A document of unknown size is taken. Reading it reports what is wrong with it.
                    && (!self.filter.needs_sizes()
                        || self.source.size(entry).is_none_or(|size| self.filter.sizes.contains(&size)))
            }
        }
    }

    /// Removes the entries that the filter does not want from `listing`, and counts them as skipped.
    fn filtered(&mut self, path: &[u8], mut listing: Listing) -> Result<Listing, ContainerError> {
        let all = Container::parse(&listing.blob)?;
        let mut builder = ContainerBuilder::with_capacity(all.producer(), all.len(), all.blob().len());
        let is_content = self.source.tokens() == Tokens::Content;
        for entry in all.iter() {
            if !self.takes(path, &entry) {
                listing.skipped.filtered += 1;
                continue;
            }
            let marked = digest(&[&self.filter.digest[..], entry.token].concat());
            let token =
                if is_content && entry.kind == EntryKind::Container { &marked[..] } else { entry.token };
            builder.push(entry.kind, entry.name, entry.size, token, entry.pairs())?;
        }
        listing.blob = builder.finish()?;
        listing.refused.retain(|(name, _)| self.filter.takes_name(&crate::job::join(path, name), false));
        Ok(listing)
    }
}

impl Source for Filtered {
    fn tokens(&self) -> Tokens {
        self.source.tokens()
    }

    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError> {
        let listing = self.source.list(path, distrust)?;
        let shown = || PathBuf::from(OsStr::from_bytes(path));
        self.filtered(path, listing).map_err(|error| ListError::Container { path: shown(), error })
    }

    delegates_to_source!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(change: impl FnOnce(&mut FilterOptions)) -> Filter {
        let mut options = FilterOptions::default();
        change(&mut options);
        Filter::new(&options).expect("good options").expect("a filter")
    }

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| w.to_string()).collect()
    }

    #[test]
    fn without_options_there_is_no_filter() {
        assert!(Filter::new(&FilterOptions::default()).unwrap().is_none());
    }

    #[test]
    fn globs_choose_documents_and_cut_off_folders() {
        let f = filter(|o| {
            o.include = list(&["*.eml", "docs/**/*.txt"]);
            o.exclude = list(&["old/", "*-draft.eml", "/top"]);
        });
        for (path, taken) in [
            ("a.eml", true),
            ("in/b.eml", true),
            ("a-draft.eml", false),
            ("a.txt", false),
            ("docs/x/a.txt", true),
        ] {
            assert_eq!(f.takes_name(path.as_bytes(), false), taken, "{path}");
        }
        for (path, taken) in
            [("in", true), ("old", false), ("in/old", false), ("top", false), ("in/top", true)]
        {
            assert_eq!(f.takes_folder(path.as_bytes()), taken, "{path}");
        }
    }

    #[test]
    fn a_file_of_exclusions_has_the_syntax_of_gitignore() {
        let dir = crate::fixture::TempDir::new("ignored");
        dir.write("list", b"# a comment\n\n*.log\n!keep.log\n/build/\n");
        let f = filter(|o| o.exclude_from = vec![dir.path().join("list")]);
        for (path, taken) in [("a.log", false), ("x/keep.log", true), ("a.txt", true), ("#", true)] {
            assert_eq!(f.takes_name(path.as_bytes(), false), taken, "{path}");
        }
        assert!(!f.takes_folder(b"build") && f.takes_folder(b"x/build"));
        let missing =
            FilterOptions { exclude_from: vec![dir.path().join("none")], ..FilterOptions::default() };
        assert!(Filter::new(&missing).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn types_are_those_of_ripgrep_and_a_few_more() {
        let f = filter(|o| o.types = list(&["mail", "html"]));
        for (path, taken) in [("a.eml", true), ("a.html", true), ("a.txt", false), ("a", false)] {
            assert_eq!(f.takes_name(path.as_bytes(), false), taken, "{path}");
        }
        assert!(f.takes_name(b"cur/1700.M1.host", true), "what lies in a Maildir is mail");
        let not = filter(|o| o.types_not = list(&["mail"]));
        assert!(not.takes_name(b"a.txt", false) && !not.takes_name(b"a.eml", false));
        assert!(!not.takes_name(b"1700.M1", true));
        let unknown = FilterOptions { types: list(&["no-such"]), ..FilterOptions::default() };
        assert!(Filter::new(&unknown).unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn bad_globs_are_refused_and_other_options_have_another_digest() {
        for bad in ["", "!a", "a[", "{a"] {
            let options = FilterOptions { include: list(&[bad]), ..FilterOptions::default() };
            assert!(Filter::new(&options).is_err(), "{bad:?}");
        }
        let (least, most) = (Some(ByteSize(2)), Some(ByteSize(1)));
        let options = FilterOptions { min_size: least, max_size: most, ..FilterOptions::default() };
        let error = Filter::new(&options).unwrap_err().to_string();
        assert!(error.contains("(2 bytes) is above --max-size (1 bytes)"), "{error}");
        let options = FilterOptions { exclude: list(&["a["]), ..FilterOptions::default() };
        let error = Filter::new(&options).unwrap_err().to_string();
        assert!(error.starts_with("--exclude \"a[\": "), "{error}");
        let digests = [
            filter(|o| o.include = list(&["a"])).digest,
            filter(|o| o.include = list(&["tc"])).digest,
            filter(|o| o.include = list(&["--type=c"])).digest,
            filter(|o| o.exclude = list(&["a"])).digest,
            filter(|o| o.types = list(&["c"])).digest,
            filter(|o| o.types_not = list(&["c"])).digest,
            filter(|o| o.min_size = Some(ByteSize(1))).digest,
            filter(|o| o.max_size = Some(ByteSize(1))).digest,
        ];
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "{i}");
        }
    }
}
