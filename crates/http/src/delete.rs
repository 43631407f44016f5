//! `<delete><query>`: the queries that Strand can answer exactly like Solr: everything, an id, and the value of a
//! field.
//!
//! `field:value` needs a text index over the documents' prefix with this field as TAG or NUMERIC. The index returns
//! candidates, a page at a time. Each candidate is compared with the value before it is deleted, because a TAG
//! field ignores case. Queries on TEXT fields and all other forms are refused: deleting other documents than Solr
//! would is worse than deleting none.

use crate::problem::Problem;
use crate::session_client::{Gone, Value};
use crate::update::{PendingReply, Update};
use crate::xml::{Position, at};

/// Number of keys that one SCAN step visits when everything is deleted.
const SCAN_COUNT: &[u8] = b"1000";
/// Number of documents per search.
const PAGE: &[u8] = b"1000";
/// Maximum number of found documents that differ from the query's value and so are not deleted. FT.SEARCH allows no
/// larger offset.
const MATCHES_MAX: usize = 1_000_000;
/// Maximum number of text indexes that are searched for a field.
const INDEXES_MAX: usize = 256;

/// The type of an indexed field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tag,
    Numeric,
}

impl Update {
    /// Deletes the documents that `query` matches.
    ///
    /// # Errors
    /// 422 when the query has none of the supported forms. Also the errors of the commands.
    pub(crate) async fn remove_found(&mut self, query: &str, place: Position) -> Result<(), Problem> {
        if query == "*:*" {
            return self.remove_all(place).await;
        }
        match parse_term(query) {
            Some(("id", id)) => self.remove(&id, place).await,
            Some((field, value)) => self.remove_with(field, &value, place).await,
            None => Err(refused(place, "this query is not supported: expected *:*, id:... or field:value")),
        }
    }
    async fn remove_all(&mut self, place: Position) -> Result<(), Problem> {
        self.read_replies_until(0).await?;
        let mut pattern = Vec::new();
        for &b in self.prefix() {
            if b"*?[]\\^-".contains(&b) {
                pattern.push(b'\\');
            }
            pattern.push(b);
        }
        pattern.push(b'*');
        let mut cursor = b"0".to_vec();
        loop {
            let scan: [&[u8]; 8] =
                [b"SCAN", &cursor, b"MATCH", &pattern, b"COUNT", SCAN_COUNT, b"TYPE", b"hash"];
            let Value::List(found) = self.ask(&scan).await? else { return Err(Gone.into()) };
            let [Value::Text(next), Value::List(keys)] = found.as_slice() else { return Err(Gone.into()) };
            if !keys.is_empty() {
                let mut args: Vec<&[u8]> = vec![b"UNLINK"];
                args.extend(keys.iter().filter_map(Value::text));
                self.send(&args, PendingReply::Removal(place)).await?;
                self.read_replies_until(0).await?;
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next.clone();
        }
    }
    async fn remove_with(&mut self, field: &str, value: &str, place: Position) -> Result<(), Problem> {
        self.read_replies_until(0).await?;
        let number = value.parse::<f64>().ok().filter(|n| n.is_finite());
        let Some((index, attribute, kind)) = self.index_of(field.as_bytes()).await? else {
            let prefix = String::from_utf8_lossy(self.prefix()).into_owned();
            let detail = format!("no text index over {prefix:?} has the field {field:?} as TAG or NUMERIC");
            return Err(refused(place, &detail));
        };
        let query = match (kind, number) {
            (Kind::Tag, _) => {
                [b"@", escaped(&attribute).as_slice(), b":{", &escaped(value.as_bytes()), b"}"].concat()
            }
            (Kind::Numeric, Some(n)) => {
                [b"@", escaped(&attribute).as_slice(), format!(":[{n} {n}]").as_bytes()].concat()
            }
            (Kind::Numeric, None) => {
                return Err(refused(place, "the value for a NUMERIC field is not a number"));
            }
        };
        let mut kept = 0;
        loop {
            let offset = kept.to_string();
            let search: [&[u8]; 9] = [
                b"FT.SEARCH",
                &index,
                &query,
                b"NOCONTENT",
                b"LIMIT",
                offset.as_bytes(),
                PAGE,
                b"DIALECT",
                b"2",
            ];
            let keys = ids(self.ask(&search).await?);
            for key in &keys {
                let is_meant = key.starts_with(self.prefix())
                    && match self.ask(&[b"HGET", key, field.as_bytes()]).await? {
                        Value::Text(found) => {
                            self.field_matches(&found, value, number.filter(|_| kind == Kind::Numeric))
                        }
                        _ => false,
                    };
                match is_meant {
                    true => self.send(&[b"DEL", key], PendingReply::Removal(place)).await?,
                    false => kept += 1,
                }
                self.read_replies_until(0).await?;
            }
            if keys.is_empty() || kept > MATCHES_MAX {
                return Ok(());
            }
        }
    }
    /// True when the field's text is `value`, or is a list of joined values that contains `value`.
    fn field_matches(&self, found: &[u8], value: &str, number: Option<f64>) -> bool {
        let is_value = |text: &str| match number {
            Some(n) => text.trim().parse::<f64>() == Ok(n),
            None => text == value,
        };
        let Ok(text) = std::str::from_utf8(found) else { return false };
        let separator = std::str::from_utf8(self.separator()).unwrap_or_default();
        is_value(text) || (!separator.is_empty() && text.split(separator).any(is_value))
    }
    /// Finds a text index over all documents that can search `field` by whole values. Returns the index, its name
    /// for the field and the field's type.
    async fn index_of(&mut self, field: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>, Kind)>, Problem> {
        let Value::List(names) = self.ask(&[b"FT._LIST"]).await? else { return Ok(None) };
        for name in names.iter().take(INDEXES_MAX).filter_map(Value::text) {
            let info = self.ask(&[b"FT.INFO", name]).await?;
            let prefixes = info.member(b"index_definition").and_then(|d| d.member(b"prefixes"));
            let covers = |p: &Value| p.text().is_some_and(|p| self.prefix().starts_with(p));
            if !prefixes.is_some_and(|p| p.list().iter().any(covers)) {
                continue;
            }
            for attribute in info.member(b"attributes").map_or(&[][..], Value::list) {
                let of = |name: &[u8]| attribute.member(name).and_then(Value::text);
                let is_searched = !attribute.list().iter().any(|v| v.text() == Some(b"NOINDEX"));
                let kind = match of(b"type") {
                    Some(b"TAG") => Kind::Tag,
                    Some(b"NUMERIC") => Kind::Numeric,
                    _ => continue,
                };
                if of(b"identifier") == Some(field) && is_searched {
                    return Ok(of(b"attribute").map(|a| (name.to_vec(), a.to_vec(), kind)));
                }
            }
        }
        Ok(None)
    }
}

/// The ids in a reply of FT.SEARCH.
fn ids(reply: Value) -> Vec<Vec<u8>> {
    let results = reply.member(b"results").map_or(&[][..], Value::list);
    results.iter().filter_map(|r| r.member(b"id")?.text().map(<[u8]>::to_vec)).collect()
}

/// Splits `field:value` or `field:"a value"`. `None` when the query contains any other syntax.
fn parse_term(query: &str) -> Option<(&str, String)> {
    const SPECIAL: &str = " \t\r\n*?\"\\()[]{}:^~/&|!";
    let (field, value) = query.split_once(':')?;
    let (field, value) = (field.trim(), value.trim());
    let is_name = !field.is_empty() && field.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    if !is_name || field.starts_with(['-', '+']) {
        return None;
    }
    if let Some(quoted) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        // A backslash makes the next character literal.
        let (mut text, mut chars) = (String::new(), quoted.chars());
        while let Some(c) = chars.next() {
            match c {
                '"' => return None,
                '\\' => text.push(chars.next()?),
                c => text.push(c),
            }
        }
        return (!text.is_empty()).then_some((field, text));
    }
    let plain = !value.is_empty() && !value.contains(|c| SPECIAL.contains(c)) && !value.starts_with('+');
    plain.then(|| (field, value.to_string()))
}

/// Puts a backslash before every ASCII character that is not a letter, a digit or an underscore.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &b in text {
        if b.is_ascii() && !b.is_ascii_alphanumeric() && b != b'_' {
            out.push(b'\\');
        }
        out.push(b);
    }
    out
}

/// The problem 422, at the position `place` of the document.
fn refused(place: Position, detail: &str) -> Problem {
    let Position { line, column } = place;
    at(Problem::unprocessable(format!("line {line}, column {column}: {detail}")), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literal_field_queries_are_terms() {
        for (query, want) in [
            ("id:7", Some(("id", "7"))),
            ("id: a-b ", Some(("id", "a-b"))),
            ("id:-7", Some(("id", "-7"))),
            ("cat:\"a \\\"b\\\" * \\\\\"", Some(("cat", "a \"b\" * \\"))),
            ("id:\"\"", None),
            ("id:\"a\" OR id:\"b\"", None),
            ("id:", None),
            ("id:a*", None),
            ("id:a b", None),
            ("id:[1 TO 2]", None),
            ("id:(a)", None),
            ("id:a~", None),
            ("-id:a", None),
            ("id:a^2", None),
            ("id:a:b", None),
            ("id:\"a", None),
            ("*:*", None),
            ("a b:c", None),
            ("{!term f=id}7", None),
            ("", None),
        ] {
            let found = parse_term(query);
            assert_eq!(found.as_ref().map(|(f, v)| (*f, v.as_str())), want, "{query}");
        }
        assert_eq!(escaped("a-b c,\u{e9}_1".as_bytes()), "a\\-b\\ c\\,\u{e9}_1".as_bytes());
    }
}
