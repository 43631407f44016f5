//! Listings of object stores as no store should send them: keys out of order, a key twice, endless pages.

use crate::fake::{Fake, counts};
use crate::files::mail;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use strand_import::source::remote::versions::Moment;
use strand_import::{ImportError, ImportOptions, Progress, RemoteOptions, Silent, Summary};

/// One page of a listing, and the token of the page after it.
#[derive(Clone, Copy)]
struct Page {
    token: &'static str,
    keys: &'static [&'static str],
    folders: &'static [&'static str],
    next: Option<&'static str>,
}

const fn page(token: &'static str, keys: &'static [&'static str], next: Option<&'static str>) -> Page {
    Page { token, keys, folders: &[], next }
}

/// An object store with one bucket, which answers list requests from fixed pages.
struct Store {
    endpoint: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pages: Vec<Page>,
    /// The pages of the listing of versions, by the `key-marker` that asks for them. None: [`VERSIONS_WITHOUT_END`].
    versions: Vec<(&'static str, String)>,
    listings: usize,
    bodies: usize,
}

impl Store {
    fn start(pages: &[Page]) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let state = Arc::new(Mutex::new(State { pages: pages.to_vec(), ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = shared.clone();
                // Errors are ignored: the client may close the connection before the answer.
                std::thread::spawn(move || answer(connection, &shared));
            }
        });
        Store { endpoint, state }
    }

    fn import(&self, fake: &Fake, cutoff: Option<usize>) -> Result<Summary, String> {
        self.import_as_of(fake, cutoff, None)
    }

    fn import_as_of(
        &self,
        fake: &Fake,
        list_cutoff: Option<usize>,
        as_of: Option<Moment>,
    ) -> Result<Summary, String> {
        let remote = RemoteOptions { list_cutoff, as_of, ..self.options() };
        let options = ImportOptions { remote, ..fake.options(Path::new("s3://data")) };
        strand_import::run(&options, &mut Silent).map_err(|error| error.to_string())
    }

    fn options(&self) -> RemoteOptions {
        RemoteOptions { endpoint: Some(self.endpoint.clone()), anonymous: true, ..RemoteOptions::default() }
    }

    /// Imports the prefix `prefix`. Returns the warnings, too.
    fn import_prefix(&self, fake: &Fake, prefix: &str) -> Result<(Summary, Vec<String>), ImportError> {
        let source = format!("s3://data/{prefix}");
        let options = ImportOptions { remote: self.options(), ..fake.options(Path::new(&source)) };
        let mut warnings = Warnings::default();
        let summary = strand_import::run(&options, &mut warnings)?;
        Ok((summary, warnings.0))
    }
}

/// Keeps the warnings of a run.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Progress for Warnings {
    fn warning(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn answer(connection: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(&connection);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    let mut state = state.lock().expect("no panic");
    let body = match target.split_once('?') {
        Some((_, query)) if query.ends_with("&versions=") => {
            state.listings += 1;
            let asked =
                query.split('&').find_map(|word| word.strip_prefix("key-marker=")).unwrap_or_default();
            let page = state.versions.iter().find(|(marker, _)| *marker == asked);
            page.map_or_else(|| VERSIONS_WITHOUT_END.to_owned(), |(_, page)| page.clone())
        }
        Some((_, query)) if query.starts_with("versionId=") => {
            state.bodies += 1;
            mail(query.trim_start_matches("versionId="), "text")
        }
        Some((_, query)) => {
            state.listings += 1;
            let asked = |name: &str| query.split('&').find_map(|word| word.strip_prefix(name));
            let prefix = asked("prefix=").unwrap_or_default().replace("%2F", "/");
            let token = asked("continuation-token=").unwrap_or_default();
            let found = state.pages.iter().find(|page| page.token == format!("{prefix}{token}"));
            listing(*found.expect("a page that an earlier page named"))
        }
        None => {
            state.bodies += 1;
            mail(target.trim_start_matches("/data/"), "text")
        }
    };
    drop(state);
    let date = "Last-Modified: Mon, 23 Nov 2020 12:00:00 GMT\r\nETag: \"1\"";
    let head =
        format!("HTTP/1.1 200 OK\r\n{date}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    (&connection).write_all(format!("{head}{body}").as_bytes())
}

fn listing(page: Page) -> String {
    let key = |key: &&str| {
        let size = mail(key, "text").len();
        let facts = format!("<Size>{size}</Size><LastModified>2020-11-23T12:00:00.000Z</LastModified>");
        format!("<Contents><Key>{key}</Key><ETag>\"1\"</ETag>{facts}</Contents>")
    };
    let keys: String = page.keys.iter().map(key).collect();
    let folder = |folder: &&str| format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    let folders: String = page.folders.iter().map(folder).collect();
    let next = page.next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    let (next, is_cut) = (next.unwrap_or_default(), page.next.is_some());
    format!("<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{next}{keys}{folders}</ListBucketResult>")
}

/// A page of versions that names itself as the next page.
const VERSIONS_WITHOUT_END: &str = "<ListVersionsResult><IsTruncated>true</IsTruncated>\
    <NextKeyMarker>a.eml</NextKeyMarker><NextVersionIdMarker>1</NextVersionIdMarker></ListVersionsResult>";

const OUT_OF_ORDER: [Page; 3] = [
    Page { token: "", keys: &["z.eml", "b.eml"], folders: &["sub/"], next: Some("2") },
    Page { token: "2", keys: &["m.eml", "a.eml"], folders: &["sub/"], next: None },
    Page { token: "sub/", keys: &["sub/y.eml", "sub/x.eml"], folders: &[], next: None },
];

#[test]
fn keys_out_of_order_are_sorted() {
    for cutoff in [None, Some(2)] {
        let store = Store::start(&OUT_OF_ORDER);
        let fake = Fake::start();
        let added = store.import(&fake, cutoff).expect("nothing goes wrong");
        assert_eq!(counts(&added).0, [6, 0, 0, 0, 0], "{cutoff:?}: {:?}", added.failed_documents);
        assert_eq!(fake.ids(), ["a.eml", "b.eml", "m.eml", "sub/x.eml", "sub/y.eml", "z.eml"], "{cutoff:?}");
        for id in fake.ids() {
            assert_eq!(fake.field(&id, "subject").as_deref(), Some(&id[..]), "{cutoff:?}");
        }
        // The same keys in another order are no change.
        {
            let mut state = store.state.lock().expect("no panic");
            (state.pages[0].keys, state.pages[1].keys) = (&["a.eml", "m.eml"], &["z.eml", "b.eml"]);
        }
        let again = store.import(&fake, cutoff).expect("nothing goes wrong");
        assert_eq!(counts(&again).0, [0, 0, 0, 6, 0], "{cutoff:?}");
        assert_eq!(store.state.lock().expect("no panic").bodies, 6, "{cutoff:?}");
    }
}

#[test]
fn an_inconsistent_listing_changes_nothing() {
    let broken: [(&[Page], &str); 3] = [
        (&[page("", &["a.eml", "b.eml"], Some("2")), page("2", &["a.eml"], None)], "twice"),
        (&[page("", &["a.eml"], Some("2")), page("2", &[], Some("2"))], "an earlier page"),
        (
            &[
                page("", &["a.eml"], Some("2")),
                page("2", &[], Some("3")),
                page("3", &[], Some("4")),
                page("4", &[], Some("2")),
            ],
            "an earlier page",
        ),
    ];
    for (pages, said) in broken {
        for cutoff in [None, Some(1)] {
            let store = Store::start(&OUT_OF_ORDER);
            let fake = Fake::start();
            store.import(&fake, cutoff).expect("nothing goes wrong");
            let before = fake.state().keys.clone();
            {
                let mut state = store.state.lock().expect("no panic");
                (state.pages, state.listings) = (pages.to_vec(), 0);
            }
            let error = store.import(&fake, cutoff).expect_err("the listing is not believed");
            assert!(error.contains(said) && error.contains("s3://data"), "{error}");
            assert_eq!(fake.state().keys, before, "{said}");
            let listings = store.state.lock().expect("no panic").listings;
            assert!(listings < 20, "{listings} pages were asked for");
            // When the store answers correctly again, the import works again.
            store.state.lock().expect("no panic").pages = OUT_OF_ORDER.to_vec();
            let again = store.import(&fake, cutoff).expect("nothing goes wrong");
            assert_eq!(counts(&again).0, [0, 0, 0, 6, 0], "{said}");
        }
    }
}

#[test]
fn an_endless_listing_of_versions_changes_nothing() {
    let store = Store::start(&OUT_OF_ORDER);
    let fake = Fake::start();
    store.import(&fake, None).expect("nothing goes wrong");
    let before = fake.state().keys.clone();
    store.state.lock().expect("no panic").listings = 0;
    let error = store
        .import_as_of(&fake, None, Some(Moment { seconds: 2_000_000_000, nanoseconds: 0 }))
        .expect_err("the listing is not believed");
    assert!(error.contains("an earlier page"), "{error}");
    assert_eq!((store.state.lock().expect("no panic").listings, &fake.state().keys), (2, &before));
}

#[test]
fn versions_count_by_milliseconds() {
    let store = Store::start(&[]);
    let version = |id: &str, milliseconds: u32| {
        let size = mail(id, "text").len();
        format!(
            "<Version><Key>a.eml</Key><VersionId>{id}</VersionId><ETag>\"1\"</ETag><Size>{size}</Size>\
             <LastModified>2020-11-23T12:00:00.{milliseconds:03}Z</LastModified></Version>"
        )
    };
    let versions = [version("v3", 300), version("v2", 299), version("v1", 0)].concat();
    let page = format!("<ListVersionsResult><IsTruncated>false</IsTruncated>{versions}</ListVersionsResult>");
    store.state.lock().expect("no panic").versions = vec![("", page)];
    for (nanoseconds, expected) in [(0, "v1"), (298_999_999, "v1"), (299_000_000, "v2"), (300_000_000, "v3")]
    {
        let fake = Fake::start();
        let moment = Moment { seconds: 1_606_132_800, nanoseconds };
        store.import_as_of(&fake, None, Some(moment)).expect("nothing goes wrong");
        assert_eq!(fake.field("a.eml", "subject").as_deref(), Some(expected), "{nanoseconds}");
    }
}

#[test]
fn a_deleted_object_is_not_imported_from_the_past() {
    let store = Store::start(&[]);
    let facts = |key: &str, second: u32| {
        let time = format!("<LastModified>2020-11-23T12:00:{second:02}Z</LastModified>");
        format!("<Key>{key}</Key><VersionId>{key}-{second}</VersionId>{time}")
    };
    let version = |key: &str, second: u32| {
        let size = mail(&format!("{key}-{second}"), "text").len();
        format!("<Version>{}<ETag>\"1\"</ETag><Size>{size}</Size></Version>", facts(key, second))
    };
    let marker = |key: &str, second: u32| format!("<DeleteMarker>{}</DeleteMarker>", facts(key, second));
    let page = |next: Option<&str>, versions: &[String]| {
        let is_cut = next.is_some();
        let next = next.map(|key| format!("<NextKeyMarker>{key}</NextKeyMarker>")).unwrap_or_default();
        let head = format!("<IsTruncated>{is_cut}</IsTruncated>{next}");
        format!("<ListVersionsResult>{head}{}</ListVersionsResult>", versions.concat())
    };
    // The keys a and c are deleted at second 2. The versions of c are on two pages.
    let (a, b, c, d) = (version("a", 1), version("b", 1), version("c", 1), version("d", 1));
    let (a_gone, c_gone) = (marker("a", 2), marker("c", 2));
    let in_a_row =
        [page(Some("c"), &[a_gone.clone(), a.clone(), b.clone(), c_gone.clone()]), page(None, &[c, d])];
    let markers_first =
        [page(Some("c"), &[a_gone.clone(), c_gone.clone(), a.clone(), b.clone()]), in_a_row[1].clone()];
    let markers_last = [page(Some("c"), &[a, b, a_gone, c_gone]), in_a_row[1].clone()];
    for [first, second] in [in_a_row, markers_first, markers_last] {
        store.state.lock().expect("no panic").versions = vec![("", first), ("c", second)];
        for (seconds, expected) in [(1, &["a", "b", "c", "d"][..]), (2, &["b", "d"])] {
            let fake = Fake::start();
            let moment = Moment { seconds: 1_606_132_800 + seconds, nanoseconds: 0 };
            let summary = store.import_as_of(&fake, None, Some(moment)).expect("nothing goes wrong");
            assert_eq!(
                (summary.failed, fake.ids()),
                (0, expected.iter().map(|id| (*id).to_owned()).collect())
            );
        }
    }
}

#[test]
fn a_prefix_without_keys_is_an_object_or_a_mistake() {
    let none = |token| Page { token, keys: &[], folders: &[], next: None };
    let store = Store::start(&[
        none("a.eml/"),
        page("a.eml", &["a.eml", "a.eml.bak"], None),
        none("typo/"),
        page("typo", &["typo2.eml"], None),
        page("full/", &["full/a.eml"], None),
    ]);
    let fake = Fake::start();
    let error = store.import_prefix(&fake, "a.eml").expect_err("an object is no prefix").to_string();
    assert!(error.contains("s3://data/a.eml: SOURCE is an object"), "{error}");
    let (summary, warnings) = store.import_prefix(&fake, "typo/").expect("nothing goes wrong");
    assert_eq!((counts(&summary).0, warnings), ([0; 5], vec!["no key begins with \"typo/\"".to_owned()]));
    let (summary, warnings) = store.import_prefix(&fake, "full").expect("nothing goes wrong");
    assert_eq!((summary.added, warnings), (1, Vec::new()));
}

#[test]
fn an_object_whose_key_ends_in_a_slash_has_failed() {
    let store = Store::start(&[
        Page { token: "", keys: &["a.eml"], folders: &["notes/"], next: None },
        page("notes/", &["notes/", "notes/b.eml"], None),
    ]);
    let fake = Fake::start();
    let summary = store.import(&fake, None).expect("nothing goes wrong");
    assert_eq!((summary.failed, fake.ids()), (1, vec!["a.eml".to_owned(), "notes/b.eml".to_owned()]));
    assert!(summary.failed_documents[0].reason.contains("ends in a slash"), "{:?}", summary.failed_documents);
}
