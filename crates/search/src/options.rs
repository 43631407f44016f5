//! [`SearchOptions`]: the arguments of FT.SEARCH after the query.

use crate::error::{OUT_OF_BOUNDS, SearchError, lossy};
use crate::query::Limit;
use crate::schema::{Cursor, FIELDS_MAX, FieldKind, Schema, parse_number};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use strand_wire::args::Args;

/// Maximum offset, and maximum number of results: RediSearch's MAXSEARCHRESULTS.
pub(crate) const RESULTS_MAX: usize = 1_000_000;
/// Maximum number of distinct fields of RETURN.
pub(crate) const RETURN_FIELDS_MAX: usize = 1024;
/// Maximum number of names and values of PARAMS, counted together.
const PARAMS_MAX: usize = 2 * 4096;
/// Maximum number of FILTER options.
const FILTERS_MAX: usize = 256;
/// Number of results when LIMIT is missing.
const RESULTS_DEFAULT: usize = 10;
/// The accepted query dialects. All are read as dialect 2: dialects 3 and 4 differ only for JSON.
const DIALECTS: std::ops::RangeInclusive<usize> = 2..=4;

/// Options that RediSearch knows and Strand refuses.
const REFUSED: [&str; 12] = [
    "SUMMARIZE",
    "HIGHLIGHT",
    "GEOFILTER",
    "SLOP",
    "INORDER",
    "EXPANDER",
    "EXPLAINSCORE",
    "PAYLOAD",
    "WITHPAYLOADS",
    "WITHCOUNT",
    "WITHOUTCOUNT",
    "WITHCURSOR",
];

/// Options of FT.SEARCH that concern the results' form, order or version. FT.CHANGES refuses them.
const RESULT_OPTIONS: [&str; 6] = ["NOCONTENT", "WITHSCORES", "WITHSORTKEYS", "RETURN", "SORTBY", "VERSION"];

/// Which results to return, and in which form.
#[derive(Debug)]
pub(crate) struct SearchOptions<'a> {
    pub(crate) no_content: bool,
    pub(crate) verbatim: bool,
    pub(crate) no_stop_words: bool,
    pub(crate) with_scores: bool,
    pub(crate) with_sort_keys: bool,
    /// The fields to return; `None`: all fields.
    pub(crate) fields: Option<Vec<Returned>>,
    pub(crate) sort: Option<SortBy>,
    pub(crate) offset: usize,
    pub(crate) count: usize,
    pub(crate) keys: Option<Vec<&'a [u8]>>,
    pub(crate) in_fields: Option<Vec<usize>>,
    pub(crate) filters: Vec<(usize, Limit, Limit)>,
    /// The TIMEOUT in milliseconds; 0: no timeout.
    timeout_ms: u64,
    pub(crate) params: HashMap<&'a [u8], &'a [u8]>,
    /// VERSION: search the index as it was at this version.
    pub(crate) version: Option<&'a [u8]>,
    /// The versions FROM and TO of FT.CHANGES.
    pub(crate) from: Option<&'a [u8]>,
    pub(crate) to: Option<&'a [u8]>,
}

/// A field to return: its name in the hash and its name in the reply.
pub(crate) type Returned = (Vec<u8>, Vec<u8>);

/// The field of the schema that SORTBY names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortBy {
    pub(crate) field: usize,
    pub(crate) descending: bool,
}

impl<'a> SearchOptions<'a> {
    /// Parses `FT.SEARCH index query ...`.
    pub(crate) fn parse(args: Args<'a>, schema: &Schema) -> Result<SearchOptions<'a>, SearchError> {
        SearchOptions::parse_as(args, schema, false)
    }
    /// Parses `FT.CHANGES index query ...`.
    pub(crate) fn parse_difference(
        args: Args<'a>,
        schema: &Schema,
    ) -> Result<SearchOptions<'a>, SearchError> {
        SearchOptions::parse_as(args, schema, true)
    }
    fn parse_as(
        args: Args<'a>,
        schema: &Schema,
        is_difference: bool,
    ) -> Result<SearchOptions<'a>, SearchError> {
        let mut options = SearchOptions {
            no_content: false,
            verbatim: false,
            no_stop_words: false,
            with_scores: false,
            with_sort_keys: false,
            fields: None,
            sort: None,
            offset: 0,
            count: RESULTS_DEFAULT,
            keys: None,
            in_fields: None,
            filters: Vec::new(),
            timeout_ms: 0,
            params: HashMap::new(),
            version: None,
            from: None,
            to: None,
        };
        let mut cursor = Cursor { args, position: 3 };
        while let Some(word) = cursor.peek() {
            cursor.position += 1;
            let upper = word.to_ascii_uppercase();
            let is_refused = is_difference && RESULT_OPTIONS.iter().any(|name| name.as_bytes() == upper);
            match upper.as_slice() {
                _ if is_refused => return Err(unknown(word, cursor.position)),
                b"VERSION" if !is_difference => options.version = Some(cursor.word("VERSION")?),
                b"FROM" if is_difference => options.from = Some(cursor.word("FROM")?),
                b"TO" if is_difference => options.to = Some(cursor.word("TO")?),
                b"NOCONTENT" => options.no_content = true,
                b"VERBATIM" => options.verbatim = true,
                b"NOSTOPWORDS" => options.no_stop_words = true,
                b"WITHSCORES" => options.with_scores = true,
                b"WITHSORTKEYS" => options.with_sort_keys = true,
                b"RETURN" => options.fields = Some(parse_return(&mut cursor, schema)?),
                b"SORTBY" => options.parse_sort(&mut cursor, schema)?,
                b"LIMIT" => options.parse_limit(&mut cursor)?,
                b"INKEYS" => options.keys = Some(cursor.list("INKEYS", RESULTS_MAX)?),
                b"INFIELDS" => {
                    // As in RediSearch, an unknown field name matches nothing.
                    let names = cursor.list("INFIELDS", FIELDS_MAX)?;
                    let is_text = |f: &usize| {
                        matches!(schema.fields[*f].kind, FieldKind::Text { .. })
                            && !schema.fields[*f].no_index
                    };
                    options.in_fields =
                        Some(names.into_iter().filter_map(|n| schema.field(n)).filter(is_text).collect());
                }
                b"FILTER" if options.filters.len() == FILTERS_MAX => {
                    return Err(SearchError::bad_arguments("FILTER", OUT_OF_BOUNDS));
                }
                b"FILTER" => options.filters.push(parse_filter(&mut cursor, schema)?),
                b"TIMEOUT" => {
                    let wrong = || SearchError::refused("TIMEOUT requires a non negative integer");
                    if cursor.peek().is_none() {
                        return Err(SearchError::refused("Need an argument for TIMEOUT"));
                    }
                    options.timeout_ms = cursor.count("TIMEOUT").map_err(|_| wrong())? as u64;
                }
                b"LANGUAGE" => {
                    let language = cursor.word("LANGUAGE")?;
                    if !language.eq_ignore_ascii_case(b"english") {
                        return Err(SearchError::NotSupported(format!("LANGUAGE {}", lossy(language))));
                    }
                }
                b"SCORER" => {
                    let scorer = cursor.word("SCORER")?;
                    if !scorer.eq_ignore_ascii_case(b"BM25") && !scorer.eq_ignore_ascii_case(b"BM25STD") {
                        return Err(SearchError::NotSupported(format!("SCORER {}", lossy(scorer))));
                    }
                }
                b"DIALECT" => {
                    if cursor.peek().is_none() {
                        return Err(SearchError::refused("Need an argument for DIALECT"));
                    }
                    match cursor.count("DIALECT") {
                        Ok(d) if DIALECTS.contains(&d) => {}
                        Ok(1) => return Err(SearchError::NotSupported("DIALECT 1".into())),
                        _ => {
                            let text = "DIALECT requires a non negative integer >=1 and <= 4";
                            return Err(SearchError::refused(text));
                        }
                    }
                }
                b"PARAMS" => options.parse_params(&mut cursor)?,
                upper if REFUSED.iter().any(|r| r.as_bytes() == upper) => {
                    return Err(SearchError::NotSupported(lossy(upper)));
                }
                _ => return Err(unknown(word, cursor.position)),
            }
        }
        Ok(options)
    }

    /// When the TIMEOUT of a request that began at `begun` passes, if the client gave one.
    pub(crate) fn deadline(&self, begun: Instant) -> Option<Instant> {
        let timeout = (self.timeout_ms > 0).then(|| Duration::from_millis(self.timeout_ms))?;
        begun.checked_add(timeout)
    }

    fn parse_limit(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SearchError> {
        if cursor.args.len() - cursor.position < 2 {
            return Err(SearchError::refused("LIMIT requires two arguments"));
        }
        let mut number =
            || cursor.count("LIMIT").map_err(|_| SearchError::refused("LIMIT needs two numeric arguments"));
        (self.offset, self.count) = (number()?, number()?);
        if self.count == 0 && self.offset != 0 {
            return Err(SearchError::refused("The `offset` of the LIMIT must be 0 when `num` is 0"));
        }
        for (what, n) in [("LIMIT", self.count), ("OFFSET", self.offset)] {
            if n > RESULTS_MAX {
                return Err(SearchError::refused(format!("{what} exceeds maximum of {RESULTS_MAX}")));
            }
        }
        Ok(())
    }

    fn parse_sort(&mut self, cursor: &mut Cursor<'_>, schema: &Schema) -> Result<(), SearchError> {
        if self.sort.is_some() {
            return Err(SearchError::refused("Multiple SORTBY steps are not allowed"));
        }
        let name = cursor.peek().ok_or_else(|| SearchError::refused("Bad SORTBY arguments"))?;
        cursor.position += 1;
        let descending = cursor.takes("DESC");
        if !descending {
            cursor.takes("ASC");
        }
        let unknown = || SearchError::refused(format!("Property `{}` not loaded nor in schema", lossy(name)));
        let field = schema.field(name).ok_or_else(unknown)?;
        self.sort = Some(SortBy { field, descending });
        Ok(())
    }

    fn parse_params(&mut self, cursor: &mut Cursor<'a>) -> Result<(), SearchError> {
        if !self.params.is_empty() {
            return Err(SearchError::refused(
                "Multiple PARAMS are not allowed. Parameters can be defined only once",
            ));
        }
        let list = cursor.list("PARAMS", PARAMS_MAX)?;
        if list.is_empty() || list.len() % 2 != 0 {
            return Err(SearchError::refused("Parameters must be specified in PARAM VALUE pairs"));
        }
        for pair in list.chunks(2) {
            if self.params.insert(pair[0], pair[1]).is_some() {
                return Err(SearchError::refused(format!("Duplicate parameter `{}`", lossy(pair[0]))));
            }
        }
        Ok(())
    }
}

/// The error for an argument that is not an option. `next` is the position of the argument after it.
fn unknown(word: &[u8], next: usize) -> SearchError {
    SearchError::refused(format!("Unknown argument `{}` at position {} for <main>", lossy(word), next - 3))
}

/// The fields of RETURN. A pair of field and reply name appears once.
fn parse_return(cursor: &mut Cursor<'_>, schema: &Schema) -> Result<Vec<Returned>, SearchError> {
    let list = cursor.list("RETURN", usize::MAX)?;
    let (mut fields, mut i) = (Vec::new(), 0);
    let mut seen: HashSet<(&[u8], &[u8])> = HashSet::new();
    while i < list.len() {
        let name = list[i];
        let renamed = list.get(i + 1).is_some_and(|w| w.eq_ignore_ascii_case(b"AS"));
        let shown = match (renamed, list.get(i + 2)) {
            (false, _) => name,
            (true, Some(shown)) => shown,
            (true, None) => {
                return Err(SearchError::refused("RETURN path AS name - must be accompanied with NAME"));
            }
        };
        i += if renamed { 3 } else { 1 };
        if !seen.insert((name, shown)) {
            continue;
        }
        if seen.len() > RETURN_FIELDS_MAX {
            return Err(SearchError::bad_arguments("RETURN", OUT_OF_BOUNDS));
        }
        // A name in the schema selects the hash field that the schema assigns to it. Any other name is the name of a
        // hash field.
        let source = schema.field(name).map_or(name, |f| &schema.fields[f].identifier);
        fields.push((source.to_vec(), shown.to_vec()));
    }
    Ok(fields)
}

fn parse_filter(cursor: &mut Cursor<'_>, schema: &Schema) -> Result<(usize, Limit, Limit), SearchError> {
    if cursor.args.len() - cursor.position < 3 {
        return Err(SearchError::refused("FILTER requires 3 arguments"));
    }
    let name = cursor.word("FILTER")?;
    let mut limit = |what: &'static str| {
        let word = cursor.word("FILTER")?;
        let (exclusive, digits) = match word {
            [b'(', rest @ ..] => (true, rest),
            _ => (false, word),
        };
        let value = parse_number(digits)
            .ok_or_else(|| SearchError::refused(format!("Bad {what} range: {}", lossy(word))))?;
        Ok::<_, SearchError>(Limit { value, exclusive })
    };
    let (min, max) = (limit("lower")?, limit("upper")?);
    match schema.field(name).filter(|f| schema.fields[*f].kind == FieldKind::Numeric) {
        Some(field) => Ok((field, min, max)),
        None => Err(SearchError::refused(format!("Unknown Field '{}'", lossy(name)))),
    }
}

impl SortBy {
    /// True when the index has no column for the field, so its values must be read from the hashes.
    pub(crate) fn needs_hashes(&self, schema: &Schema) -> bool {
        let spec = self.spec(schema);
        spec.kind != FieldKind::Numeric && !spec.sortable
    }
    /// The schema's spec of the field.
    pub(crate) fn spec<'s>(&self, schema: &'s Schema) -> &'s crate::schema::FieldSpec {
        &schema.fields[self.field]
    }
}
