//! [`parse`]: a recursive-descent parser for the query language, DIALECT 2.
//!
//! ```text
//! or    := and ('|' and)*
//! and   := unary+
//! unary := '-' unary | '~' unary | atom
//! atom  := '*' | '(' or ')' | term | term'*' | '*'term | '*'term'*' | '%'term'%' | '"' words '"'
//!        | '@'name('|'name)* ':' ( unary | '{' tag ('|' tag)* '}' | '[' limit limit ']' )
//! term  := word | '$'name
//! ```
//! Other punctuation separates words, as in a text. Length, depth and number of nodes are limited.

use super::*;
use crate::error::SearchError;
use crate::schema::parse_number;
use crate::tokenizer::is_separator;
use std::collections::HashMap;

/// Parses a query. `params` are the values of PARAMS.
///
/// # Errors
/// The byte offset and the token that does not fit.
pub(crate) fn parse(query: &str, params: &HashMap<&[u8], &[u8]>) -> Result<Node, SearchError> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(SearchError::QueryLimit {
            what: "Query length",
            max: QUERY_BYTES_MAX,
            offset: QUERY_BYTES_MAX,
        });
    }
    let mut parser = Parser { text: query, at: 0, last: (0, 0), nodes: 0, depth: 0, params, param_bytes: 0 };
    parser.skip();
    if parser.at == query.len() {
        return Err(parser.unexpected());
    }
    let node = parser.or()?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.unexpected()),
    }
}

struct Parser<'q> {
    text: &'q str,
    at: usize,
    /// Byte range of the last token. An error at the end of the query names this token.
    last: (usize, usize),
    nodes: usize,
    depth: usize,
    params: &'q HashMap<&'q [u8], &'q [u8]>,
    /// Number of bytes of all parameter values used so far.
    param_bytes: usize,
}

impl Parser<'_> {
    fn or(&mut self) -> Result<Node, SearchError> {
        let mut any = vec![self.and()?];
        while self.takes('|') {
            any.push(self.and()?);
        }
        Ok(if any.len() == 1 { any.swap_remove(0) } else { Node::Or(any) })
    }

    fn and(&mut self) -> Result<Node, SearchError> {
        let mut all = vec![self.unary()?];
        while !matches!(self.peek(), None | Some('|' | ')')) {
            all.push(self.unary()?);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::And(all) })
    }

    fn unary(&mut self) -> Result<Node, SearchError> {
        self.descend()?;
        let node = match self.peek() {
            Some('-') => {
                self.token(1);
                Node::Not(Box::new(self.unary()?))
            }
            Some('~') => {
                self.token(1);
                Node::Optional(Box::new(self.unary()?))
            }
            _ => self.atom()?,
        };
        self.depth -= 1;
        if self.text[self.at..].trim_start().starts_with("=>") {
            self.skip();
            return Err(SearchError::NotInQueries {
                what: "=> (query attributes, vector search)",
                offset: self.at,
            });
        }
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, SearchError> {
        match self.peek() {
            Some('(') => {
                self.token(1);
                let node = self.or()?;
                self.expect(')')?;
                Ok(node)
            }
            Some('"') => self.phrase('"'),
            Some('\'') => self.phrase('\''),
            Some('@') => self.field(),
            Some('%') => self.fuzzy(),
            Some('*') => {
                let start = self.at;
                self.token(1);
                match self.adjacent_term()? {
                    None if self.at == start + 1 => {
                        self.count_node()?;
                        Ok(Node::All)
                    }
                    None => Err(self.unexpected()),
                    Some(w) if self.takes_adjacent('*') => Ok(Node::Affix(AffixKind::Infix, w)),
                    Some(w) => Ok(Node::Affix(AffixKind::Suffix, w)),
                }
            }
            Some('$') => {
                let start = self.at;
                let value = self.param()?;
                match self.takes_adjacent('*') {
                    true => Ok(Node::Affix(AffixKind::Prefix, self.escaped(&value, start)?)),
                    false => Ok(Node::Word(value)),
                }
            }
            Some(c) if begins_word(c) => {
                self.refuse_wildcard()?;
                let word = self.adjacent_word()?.ok_or_else(|| self.unexpected())?;
                if self.takes_adjacent('*') {
                    return Ok(Node::Affix(AffixKind::Prefix, word));
                }
                Ok(Node::Word(word))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Parses `@a|b:`, and the expression to which it applies.
    fn field(&mut self) -> Result<Node, SearchError> {
        let mut names = Vec::new();
        self.token(1);
        loop {
            let offset = self.at;
            let name = self.adjacent_word()?.ok_or_else(|| self.unexpected())?;
            names.push(FieldName { name, offset });
            if !self.takes('|') {
                break;
            }
            self.skip();
        }
        self.expect(':')?;
        match self.peek() {
            Some('{') => {
                let name = self.single_name(names)?;
                self.tags(name)
            }
            Some('[') => {
                let name = self.single_name(names)?;
                self.range(name)
            }
            Some('|' | ')') | None => Err(self.unexpected()),
            Some(_) => Ok(Node::In(names, Box::new(self.unary()?))),
        }
    }

    /// The only name in `names`. Tags and ranges take a single field.
    fn single_name(&self, mut names: Vec<FieldName>) -> Result<FieldName, SearchError> {
        if names.len() > 1 {
            return Err(self.unexpected());
        }
        Ok(names.swap_remove(0))
    }

    fn tags(&mut self, name: FieldName) -> Result<Node, SearchError> {
        self.token(1);
        let mut values = Vec::new();
        loop {
            values.push(self.tag_value()?);
            self.count_node()?;
            match self.text[self.at..].chars().next() {
                Some('|') => self.token(1),
                Some('}') => break self.token(1),
                _ => return Err(self.unexpected()),
            }
        }
        Ok(Node::Tag(name, values))
    }

    /// Parses one value up to an unescaped `|` or `}`. Blanks around it are ignored.
    fn tag_value(&mut self) -> Result<TagValue, SearchError> {
        self.blanks();
        let start = self.at;
        self.refuse_wildcard()?;
        let follows = self.rest().starts_with("*$");
        if follows {
            self.token(1);
        }
        if self.rest().starts_with('$') {
            let value = self.param()?;
            let goes_on = self.takes_adjacent('*');
            self.blanks();
            if value.is_empty() && (follows || goes_on) {
                return Err(self.unexpected());
            }
            return Ok(TagValue::of(value, follows, goes_on));
        }
        if let Some(quote @ ('"' | '\'')) = self.rest().chars().next()
            && let Some(Node::Phrase(value)) = self.try_phrase(quote)
        {
            self.blanks();
            return Ok(TagValue::Exact(value));
        }
        let (mut value, mut trimmed) = (String::new(), 0);
        let (mut open_before, mut open_after) = (false, false);
        let mut chars = self.rest().char_indices().peekable();
        let mut end = self.text.len() - start;
        while let Some((i, c)) = chars.next() {
            if matches!(c, '|' | '}') {
                end = i;
                break;
            }
            if open_after && !c.is_whitespace() {
                // A star in the middle of a value must be escaped.
                self.at = start + i;
                return Err(self.unexpected());
            }
            match c {
                '\\' => match chars.next() {
                    Some((_, next)) => {
                        value.push(next);
                        trimmed = value.len();
                    }
                    None => break,
                },
                '*' if value.is_empty() && !open_before => open_before = true,
                '*' => open_after = true,
                c => {
                    value.push(c);
                    if !c.is_whitespace() {
                        trimmed = value.len();
                    }
                }
            }
        }
        self.last = (start, start + end);
        self.at = start + end;
        value.truncate(trimmed);
        if value.is_empty() {
            return Err(self.unexpected());
        }
        Ok(TagValue::of(value, open_before, open_after))
    }

    fn range(&mut self, name: FieldName) -> Result<Node, SearchError> {
        self.token(1);
        let min = self.limit()?;
        self.blanks();
        if self.rest().starts_with(',') {
            self.token(1);
        }
        let max = self.limit()?;
        self.blanks();
        self.expect(']')?;
        Ok(Node::Range(name, min, max))
    }

    fn limit(&mut self) -> Result<Limit, SearchError> {
        self.blanks();
        let exclusive = self.rest().starts_with('(');
        if exclusive {
            self.token(1);
            self.blanks();
        }
        let value = if self.rest().starts_with('$') {
            let offset = self.at;
            let text = self.param()?;
            let near = self.text[offset..self.at].to_string();
            parse_number(text.as_bytes()).ok_or(SearchError::Syntax { offset, near })?
        } else {
            let len = self
                .rest()
                .find(|c: char| c.is_whitespace() || "],()[{}".contains(c))
                .unwrap_or(self.rest().len());
            let value = parse_number(&self.rest().as_bytes()[..len]).ok_or_else(|| self.unexpected())?;
            self.token(len);
            value
        };
        Ok(Limit { value, exclusive })
    }

    fn fuzzy(&mut self) -> Result<Node, SearchError> {
        let start = self.at;
        let mut distance = 0;
        while self.takes_adjacent('%') {
            distance += 1;
        }
        let word = self.adjacent_term()?.ok_or_else(|| self.unexpected())?;
        for _ in 0..distance {
            if !self.takes_adjacent('%') {
                return Err(self.unexpected());
            }
        }
        if distance > FUZZY_DISTANCE_MAX {
            return Err(SearchError::QueryLimit {
                what: "Fuzzy distance",
                max: FUZZY_DISTANCE_MAX,
                offset: start,
            });
        }
        if word.len() > FUZZY_BYTES_MAX {
            return Err(SearchError::QueryLimit {
                what: "Fuzzy term length",
                max: FUZZY_BYTES_MAX,
                offset: start,
            });
        }
        Ok(Node::Fuzzy(distance as u8, word))
    }

    fn phrase(&mut self, quote: char) -> Result<Node, SearchError> {
        self.count_node()?;
        match self.try_phrase(quote) {
            Some(node) => Ok(node),
            None => Err(self.unexpected()),
        }
    }

    /// Parses a quoted phrase if its closing quote exists. Escapes are left to the tokenizer, except an escaped
    /// quote.
    fn try_phrase(&mut self, quote: char) -> Option<Node> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            if c == quote {
                self.token(i + 1);
                return Some(Node::Phrase(text));
            }
            text.push(c);
            if c == '\\' {
                text.extend(chars.next().map(|(_, c)| c));
            }
        }
        None
    }

    /// The value of the parameter `$name`.
    fn param(&mut self) -> Result<String, SearchError> {
        self.token(1);
        let len = self.rest().find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest().len());
        if len == 0 {
            return Err(self.unexpected());
        }
        let name = &self.rest()[..len];
        let value =
            self.params.get(name.as_bytes()).ok_or_else(|| SearchError::NoSuchParameter(name.to_string()))?;
        self.param_bytes += value.len();
        if self.param_bytes > QUERY_BYTES_MAX {
            return Err(SearchError::QueryLimit {
                what: "Length of all parameters",
                max: QUERY_BYTES_MAX,
                offset: self.at,
            });
        }
        let value = crate::error::lossy(value);
        self.count_node()?;
        self.token(len);
        Ok(value)
    }

    /// Parses the word or the parameter that starts exactly here: what `*` and `%` apply to.
    fn adjacent_term(&mut self) -> Result<Option<String>, SearchError> {
        if !self.rest().starts_with('$') {
            return self.adjacent_word();
        }
        let start = self.at;
        let value = self.param()?;
        self.escaped(&value, start).map(Some)
    }

    /// A parameter's value in the form of [`Parser::adjacent_word`]. `start` is where the parameter is named.
    fn escaped(&self, value: &str, start: usize) -> Result<String, SearchError> {
        if value.is_empty() {
            return Err(SearchError::Syntax { offset: start, near: self.text[start..self.at].to_string() });
        }
        Ok(value.replace('\\', "\\\\"))
    }

    /// RediSearch's wildcard queries: `w'te?t'`.
    fn refuse_wildcard(&self) -> Result<(), SearchError> {
        match self.rest().strip_prefix("w'") {
            Some(pattern) if pattern.contains('\'') => {
                Err(SearchError::NotSupported("a wildcard query (w'...')".into()))
            }
            _ => Ok(()),
        }
    }

    /// Parses the word that starts exactly here, without white space before it. Escapes become `\c` pairs for the
    /// tokenizer.
    fn adjacent_word(&mut self) -> Result<Option<String>, SearchError> {
        let mut word = String::new();
        let mut len = 0;
        let mut chars = self.rest().chars();
        while let Some(c) = chars.next() {
            if c == '\\' {
                let Some(next) = chars.next() else { break };
                word.push(c);
                word.push(next);
                len += 1 + next.len_utf8();
            } else if is_separator(c) {
                break;
            } else {
                word.push(c);
                len += c.len_utf8();
            }
        }
        if len == 0 {
            return Ok(None);
        }
        self.count_node()?;
        self.token(len);
        Ok(Some(word))
    }

    /// Skips `c` if it is the next character. Returns whether it was.
    fn takes_adjacent(&mut self, c: char) -> bool {
        let yes = self.rest().starts_with(c);
        if yes {
            self.token(c.len_utf8());
        }
        yes
    }

    fn takes(&mut self, c: char) -> bool {
        let yes = self.peek() == Some(c);
        if yes {
            self.token(c.len_utf8());
        }
        yes
    }

    fn expect(&mut self, c: char) -> Result<(), SearchError> {
        if self.takes(c) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The next character that is neither white space nor punctuation that only separates words.
    fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    /// Skips white space, and punctuation that only separates words.
    fn skip(&mut self) {
        while let Some(c) = self.rest().chars().next() {
            let is_token = match c {
                '=' => self.rest().starts_with("=>"),
                // An apostrophe that no second apostrophe follows is punctuation.
                '\'' => self.rest()[1..].contains('\''),
                '\\' => self.rest().len() > 1,
                _ => "\"()[]{}|-~*%@:;$".contains(c) || !is_separator(c),
            };
            if is_token {
                break;
            }
            self.at += c.len_utf8();
        }
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Skips a token of `len` bytes.
    fn token(&mut self, len: usize) {
        self.last = (self.at, self.at + len);
        self.at += len;
    }

    fn descend(&mut self) -> Result<(), SearchError> {
        self.depth += 1;
        if self.depth > QUERY_DEPTH_MAX {
            return Err(SearchError::QueryLimit {
                what: "Query depth",
                max: QUERY_DEPTH_MAX,
                offset: self.at,
            });
        }
        Ok(())
    }

    fn count_node(&mut self) -> Result<(), SearchError> {
        self.nodes += 1;
        if self.nodes > QUERY_NODES_MAX {
            return Err(SearchError::QueryLimit {
                what: "Query terms",
                max: QUERY_NODES_MAX,
                offset: self.at,
            });
        }
        Ok(())
    }

    /// The error for the current token, or for the last token at the end of the query.
    fn unexpected(&self) -> SearchError {
        let rest = self.rest().trim_start();
        let offset = self.text.len() - rest.len();
        let (offset, near) = if rest.is_empty() {
            (self.last.0, &self.text[self.last.0..self.last.1])
        } else {
            let word = rest.find(is_separator).unwrap_or(rest.len());
            let len = if word == 0 { rest.chars().next().map_or(0, char::len_utf8) } else { word };
            (offset, &rest[..len])
        };
        SearchError::Syntax { offset, near: near.to_string() }
    }
}

fn begins_word(c: char) -> bool {
    !is_separator(c) || c == '\\'
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
