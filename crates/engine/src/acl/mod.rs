//! Access control: which users may run which commands on which keys.
//!
//! [`Acl`] holds the users by name. A [`User`] is immutable: a rule replaces it with a new one. So a session keeps
//! its own `Arc` and checks without a lock. A user's rights are a set of [`Selector`]s. Each has a bit for every row
//! of the command table, and patterns for keys. [`AclLog`] records denials, [`Logins`] slows down password guessing.
//! Rules, texts and errors are redis-server's. This module handles text only; the driver handles files.

mod commands;
mod describe;
mod load;
mod log;
mod logins;
mod password;
mod rule;
mod selector;
mod user;

pub use load::UsersError;
pub(crate) use load::{merge_selectors, rewrite_users};
pub(crate) use log::{AclLog, Denial, DenialContext, Reason};
pub(crate) use logins::Logins;
pub(crate) use password::PASSWORD_BYTES_MAX;
pub use rule::RuleError;
pub(crate) use rule::{c_text, has_blanks};
pub(crate) use selector::{CHANNELS_AT_ONCE_MAX, Selector};
pub(crate) use user::{ChannelCheck, Denied, Rights, User};

pub(crate) use commands::{ACL_TABLE, CATEGORIES, category, members};

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The user of a connection without a login.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// Maximum number of users. A list of them is one reply.
pub(crate) const USERS_MAX: usize = 100_000;

/// Users by name, in display order.
pub(crate) type Users = BTreeMap<Vec<u8>, Arc<User>>;

/// All users, the denials, and the failed logins.
pub(crate) struct Acl {
    users: RwLock<Users>,
    /// Locked during a change, so that `users` is locked only to put the change in place.
    changing: Mutex<()>,
    last_id: AtomicU64,
    pub(crate) log: Mutex<AclLog>,
    pub(crate) logins: Logins,
}

impl Acl {
    /// Creates the registry with the default user only, who may do everything without a password.
    pub(crate) fn new() -> Acl {
        let default = Arc::new(User::unrestricted(DEFAULT_USER, 0));
        Acl {
            users: RwLock::new(BTreeMap::from([(DEFAULT_USER.to_vec(), default)])),
            changing: Mutex::new(()),
            last_id: AtomicU64::new(0),
            log: Mutex::default(),
            logins: Logins::default(),
        }
    }
    /// The user called `name`.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }
    /// A user with all rights, who is not among the users. Commands from a file run as this user.
    pub(crate) fn unlimited() -> Arc<User> {
        Arc::new(User::unrestricted(DEFAULT_USER, 0))
    }
    /// The default user. It cannot be removed.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT_USER).expect("the default user is always there")
    }
    /// The current state of `user`. `None` when the user was removed, also when a new user has its name.
    pub(crate) fn current(&self, user: &User) -> Option<Arc<User>> {
        self.get(user.name()).filter(|now| now.id() == user.id())
    }
    /// All users, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }
    /// The user, when name and password are right and the login is enabled. An unknown user takes about the time of a
    /// known one.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.get(name);
        let digest = password::PasswordDigest::of(password);
        user.filter(|user| user.accepts_password(digest.as_ref()))
    }
    /// Applies all of `rules` or none to the user called `name`. Creates a missing user; `all_channels` says whether
    /// a new user gets all channels (`acl-pubsub-default`).
    ///
    /// # Errors
    /// The first invalid rule and its error.
    pub(crate) fn set_user(
        &self,
        name: &[u8],
        rules: &[Vec<u8>],
        all_channels: bool,
    ) -> Result<(), (Vec<u8>, RuleError)> {
        let _changing = self.changing.lock();
        let mut user = match self.get(name) {
            Some(user) => User::clone(&user),
            None if self.users.read().len() >= USERS_MAX => {
                return Err((name.to_vec(), RuleError::TooMany("users", USERS_MAX)));
            }
            None => User::new(name, self.next_id(), all_channels),
        };
        for rule in rules {
            user.apply(rule, all_channels).map_err(|error| (rule.clone(), error))?;
        }
        self.users.write().insert(name.to_vec(), Arc::new(user));
        Ok(())
    }
    /// `requirepass`: sets the only password of the default user. Empty: none. `password` is called when no other
    /// change runs.
    pub(crate) fn set_default_password(&self, password: impl Fn() -> Vec<u8>) {
        let _changing = self.changing.lock();
        let password = password();
        let mut default = User::clone(&self.default_user());
        default.set_password(&password);
        self.users.write().insert(DEFAULT_USER.to_vec(), Arc::new(default));
    }
    /// Removes the named users except the default user. Returns the number of removed users.
    pub(crate) fn delete<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> usize {
        let _changing = self.changing.lock();
        // Lock `users` for each removal by itself, because a worker may wait to look up a user.
        names.filter(|name| *name != DEFAULT_USER && self.users.write().remove(*name).is_some()).count()
    }
    /// Replaces all users. As in redis-server, all but the default user then count as new users.
    pub(crate) fn replace(&self, users: Vec<User>) {
        let _changing = self.changing.lock();
        let mut fresh: Users = BTreeMap::from([(
            DEFAULT_USER.to_vec(),
            Arc::new(User::unrestricted(DEFAULT_USER, self.default_user().id())),
        )]);
        for user in users {
            let id = if user.name() == DEFAULT_USER { self.default_user().id() } else { self.next_id() };
            fresh.insert(user.name().to_vec(), Arc::new(user.with_id(id)));
        }
        let old = std::mem::replace(&mut *self.users.write(), fresh);
        // Free the old users after `users` is unlocked, because freeing takes long.
        drop(old);
    }
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }
}

#[cfg(test)]
mod tests;
