//! [`Destination`]: a user's name for a sink.
//!
//! `-`, `ndjson:PATH`, `xml:PATH`, `file:PATH` (the ending decides), and
//! `solr+http://host:8983,other:8983/solr/collection?commitWithin=1000`.

use reqwest::Url;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Default of [`SolrTarget::commit_within`].
const COMMIT_WITHIN: Duration = Duration::from_secs(10);
/// Default of [`SolrTarget::patience`].
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);
/// Maximum number of servers of one collection.
const SERVERS_MAX: usize = 64;

/// The sink of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// The server at [`crate::ImportOptions::address`].
    #[default]
    Strand,
    /// A file, or the standard output when there is no path.
    Lines {
        /// How documents are written.
        format: Format,
        /// The path of the file.
        path: Option<PathBuf>,
    },
    /// A collection of Solr.
    Solr(SolrTarget),
}

/// How documents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    Ndjson,
    /// Solr's update messages, in one element `update`.
    Xml,
}

/// A collection of Solr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolrTarget {
    /// The collection's URL at each server that may be used. A URL may hold user and password.
    pub servers: Vec<Url>,
    /// Maximum time after which Solr makes sent documents visible to searches.
    pub commit_within: Duration,
    /// Ask for a commit at the end of the run.
    pub commit: bool,
    /// The names of fields.
    pub names: FieldNames,
    /// Maximum time for which documents are sent again while the collection does not accept them.
    pub patience: Duration,
}

/// The names of a document's fields in Solr.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldNames {
    /// The fields keep their names.
    #[default]
    Plain,
    /// The names get the suffixes of Solr's default dynamic fields: `_t` for text, `_l` for integers, `_s` for the
    /// rest.
    Dynamic,
    /// Only these fields, under these names.
    Listed(Vec<(String, String)>),
}

/// Why a text is not a [`Destination`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// The text does not have the form of any sink.
    #[error("expected -, file:PATH, ndjson:PATH, xml:PATH or solr+http://host:8983/solr/collection")]
    Form,
    /// The path of a file is missing.
    #[error("the path after the colon is missing")]
    NoPath,
    /// The ending of a file's name is not the ending of a known format.
    #[error(
        "the file's name must end in .ndjson, .jsonl or .xml; for another name use ndjson:PATH or xml:PATH"
    )]
    Ending,
    /// The text begins with `solr+` and is not the URL of a collection.
    #[error("expected solr+http://host:8983/solr/collection")]
    Collection,
    /// The user or the password has a character that ends it.
    #[error("in the user and the password, write / as %2F, ? as %3F and # as %23")]
    Login,
    /// The address of a server of the collection is wrong. The error has no password in it.
    #[error("{host}: {error}")]
    Host {
        /// The server.
        host: String,
        /// What is wrong.
        error: <Url as FromStr>::Err,
    },
    /// The value of an option of the collection is not a number.
    #[error("{key}={value}: expected a number")]
    Number {
        /// The option.
        key: String,
        /// The value.
        value: String,
    },
    /// A collection has no such option.
    #[error(
        "{0}: expected commitWithin=MILLISECONDS, commit=true, names=dynamic, fields=ours:theirs,... or \
         patience=SECONDS"
    )]
    Unknown(String),
    /// One name of a pair of field names is missing.
    #[error("fields={0}: a name is missing: expected fields=ours:theirs,... or fields=name,...")]
    NoName(String),
    /// A field would have the name `id`, which is the key of the documents in Solr.
    #[error("fields={0}: the field id is the document's key: expected another name than id")]
    Key(String),
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Destination, DestinationError> {
        if let Some(location) = text.strip_prefix("solr+") {
            return SolrTarget::parse(location).map(Destination::Solr);
        }
        let lines = |format, path: &str| match path {
            "" => Err(DestinationError::NoPath),
            "-" => Ok(Destination::Lines { format, path: None }),
            path => Ok(Destination::Lines { format, path: Some(path.into()) }),
        };
        match text.split_once(':') {
            None if text == "-" => lines(Format::Ndjson, "-"),
            Some(("ndjson", path)) => lines(Format::Ndjson, path),
            Some(("xml", path)) => lines(Format::Xml, path),
            Some(("file", path)) => match Path::new(path).extension().and_then(|e| e.to_str()) {
                Some("ndjson" | "jsonl") => lines(Format::Ndjson, path),
                Some("xml") => lines(Format::Xml, path),
                _ => Err(DestinationError::Ending),
            },
            _ => Err(DestinationError::Form),
        }
    }
}

impl SolrTarget {
    /// `http://[user:password@]host:port[,host:port...]/solr/collection[?option=value&...]`.
    fn parse(location: &str) -> Result<SolrTarget, DestinationError> {
        let expected = || DestinationError::Collection;
        let (scheme, rest) = location.split_once("://").ok_or_else(expected)?;
        if !["http", "https"].contains(&scheme) {
            return Err(expected());
        }
        let (authority, rest) = rest.split_once('/').ok_or_else(expected)?;
        // No collection and no option has an @, so a password with a slash ends here.
        if rest.contains('@') {
            return Err(DestinationError::Login);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        if path.is_empty() || authority.is_empty() {
            return Err(expected());
        }
        let (login, hosts) =
            authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
        let at = if login.is_empty() { "" } else { "@" };
        let parse = |host: &str| {
            Url::parse(&format!("{scheme}://{login}{at}{host}/{path}"))
                .map_err(|error| DestinationError::Host { host: host.to_owned(), error })
        };
        let servers = hosts.split(',').take(SERVERS_MAX).map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut target = SolrTarget {
            servers,
            commit_within: COMMIT_WITHIN,
            commit: false,
            names: FieldNames::default(),
            patience: PATIENCE,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let no_number = |_| DestinationError::Number { key: key.to_owned(), value: value.to_owned() };
            let number = || value.parse::<u64>().map_err(no_number);
            match key {
                "commitWithin" => target.commit_within = Duration::from_millis(number()?),
                "patience" => target.patience = Duration::from_secs(number()?),
                "commit" => target.commit = value == "true",
                "names" if value == "dynamic" => target.names = FieldNames::Dynamic,
                "fields" => target.names = FieldNames::Listed(listed(value)?),
                _ => return Err(DestinationError::Unknown(pair.to_owned())),
            }
        }
        Ok(target)
    }
}

/// Reads pairs from `subject:title_t,body`.
fn listed(text: &str) -> Result<Vec<(String, String)>, DestinationError> {
    let pair = |word: &str| match word.split_once(':').unwrap_or((word, word)) {
        ("", _) | (_, "") => Err(DestinationError::NoName(text.to_owned())),
        (_, "id") => Err(DestinationError::Key(text.to_owned())),
        (ours, theirs) => Ok((ours.to_owned(), theirs.to_owned())),
    };
    text.split(',').map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_a_file_follows_from_its_suffix_or_the_option() {
        let parse = |text: &str| text.parse::<Destination>();
        let lines =
            |format, path: Option<&str>| Ok(Destination::Lines { format, path: path.map(PathBuf::from) });
        assert_eq!(parse("-"), lines(Format::Ndjson, None));
        assert_eq!(parse("xml:-"), lines(Format::Xml, None));
        assert_eq!(parse("file:/a/b.jsonl"), lines(Format::Ndjson, Some("/a/b.jsonl")));
        assert_eq!(parse("file:b.xml"), lines(Format::Xml, Some("b.xml")));
        assert_eq!(parse("ndjson:c:d"), lines(Format::Ndjson, Some("c:d")));
        for bad in [
            "",
            "b.xml",
            "file:",
            "file:b.txt",
            "xml:",
            "solr+ftp://h/solr/c",
            "solr+http://h",
            "solr+http:///c",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_solr_destination_has_servers_and_options() {
        let text =
            "http://u:p@a:1,b:2/solr/c1?commitWithin=5&fields=subject:title,body&commit=true&patience=7";
        let target = SolrTarget::parse(text).unwrap();
        let servers: Vec<_> = target.servers.iter().map(Url::as_str).collect();
        assert_eq!(servers, ["http://u:p@a:1/solr/c1", "http://u:p@b:2/solr/c1"]);
        assert_eq!(
            (target.commit_within, target.patience),
            (Duration::from_millis(5), Duration::from_secs(7))
        );
        let pairs = [("subject", "title"), ("body", "body")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!((target.commit, target.names), (true, FieldNames::Listed(pairs.to_vec())));
        assert_eq!(SolrTarget::parse("https://a/solr/c?names=dynamic").unwrap().names, FieldNames::Dynamic);
        for bad in ["x=1", "commitWithin=x", "fields=", "fields=a:id", "names=odd"] {
            assert!(SolrTarget::parse(&format!("http://a/solr/c?{bad}")).is_err(), "{bad}");
        }
    }
}
