//! What a docker call that gave no result is an error of: the verb and the client's own words, never the argument list.

use crate::process::{Finished, ProcessError};
use std::fmt;

/// A docker call that did not do what it was asked to.
#[derive(Debug)]
pub enum DockerError {
    /// No answer: the client is missing, hung or was stopped.
    NoAnswer {
        /// `docker create`.
        verb: String,
        /// Why.
        error: ProcessError,
    },
    /// The client exited with an error.
    Refused {
        /// `docker create`.
        verb: String,
        /// Its exit code.
        code: Option<i32>,
        /// Its standard error, bounded.
        complaint: String,
    },
    /// An answer that cannot be read.
    Unreadable {
        /// `docker create`.
        verb: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl DockerError {
    pub(super) fn no_answer(verb: String, error: ProcessError) -> Self {
        DockerError::NoAnswer { verb, error }
    }

    pub(super) fn refused(verb: String, finished: &Finished) -> Self {
        let complaint: String = finished.complaint().chars().take(4000).collect();
        DockerError::Refused { verb, code: finished.status.code(), complaint }
    }

    pub(super) fn unreadable(verb: &str, reason: impl fmt::Display) -> Self {
        DockerError::Unreadable { verb: verb.to_owned(), reason: reason.to_string() }
    }

    /// The engine has no such object (any more).
    pub fn is_not_found(&self) -> bool {
        let DockerError::Refused { complaint, .. } = self else { return false };
        let complaint = complaint.to_ascii_lowercase();
        // 20.10 says "No such container", newer engines "no such volume" and "network X not found".
        complaint.contains("no such ") || (complaint.contains("not found") && !complaint.contains("executable file"))
    }

    /// Somebody is attached to the network, or so the engine counts.
    pub fn is_network_in_use(&self) -> bool {
        matches!(self, DockerError::Refused { complaint, .. } if complaint.contains("has active endpoints"))
    }

    /// The engine is busy with the object; the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        let DockerError::Refused { complaint, .. } = self else { return false };
        let complaint = complaint.to_ascii_lowercase();
        ["already in progress", "has active endpoints", "volume is in use", "is being used by"]
            .iter()
            .any(|words| complaint.contains(words))
    }

    /// A container, of whoever, is made of the image.
    pub fn is_image_in_use(&self) -> bool {
        let DockerError::Refused { verb, complaint, .. } = self else { return false };
        verb == "docker image rm" && complaint.contains("conflict") && complaint.contains("container")
    }

    /// No engine is behind the endpoint, or it went away during the call: it may be restarting.
    pub fn is_unreachable(&self) -> bool {
        let DockerError::Refused { complaint, .. } = self else { return false };
        let complaint = complaint.to_ascii_lowercase();
        ["cannot connect to the docker daemon", "error during connect", "connection refused", "connection reset"]
            .iter()
            .any(|words| complaint.contains(words))
    }

    /// The engine (or buildx, which does the work itself) said no: nothing more comes of the call. Without such a word the
    /// engine may still be making what was asked for.
    pub fn is_answered(&self) -> bool {
        let DockerError::Refused { verb, code: Some(_), complaint } = self else { return false };
        complaint.contains("Error response from daemon")
            || (verb.starts_with("docker buildx") && !self.is_unreachable())
    }

    /// The subnet that was asked for is taken.
    pub fn is_address_clash(&self) -> bool {
        let DockerError::Refused { complaint, .. } = self else { return false };
        complaint.contains("overlaps with other one") || complaint.contains("non-overlapping IPv4 address pool")
    }

    /// What to do where no engine answered at all.
    pub fn advice(&self) -> &'static str {
        let says = |words: &str| self.to_string().to_ascii_lowercase().contains(words);
        match self {
            DockerError::NoAnswer { .. } if self.is_out_of_time() => {
                "the engine does not answer in time: look at it, or choose another one (docker context ls)"
            }
            DockerError::NoAnswer { .. } => "install Docker's client, and have it on PATH",
            _ if says("permission denied") => {
                "this user may not use the socket: be a member of its group (usermod -aG docker USER), and log in again"
            }
            _ if says("tls") || says("certificate") => {
                "see DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, or the context's certificates"
            }
            _ => "start it (systemctl start docker), or choose another one: docker context ls, DOCKER_HOST",
        }
    }

    /// The client gave up because the command was interrupted.
    pub fn is_stopped(&self) -> bool {
        matches!(self, DockerError::NoAnswer { error: ProcessError::Stopped { .. }, .. })
    }

    /// The client gave up at its time limit.
    pub fn is_out_of_time(&self) -> bool {
        matches!(self, DockerError::NoAnswer { error: ProcessError::OutOfTime { .. }, .. })
    }
}

impl fmt::Display for DockerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DockerError::NoAnswer { verb, error } => write!(f, "{verb}: {error}"),
            DockerError::Refused { verb, complaint, .. } if !complaint.is_empty() => write!(f, "{verb}: {complaint}"),
            DockerError::Refused { verb, code: Some(code), .. } => {
                write!(f, "{verb}: exit code {code}, without a word")
            }
            DockerError::Refused { verb, code: None, .. } => write!(f, "{verb}: ended by a signal"),
            DockerError::Unreadable { verb, reason } => write!(f, "{verb}: unreadable answer: {reason}"),
        }
    }
}

impl std::error::Error for DockerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_a_container_is_made_of_is_known_by_the_engines_words() {
        let conflict = "conflict: unable to remove repository reference \"a:1\" (must force) - container 12 is using its \
                        referenced image 34";
        let table = [
            ("docker image rm", conflict, true),
            (
                "docker image rm",
                "conflict: unable to delete 34 (must be forced) - image is being used by stopped container 12",
                true,
            ),
            ("docker image rm", "Error response from daemon: No such image: a:1", false),
            ("docker rm", conflict, false),
        ];
        for (verb, complaint, used) in table {
            let error = DockerError::Refused { verb: verb.to_owned(), code: Some(1), complaint: complaint.to_owned() };
            assert_eq!(error.is_image_in_use(), used, "{verb}: {complaint}");
        }
    }

    #[test]
    fn a_complaint_says_what_may_still_come_of_a_call() {
        // Complaint; not found, transient, unreachable, answered.
        let table = [
            ("Error response from daemon: No such container: x", [true, false, false, true]),
            ("Error response from daemon: network x not found", [true, false, false, true]),
            ("Error response from daemon: removal of container x is already in progress", [false, true, false, true]),
            (
                "Error response from daemon: error while removing network: has active endpoints",
                [false, true, false, true],
            ),
            (
                "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
                [false, false, true, false],
            ),
            ("error during connect: Post \"http://x/create\": EOF", [false, false, true, false]),
            ("write unix @->/x: connection reset by peer", [false, false, true, false]),
            ("broken pipe", [false, false, false, false]),
            ("", [false, false, false, false]),
        ];
        for (complaint, expected) in table {
            let error =
                DockerError::Refused { verb: "docker rm".to_owned(), code: Some(1), complaint: complaint.to_owned() };
            let found = [error.is_not_found(), error.is_transient(), error.is_unreachable(), error.is_answered()];
            assert_eq!(found, expected, "{complaint}");
        }
    }
}
