//! [`Schema`]: the arguments of FT.CREATE, parsed.
//!
//! Features of RediSearch that Strand lacks (other field types, JSON, filters, phonetics ...) are refused by name,
//! so an option is never silently ignored.

use crate::error::{NO_ARGUMENT, NOT_CONVERTIBLE, OUT_OF_BOUNDS, SearchError, lossy};
use crate::tokenizer::{STOP_WORDS, lower};
use std::collections::HashSet;
use std::sync::Arc;
use strand_keyspace::{PrefixSet, TRACKED_PREFIX_BYTES_MAX};
use strand_wire::args::Args;

/// Maximum number of fields of one index.
pub(crate) const FIELDS_MAX: usize = 1024;
/// Maximum number of prefixes of one index.
pub(crate) const PREFIXES_MAX: usize = 1024;
/// Maximum number of stop words of one index.
pub(crate) const STOP_WORDS_MAX: usize = 4096;
/// Maximum length of the name of a field and of a stop word, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// Options of FT.CREATE that RediSearch knows and Strand refuses.
const REFUSED: [&str; 10] = [
    "FILTER",
    "LANGUAGE_FIELD",
    "SCORE_FIELD",
    "PAYLOAD_FIELD",
    "PAYLOAD",
    "TEMPORARY",
    "NOOFFSETS",
    "NOFIELDS",
    "NOFREQS",
    "INDEXALL",
];
/// Field options that RediSearch knows and Strand refuses.
const REFUSED_FIELD: [&str; 4] = ["PHONETIC", "WITHSUFFIXTRIE", "INDEXEMPTY", "INDEXMISSING"];

/// The definition of an index.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The index follows keys that start with one of these prefixes, as given. One empty prefix: all keys.
    pub(crate) prefixes: Vec<Vec<u8>>,
    /// The prefixes in the form in which a key is tested.
    follows: PrefixSet,
    /// Factor by which every score is multiplied.
    pub(crate) score: f64,
    /// Words that the index skips.
    pub(crate) stop_words: Arc<HashSet<String>>,
    /// The words of STOPWORDS, if given. FT.INFO shows them.
    pub(crate) own_stop_words: Option<Vec<String>>,
    /// The positions of SKIPINITIALSCAN in the command. With it, the index does not begin with a scan.
    pub(crate) skips_initial_scan: Vec<usize>,
    /// The fields in the order in which FT.CREATE lists them.
    pub(crate) fields: Vec<FieldSpec>,
}

/// One field of the schema.
#[derive(Clone, Debug)]
pub(crate) struct FieldSpec {
    /// The field's name in the hash.
    pub(crate) identifier: Vec<u8>,
    /// The field's name in queries.
    pub(crate) attribute: Vec<u8>,
    /// The field's type.
    pub(crate) kind: FieldKind,
    /// True when the index keeps a column for sorting.
    pub(crate) sortable: bool,
    /// True when the column for sorting keeps the value unchanged.
    pub(crate) unnormalized: bool,
    /// True when the field is only for sorting and never searched.
    pub(crate) no_index: bool,
}

/// A field's type and the type's options.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldKind {
    /// Text, which is indexed as words.
    Text {
        /// Factor by which the score of a match is multiplied.
        weight: f64,
        /// True when only exact words are indexed.
        no_stem: bool,
    },
    /// A field with a list of values, each of which is indexed whole.
    Tag {
        /// The byte between two values.
        separator: u8,
        /// True when values are not lower-cased.
        case_sensitive: bool,
    },
    /// A field whose values are numbers.
    Numeric,
}

impl FieldKind {
    /// The type's name in FT.CREATE and FT.INFO.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FieldKind::Text { .. } => "TEXT",
            FieldKind::Tag { .. } => "TAG",
            FieldKind::Numeric => "NUMERIC",
        }
    }
}

impl Schema {
    /// Parses `FT.CREATE index ...` (argument 0 is the command's name).
    pub(crate) fn parse(args: Args<'_>) -> Result<Schema, SearchError> {
        let mut schema = Schema {
            prefixes: vec![Vec::new()],
            follows: PrefixSet::default(),
            score: 1.0,
            stop_words: Arc::new(STOP_WORDS.iter().map(|w| w.to_string()).collect()),
            own_stop_words: None,
            skips_initial_scan: Vec::new(),
            fields: Vec::new(),
        };
        let mut cursor = Cursor { args, position: 2 };
        loop {
            if cursor.takes("SCHEMA") {
                break;
            } else if cursor.takes("ON") {
                match cursor.word("ON")? {
                    t if t.eq_ignore_ascii_case(b"HASH") => {}
                    t if t.eq_ignore_ascii_case(b"JSON") => {
                        return Err(SearchError::NotSupported("ON JSON".into()));
                    }
                    t => return Err(SearchError::refused(format!("Invalid rule type: {}", lossy(t)))),
                }
            } else if cursor.takes("PREFIX") {
                let prefixes = cursor.list("PREFIX", PREFIXES_MAX)?;
                prefixes.iter().try_for_each(|p| check_length("PREFIX", p, TRACKED_PREFIX_BYTES_MAX))?;
                if !prefixes.is_empty() {
                    schema.prefixes = prefixes.into_iter().map(|p| p.to_vec()).collect();
                }
            } else if cursor.takes("LANGUAGE") {
                let language = cursor.word("LANGUAGE")?;
                if !language.eq_ignore_ascii_case(b"english") {
                    return Err(SearchError::NotSupported(format!("LANGUAGE {}", lossy(language))));
                }
            } else if cursor.takes("SCORE") {
                schema.score = cursor.number("SCORE")?;
                if !(0.0..=1.0).contains(&schema.score) {
                    return Err(SearchError::refused(format!("Invalid score: {}", schema.score)));
                }
            } else if cursor.takes("STOPWORDS") {
                let words = cursor.list("STOPWORDS", STOP_WORDS_MAX)?;
                words.iter().try_for_each(|w| check_length("STOPWORDS", w, NAME_BYTES_MAX))?;
                let words: Vec<String> = words.into_iter().map(|w| lower(&lossy(w))).collect();
                schema.stop_words = Arc::new(words.iter().cloned().collect());
                schema.own_stop_words = Some(words);
            } else if cursor.takes("SKIPINITIALSCAN") {
                schema.skips_initial_scan.push(cursor.position - 1);
            } else if cursor.takes("MAXTEXTFIELDS") || cursor.takes("NOHL") {
                // These options are hints for RediSearch's own encoding. They have no effect in Strand.
            } else {
                return Err(match cursor.peek() {
                    None => SearchError::refused("No schema found"),
                    Some(w) if is_one_of(w, &REFUSED) => SearchError::NotSupported(lossy(w).to_uppercase()),
                    Some(w) => SearchError::refused(format!("Unknown argument `{}`", lossy(w))),
                });
            }
        }
        schema.parse_fields(&mut cursor)?;
        schema.follows = PrefixSet::new(schema.prefixes.iter().map(Vec::as_slice).collect());
        Ok(schema)
    }
    /// The number of the field that queries call `name`.
    pub(crate) fn field(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().position(|f| f.attribute == name)
    }
    /// True when the index follows `key`.
    pub(crate) fn follows(&self, key: &[u8]) -> bool {
        self.follows.covers(key)
    }

    fn parse_fields(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SearchError> {
        if cursor.peek().is_none() {
            return Err(SearchError::refused("Fields arguments are missing"));
        }
        while let Some(identifier) = cursor.peek() {
            cursor.position += 1;
            let attribute = if cursor.takes("AS") { cursor.word("AS")? } else { identifier };
            check_length("SCHEMA", identifier, NAME_BYTES_MAX)?;
            check_length("SCHEMA", attribute, NAME_BYTES_MAX)?;
            if self.field(attribute).is_some() {
                return Err(SearchError::refused(format!(
                    "Duplicate field in schema - {}",
                    lossy(attribute)
                )));
            }
            if self.fields.len() == FIELDS_MAX {
                return Err(SearchError::refused(format!(
                    "Too many fields in schema: at most {FIELDS_MAX} are allowed"
                )));
            }
            let kind = parse_kind(cursor, attribute)?;
            let mut field = FieldSpec {
                identifier: identifier.to_vec(),
                attribute: attribute.to_vec(),
                kind,
                sortable: false,
                unnormalized: false,
                no_index: false,
            };
            parse_field_options(cursor, &mut field)?;
            self.fields.push(field);
        }
        Ok(())
    }
}

/// Refuses an argument of option `name` that is longer than `bytes_max`.
fn check_length(name: &'static str, argument: &[u8], bytes_max: usize) -> Result<(), SearchError> {
    if argument.len() > bytes_max { Err(SearchError::bad_arguments(name, OUT_OF_BOUNDS)) } else { Ok(()) }
}

fn parse_kind(cursor: &mut Cursor<'_>, name: &[u8]) -> Result<FieldKind, SearchError> {
    let Some(kind) = cursor.peek() else {
        return Err(SearchError::refused(format!("Field `{}` does not have a type", lossy(name))));
    };
    cursor.position += 1;
    match kind.to_ascii_uppercase().as_slice() {
        b"TEXT" => Ok(FieldKind::Text { weight: 1.0, no_stem: false }),
        b"TAG" => Ok(FieldKind::Tag { separator: b',', case_sensitive: false }),
        b"NUMERIC" => Ok(FieldKind::Numeric),
        upper @ (b"GEO" | b"GEOSHAPE" | b"VECTOR") => Err(SearchError::NotSupported(lossy(upper))),
        _ => Err(SearchError::refused(format!("Invalid field type for field `{}`", lossy(name)))),
    }
}

fn parse_field_options(cursor: &mut Cursor<'_>, field: &mut FieldSpec) -> Result<(), SearchError> {
    loop {
        if cursor.takes("SORTABLE") {
            field.sortable = true;
            field.unnormalized = cursor.takes("UNF");
        } else if cursor.takes("NOINDEX") {
            field.no_index = true;
        } else if cursor.peek().is_some_and(|w| is_one_of(w, &REFUSED_FIELD)) {
            return Err(SearchError::NotSupported(
                lossy(cursor.peek().expect("checked above")).to_uppercase(),
            ));
        } else {
            match &mut field.kind {
                FieldKind::Text { no_stem, .. } if cursor.takes("NOSTEM") => *no_stem = true,
                FieldKind::Text { weight, .. } if cursor.takes("WEIGHT") => {
                    *weight = cursor.number("weight")?;
                    // The library's scores are of f32, and a weight that is infinite there would make some of them no number.
                    if !(0.0..=f64::from(f32::MAX)).contains(weight) {
                        return Err(SearchError::bad_arguments("weight", OUT_OF_BOUNDS));
                    }
                }
                FieldKind::Tag { separator, .. } if cursor.takes("SEPARATOR") => {
                    let Some(given) = cursor.peek() else {
                        return Err(SearchError::refused("SEPARATOR requires an argument"));
                    };
                    // A byte above 0x7f is a part of a character, and values are split as texts.
                    let [one @ 0..0x80] = given else {
                        let text =
                            format!("Tag separator must be a single character. Got `{}`", lossy(given));
                        return Err(SearchError::refused(text));
                    };
                    *separator = *one;
                    cursor.position += 1;
                }
                FieldKind::Tag { case_sensitive, .. } if cursor.takes("CASESENSITIVE") => {
                    *case_sensitive = true
                }
                _ => return Ok(()),
            }
        }
    }
}

fn is_one_of(word: &[u8], list: &[&str]) -> bool {
    list.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
}

/// A walk over the arguments of a command that reports errors as RediSearch does.
pub(crate) struct Cursor<'a> {
    pub(crate) args: Args<'a>,
    pub(crate) position: usize,
}

impl<'a> Cursor<'a> {
    /// The argument that is read next.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.args.get(self.position)
    }
    /// Skips the current argument if it is `word`. Returns whether it was.
    pub(crate) fn takes(&mut self, word: &str) -> bool {
        let yes = self.args.is(self.position, word);
        self.position += usize::from(yes);
        yes
    }
    /// Takes the argument of option `name`.
    pub(crate) fn word(&mut self, name: &'static str) -> Result<&'a [u8], SearchError> {
        let word = self.peek().ok_or(SearchError::bad_arguments(name, NO_ARGUMENT))?;
        self.position += 1;
        Ok(word)
    }
    /// Takes a floating-point number.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<f64, SearchError> {
        let word = self.word(name)?;
        parse_number(word).ok_or(SearchError::bad_arguments(name, NOT_CONVERTIBLE))
    }
    /// Takes an integer that is not negative.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<usize, SearchError> {
        let word = self.word(name)?;
        let n: i64 = std::str::from_utf8(word)
            .ok()
            .and_then(|w| w.parse().ok())
            .ok_or(SearchError::bad_arguments(name, NOT_CONVERTIBLE))?;
        usize::try_from(n).map_err(|_| SearchError::bad_arguments(name, OUT_OF_BOUNDS))
    }
    /// Takes a count and that many arguments.
    pub(crate) fn list(&mut self, name: &'static str, max: usize) -> Result<Vec<&'a [u8]>, SearchError> {
        let n = self.count(name)?;
        if n > max {
            return Err(SearchError::bad_arguments(name, OUT_OF_BOUNDS));
        }
        if n > self.args.len().saturating_sub(self.position) {
            return Err(SearchError::bad_arguments(name, NO_ARGUMENT));
        }
        let list = (0..n).map(|i| self.args.at(self.position + i)).collect();
        self.position += n;
        Ok(list)
    }
}

/// Parses a number as NUMERIC fields and ranges accept it. NaN is not accepted.
pub(crate) fn parse_number(bytes: &[u8]) -> Option<f64> {
    let x: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (!x.is_nan()).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_wire::args::Argv;

    fn parse(line: &str) -> Result<Schema, SearchError> {
        let argv = Argv::from_slices(&line.split_whitespace().collect::<Vec<_>>());
        Schema::parse(argv.args())
    }

    #[test]
    fn reads_every_option() {
        let s = parse(
            "FT.CREATE i on hash prefix 2 a: b: language English stopwords 1 Foo score 0.5 nohl maxtextfields \
             skipinitialscan schema f AS g text weight 2.5 nostem sortable unf noindex t tag separator ; casesensitive \
             sortable n numeric sortable",
        )
        .unwrap();
        assert_eq!(s.prefixes, [b"a:", b"b:"]);
        assert_eq!(s.own_stop_words, Some(vec!["foo".to_string()]));
        assert_eq!(s.skips_initial_scan.len(), 1);
        assert_eq!(s.score, 0.5);
        assert_eq!((&s.fields[0].identifier[..], &s.fields[0].attribute[..]), (&b"f"[..], &b"g"[..]));
        assert_eq!(s.fields[0].kind, FieldKind::Text { weight: 2.5, no_stem: true });
        assert!(s.fields[0].sortable && s.fields[0].unnormalized && s.fields[0].no_index);
        assert_eq!(s.fields[1].kind, FieldKind::Tag { separator: b';', case_sensitive: true });
        assert_eq!((&s.fields[2].kind, s.fields[2].sortable), (&FieldKind::Numeric, true));
        assert_eq!(s.field(b"g"), Some(0));
        assert!(s.follows(b"a:1") && !s.follows(b"c:1"));
    }

    #[test]
    fn refuses_in_redisearchs_words() {
        for (line, want) in [
            ("FT.CREATE i", "No schema found"),
            ("FT.CREATE i BOGUS", "Unknown argument `BOGUS`"),
            ("FT.CREATE i FILTER x SCHEMA", "`FILTER` is not supported"),
            ("FT.CREATE i ON JSON SCHEMA", "`ON JSON` is not supported"),
            ("FT.CREATE i ON LIST SCHEMA", "Invalid rule type: LIST"),
            ("FT.CREATE i SCHEMA", "Fields arguments are missing"),
            ("FT.CREATE i SCHEMA f", "Field `f` does not have a type"),
            ("FT.CREATE i SCHEMA f BLOB", "Invalid field type for field `f`"),
            ("FT.CREATE i SCHEMA f VECTOR", "`VECTOR` is not supported"),
            ("FT.CREATE i SCHEMA f TEXT PHONETIC dm:en", "`PHONETIC` is not supported"),
            ("FT.CREATE i SCHEMA f TEXT f TAG", "Duplicate field in schema - f"),
            ("FT.CREATE i SCHEMA f TAG SEPARATOR", "SEPARATOR requires an argument"),
            ("FT.CREATE i SCHEMA f TAG SEPARATOR ab", "Tag separator must be a single character. Got `ab`"),
            (
                "FT.CREATE i SCHEMA f TEXT WEIGHT x",
                "Bad arguments for weight: Could not convert argument to expected type",
            ),
            (
                "FT.CREATE i PREFIX 3 a SCHEMA",
                "Bad arguments for PREFIX: Expected an argument, but none provided",
            ),
            ("FT.CREATE i PREFIX -1 a", "Bad arguments for PREFIX: Value is outside acceptable bounds"),
            ("FT.CREATE i LANGUAGE klingon", "`LANGUAGE klingon` is not supported"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), want, "{line}");
        }
    }
}
