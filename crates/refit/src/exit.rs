//! The error type of all commands: a message for people and an exit code for scripts.

use std::fmt::Display;
use std::process::ExitCode;

use tonic::{Code, Status};

/// Why a command ends without success: the message for a person, and the exit code for a script.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A valid request failed.
    pub(crate) fn failed(error: impl Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }

    /// The request was invalid.
    pub(crate) fn usage(error: impl Display) -> Self {
        Self { message: error.to_string(), code: 2 }
    }

    /// A failure with an exit code of its own.
    pub(crate) fn with_code(error: impl Display, code: u8) -> Self {
        Self { message: error.to_string(), code }
    }

    /// Another program did the work and printed its own messages; its exit code is passed on.
    pub(crate) fn passed_on(code: u8) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self { message: String::new(), code }) }
    }

    /// The same with another exit code, if it has that one.
    pub(crate) fn or_code(self, code: u8, other: u8) -> Self {
        let code = if self.code == code { other } else { self.code };
        Self { code, ..self }
    }

    /// The exit code.
    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            anstream::eprintln!("\u{1b}[1;31merror:\u{1b}[0m {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let message = status.message();
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => {
                Self::failed(format!("the control plane cannot do this now: {message}"))
            }
            Code::Unimplemented => Self::failed(format!("{message}; the server may be of an older version")),
            Code::InvalidArgument if !message.is_empty() => Self::usage(message),
            _ if message.is_empty() => Self::failed(format!("the server answered {:?}", status.code())),
            _ => Self::failed(message),
        }
    }
}
