//! [`Editor`]: reads a line from a person, with completion by Tab and hints from the command table. Built on
//! reedline.

use crate::help::{HelpEntry, Rows, tokens};
use crate::repl::is_repeat_count;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, Emacs, FileBackedHistory, Hinter, History, HistoryItem,
    HistoryItemId, HistorySessionId, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, SearchQuery, Signal, Span, Suggestion,
    default_emacs_keybindings,
};
use std::borrow::Cow;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strand_wire::inline::words;

/// Maximum number of lines in the history.
const HISTORY_LINES_MAX: usize = 10_000;
/// Permissions of the history's file.
const HISTORY_MODE: u32 = 0o600;
/// Maximum number of suggestions shown at once.
const SUGGESTIONS_MAX: usize = 400;

/// The result of reading a line.
pub enum Line {
    /// The person has entered this line.
    Text(String),
    /// The person has pressed Ctrl-C, which discards the line.
    Abandoned,
    /// The person has pressed Ctrl-D, which ends the input.
    End,
}

/// Reads lines.
pub struct Editor {
    inner: Reedline,
    shows_hints: Arc<AtomicBool>,
}

impl Editor {
    /// An editor with the history of earlier runs, if it is available.
    pub fn new(rows: Rows) -> Editor {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu("completion".into()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let shows_hints = Arc::new(AtomicBool::new(true));
        let menu = ColumnarMenu::default().with_name("completion").with_columns(4);
        let mut inner = Reedline::create()
            .with_completer(Box::new(CommandCompleter(rows)))
            .with_hinter(Box::new(ArgumentHinter { is_shown: shows_hints.clone(), rows }))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_edit_mode(Box::new(Emacs::new(keys)));
        if let Some(file) = history_file() {
            match history(file.clone()) {
                Ok(history) => inner = inner.with_history(Box::new(PasswordFreeHistory(history))),
                Err(error) => complain!("strand: no history: {}: {error}", file.display()),
            }
        }
        Editor { inner, shows_hints }
    }
    /// Turns hints on or off.
    pub fn show_hints(&mut self, is_shown: bool) {
        self.shows_hints.store(is_shown, Ordering::Relaxed);
    }
    /// Reads a line.
    ///
    /// # Errors
    /// Errors of the terminal.
    pub fn read(&mut self, prompt: &str) -> io::Result<Line> {
        Ok(match self.inner.read_line(&PlainPrompt(prompt))? {
            Signal::Success(text) => Line::Text(text),
            Signal::CtrlD => Line::End,
            _ => Line::Abandoned,
        })
    }
}

/// Opens the history. Only the user can read the file, because it may have data and secrets.
fn history(file: PathBuf) -> Result<FileBackedHistory, Box<dyn std::error::Error>> {
    let opened = OpenOptions::new().append(true).create(true).mode(HISTORY_MODE).open(&file)?;
    if opened.metadata()?.is_file() {
        opened.set_permissions(Permissions::from_mode(HISTORY_MODE))?;
    }
    Ok(FileBackedHistory::with_file(HISTORY_LINES_MAX, file)?)
}

/// The file of the history: `STRANDCLI_HISTFILE`, else a file in the home folder. `None` for /dev/null, and when there is
/// no home folder.
fn history_file() -> Option<PathBuf> {
    let file = match std::env::var_os("STRANDCLI_HISTFILE") {
        Some(file) => PathBuf::from(file),
        None => {
            let home = PathBuf::from(std::env::var_os("HOME")?);
            home.is_dir().then(|| home.join(".strandcli_history"))?
        }
    };
    (!file.as_os_str().is_empty() && file.as_os_str() != "/dev/null").then_some(file)
}

/// A prompt that reedline shows unchanged, in the terminal's own colour.
struct PlainPrompt<'a>(&'a str);

impl Prompt for PlainPrompt<'_> {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }
    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

/// Completes names of commands and subcommands, and the literal words of their arguments.
struct CommandCompleter(Rows);

/// The words that may come at the end of `line`, and the offset of the text that they replace.
fn suggestions(rows: Rows, line: &str) -> (usize, Vec<(String, String)>) {
    let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let typed = line[start..].to_ascii_uppercase();
    let before = words(&line.as_bytes()[..start]).unwrap_or_default();
    let keeps_case = |name: &str| match line[start..].starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name.to_ascii_lowercase(),
        false => name.to_string(),
    };
    let asks_for_help = before.first().is_some_and(|w| w.eq_ignore_ascii_case(b"help"));
    let before = if asks_for_help { &before[1..] } else { &before[..] };
    let mut found: Vec<(String, String)> = Vec::new();
    let mut offer = |name: &str, about: &str| {
        if name.starts_with(&typed) {
            found.push((keeps_case(name), about.to_string()));
        }
    };
    if before.is_empty() {
        rows.entries().filter(|e| e.container.is_none()).for_each(|e| offer(&e.name(), e.spec.summary));
    } else if let Some(entry) = rows.find(before) {
        if before.len() == 1 && !entry.spec.subcommands.is_empty() {
            entry.spec.subcommands.iter().for_each(|sub| offer(&sub.name.to_ascii_uppercase(), sub.summary));
        } else if !asks_for_help {
            let mut literal = Vec::new();
            tokens(entry.spec.args, &mut literal);
            literal.sort_unstable();
            literal.dedup();
            literal.into_iter().for_each(|token| offer(token, ""));
        }
    }
    found.truncate(SUGGESTIONS_MAX);
    (start, found)
}

impl Completer for CommandCompleter {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let Some(head) = line.get(..pos) else { return CompletionResult::fresh(Vec::new()) };
        let (start, found) = suggestions(self.0, head);
        let suggestion = |(value, about): (String, String)| Suggestion {
            value,
            description: (!about.is_empty()).then_some(about),
            span: Span::new(start, pos),
            append_whitespace: true,
            ..Suggestion::default()
        };
        CompletionResult::fresh(found.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// Shows the missing arguments of a command in grey.
struct ArgumentHinter {
    is_shown: Arc<AtomicBool>,
    rows: Rows,
}

/// The missing arguments after `line`, in redis-cli's form.
fn missing_arguments(rows: Rows, line: &str) -> String {
    let Some(typed) = words(line.as_bytes()) else { return String::new() };
    let Some(entry) = rows.find(&typed) else { return String::new() };
    let ends_in_space = line.ends_with(char::is_whitespace);
    let syntax = match entry {
        HelpEntry { spec, container: None } if !spec.subcommands.is_empty() => vec!["subcommand".to_string()],
        entry => entry.syntax(),
    };
    let rest: Vec<String> = syntax.into_iter().skip(typed.len() - entry.words()).collect();
    if rest.is_empty() {
        return String::new();
    }
    let space = if ends_in_space { "" } else { " " };
    format!("{space}{}", rest.join(" "))
}

impl Hinter for ArgumentHinter {
    fn handle(&mut self, line: &str, pos: usize, _: &dyn History, coloured: bool, _: &str) -> String {
        if !self.is_shown.load(Ordering::Relaxed) || pos < line.len() {
            return String::new();
        }
        match missing_arguments(self.rows, line) {
            hint if hint.is_empty() || !coloured => hint,
            hint => format!("\u{1b}[90m{hint}\u{1b}[0m"),
        }
    }
    /// A hint cannot be completed, because it names missing arguments.
    fn complete_hint(&self) -> String {
        String::new()
    }
    fn next_hint_token(&self) -> String {
        String::new()
    }
}

/// A history that does not store lines with passwords.
struct PasswordFreeHistory(FileBackedHistory);

/// True for a command with secret arguments.
fn is_sensitive(line: &str) -> bool {
    // The password may be before the quotation mark that is missing.
    let closed = ["", "\"", "'"].map(|end| format!("{line}{end}"));
    let args = closed.iter().find_map(|line| words(line.as_bytes()));
    // Quotation marks inside of a word are an error, but the word may be a password.
    let args = args.unwrap_or_else(|| line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    let is_count = args.first().is_some_and(|word| is_repeat_count(word));
    let args = &args[usize::from(is_count)..];
    let is = |i: usize, word: &str| args.get(i).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()));
    let any = |list: &[&str]| args.iter().any(|a| list.iter().any(|w| a.eq_ignore_ascii_case(w.as_bytes())));
    is(0, "auth")
        || (is(0, "acl") && is(1, "setuser"))
        || (is(0, "config")
            && is(1, "set")
            && any(&["requirepass", "masterauth", "masteruser", "tls-key-file-pass"]))
        || ((is(0, "hello") || is(0, "migrate")) && any(&["auth", "auth2"]))
}

impl History for PasswordFreeHistory {
    fn save(&mut self, item: HistoryItem) -> reedline::Result<HistoryItem> {
        match is_sensitive(&item.command_line) {
            true => Ok(item),
            false => {
                let saved = self.0.save(item);
                // The line is in the file at once, because a signal may end the process. The file was writable when it
                // was opened, and a later failure must not disturb the session.
                let _ = self.0.sync();
                saved
            }
        }
    }
    fn load(&self, id: HistoryItemId) -> reedline::Result<HistoryItem> {
        self.0.load(id)
    }
    fn count(&self, query: SearchQuery) -> reedline::Result<i64> {
        self.0.count(query)
    }
    fn search(&self, query: SearchQuery) -> reedline::Result<Vec<HistoryItem>> {
        self.0.search(query)
    }
    fn update(
        &mut self,
        id: HistoryItemId,
        updater: &dyn Fn(HistoryItem) -> HistoryItem,
    ) -> reedline::Result<()> {
        self.0.update(id, updater)
    }
    fn clear(&mut self) -> reedline::Result<()> {
        self.0.clear()
    }
    fn delete(&mut self, id: HistoryItemId) -> reedline::Result<()> {
        self.0.delete(id)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
    fn session(&self) -> Option<HistorySessionId> {
        self.0.session()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows(strand_engine::TABLE.rows());

    fn offered(line: &str) -> Vec<String> {
        suggestions(ROWS, line).1.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn names_subcommands_and_words_are_completed() {
        assert_eq!(offered("hgeta"), ["hgetall"]);
        assert!(offered("FT.S").contains(&"FT.SEARCH".to_string()));
        assert!(offered("config re").contains(&"rewrite".to_string()));
        assert!(offered("SET k v K").contains(&"KEEPTTL".to_string()));
        assert_eq!(offered("help hgeta"), ["hgetall"]);
        assert!(offered("nosuch x").is_empty() && offered("get \"").is_empty());
    }

    #[test]
    fn hints_show_missing_arguments() {
        assert_eq!(missing_arguments(ROWS, "get"), " key");
        assert_eq!(missing_arguments(ROWS, "get "), "key");
        assert_eq!(missing_arguments(ROWS, "get k"), "");
        assert_eq!(missing_arguments(ROWS, "config"), " subcommand");
        assert_eq!(missing_arguments(ROWS, "config get "), "parameter [parameter ...]");
        assert_eq!(missing_arguments(ROWS, "nosuch "), "");
    }

    #[test]
    fn passwords_are_not_remembered() {
        for line in [
            "AUTH x",
            "acl setuser a >b",
            "config set requirepass x",
            "hello 3 auth a b",
            "2 auth x",
            "-1 auth x",
            "auth 'pa'ss",
            "auth \"x",
        ] {
            assert!(is_sensitive(line), "{line}");
        }
        assert!(!is_sensitive("config set maxmemory 1") && !is_sensitive("set auth x"));
    }
}
