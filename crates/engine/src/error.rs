//! Errors at the start and the end of a server. The driver shows them to the administrator.

use crate::acl::UsersError;
use crate::persist::DataError;

/// Why a server cannot start with its users or its data. The text names the file, the place and what helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The users of the configuration or of the ACL file are invalid.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// A file of the data cannot be found or opened. Nothing has been changed.
    #[error(transparent)]
    Files(DataError),
    /// A file of the data is damaged, or belongs to another program or version. Everything before the named place is
    /// loaded, and LOADING continues.
    #[error(transparent)]
    Data(DataError),
    /// The data is loaded, and the append-only file cannot be written.
    #[error(transparent)]
    Writing(DataError),
}

/// Why there is no profile: the text of the error reply.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoProfile(pub String);

/// Why the end of the server failed. The server continues.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SaveError {
    /// SHUTDOWN ABORT gave the end up.
    #[error("SHUTDOWN ABORT")]
    Aborted,
    /// The last save failed, or data would be lost: the reason.
    #[error("{0}")]
    Failed(String),
}

/// The system's text for an error, as C programs print it: without the number at its end. Other texts stay whole.
pub fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let without = text.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (os error "));
    without.map_or(&*text, |(system, _)| system).to_string()
}

#[test]
fn only_the_number_at_the_end_of_a_text_goes() {
    let advice = "x: Permission denied (os error 13). Give a dir that this server may write to";
    assert_eq!(system_text(&std::io::Error::from_raw_os_error(13)), "Permission denied");
    assert_eq!(system_text(&std::io::Error::other(advice)), advice);
}
