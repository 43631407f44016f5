//! [`Query`]: the query of a URI, as an ordered list of names with or without a value. Writing a parsed query
//! restores it.

use crate::problem::Problem;
use crate::text;

/// Maximum number of parameters of one query.
pub const PARAMETERS_MAX: usize = 256;

/// The parsed query of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The names of the parameters with their values. The query `a` has no value for `a`, and `a=` has an empty one.
    pairs: Vec<(String, Option<String>)>,
}

impl Query {
    /// Parses the part of a URI after the `?`.
    ///
    /// # Errors
    /// 400 when the encoding is invalid, the text is not UTF-8, or there are too many parameters.
    pub fn parse(text: &str) -> Result<Query, Problem> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(Problem::bad_request(format!("more than {PARAMETERS_MAX} query parameters")));
            }
            pairs.push(match pair.split_once('=') {
                Some((name, value)) => (decode(name)?, Some(decode(value)?)),
                None => (decode(pair)?, None),
            });
        }
        Ok(Query { pairs })
    }
    /// The value of the first parameter `name`; empty when the parameter has no value.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_deref().unwrap_or_default())
    }
    /// The value of `name`, which is required.
    ///
    /// # Errors
    /// 400 when the parameter is missing.
    pub fn require(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::bad_request(format!("the query parameter `{name}` is missing")))
    }
    /// The number in `name`, or `default`.
    ///
    /// # Errors
    /// 400 when the value is not a number from `least` to `most`.
    pub fn number(&self, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|n| plain && (least..=most).contains(n));
        number.ok_or_else(|| bad_parameter(name, text, &format!("a number from {least} to {most}")))
    }
    /// The whole number in `name` as text, if `name` is present.
    ///
    /// # Errors
    /// 400 when the value is not a whole number.
    pub fn integer(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.get(name) {
            Some(text) if text.parse::<i64>().is_err() => Err(bad_parameter(name, text, "a whole number")),
            value => Ok(value),
        }
    }
    /// True when `name` is present without a value or as `true`, `yes` or `1`.
    ///
    /// # Errors
    /// 400 for any value but these and `false`, `no` or `0`.
    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            Some("" | "true" | "yes" | "1") => Ok(true),
            None | Some("false" | "no" | "0") => Ok(false),
            Some(other) => Err(bad_parameter(name, other, "true or false")),
        }
    }
    /// Sets the parameter `name` to `value`. A parameter that exists keeps its place in the query.
    pub fn with(mut self, name: &str, value: String) -> Query {
        match self.pairs.iter_mut().find(|(n, _)| n == name) {
            Some(pair) => pair.1 = Some(value),
            None => self.pairs.push((name.into(), Some(value))),
        }
        self
    }
    /// The query as text, for a URI.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.pairs {
            if !text.is_empty() {
                text.push('&');
            }
            text.extend(form_urlencoded::byte_serialize(name.as_bytes()));
            if let Some(value) = value {
                text.push('=');
                text.extend(form_urlencoded::byte_serialize(value.as_bytes()));
            }
        }
        text
    }
}

fn decode(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    let decoded = text::percent_decode(&spaced, "query")?;
    String::from_utf8(decoded).map_err(|_| Problem::bad_request("the query is not UTF-8"))
}

/// The problem of a parameter that has another value than those that are `expected`.
pub fn bad_parameter(name: &str, value: &str, expected: &str) -> Problem {
    Problem::bad_request(format!("the query parameter `{name}` is {value:?}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_without_a_value_differ_from_empty_parameters() {
        for text in ["a&b=1", "a=&b", "a", "", "x=1&x=2&x", "q=a%26b%3Dc&%26", "sp=a+b"] {
            assert_eq!(Query::parse(text).expect("UTF-8").text(), text);
        }
        let query = Query::parse("nocase&limit=7&q=%C3%A9+x").expect("UTF-8");
        assert_eq!((query.flag("nocase").unwrap(), query.flag("other").unwrap()), (true, false));
        assert_eq!((query.number("limit", 10, 1, 9).unwrap(), query.get("q")), (7, Some("é x")));
        assert!(query.number("limit", 10, 1, 6).is_err() && query.require("zz").is_err());
        assert_eq!(query.with("limit", "8".into()).text(), "nocase&limit=8&q=%C3%A9+x");
        assert!(["%", "a=%4", "%zz"].iter().all(|text| Query::parse(text).is_err()));
        assert!(Query::parse("%ff").is_err() && Query::parse(&"a&".repeat(300)).is_err());
    }

    proptest! {
        #[test]
        fn a_written_query_parses_back(pairs in prop::collection::vec((".{0,8}", prop::option::of(".{0,8}")), 0..8)) {
            // Skip an empty name without a value, which produces no text.
            let pairs: Vec<(String, Option<String>)> =
                pairs.into_iter().filter(|(n, v)| !n.is_empty() || v.is_some()).collect();
            let query = Query { pairs };
            prop_assert_eq!(Query::parse(&query.text()).expect("our own"), query);
        }
    }
}
