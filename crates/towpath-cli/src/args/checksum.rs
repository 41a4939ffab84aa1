//! The digest of `--checksum`, in the notation of xrdcp's `--cksum`.

use std::{fmt, str::FromStr};

use towpath_proto::checksum::{Algorithm, Digest};

/// The digest to compare at both ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChecksumRequest {
    /// The algorithm.
    pub(crate) algorithm: Algorithm,
    /// What else to do with the digest.
    action: ChecksumAction,
}

/// Use of the compared digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChecksumAction {
    /// Compare the digests of both ends.
    Compare,
    /// Also print the digest of each copy on the standard error stream.
    Print,
    /// Compare both ends with this digest.
    Expect(Digest),
}

impl ChecksumRequest {
    /// Returns whether the digest of each copy is printed.
    pub(crate) fn is_printed(self) -> bool {
        self.action == ChecksumAction::Print
    }

    /// Returns the digest that the user expects the file to have.
    pub(crate) fn expected(self) -> Option<Digest> {
        if let ChecksumAction::Expect(digest) = self.action { Some(digest) } else { None }
    }
}

impl FromStr for ChecksumRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, action) = text.split_once(':').unwrap_or((text, "source"));
        // The option of rclone has no value, so that it takes the source for one.
        let algorithm = name.parse::<Algorithm>().map_err(|error| {
            format!("{error}; for --checksum of rclone, which takes no value, use towpath sync --compare digest")
        })?;
        let action = match action {
            "source" => ChecksumAction::Compare,
            "print" => ChecksumAction::Print,
            hex => {
                let digest = Digest::from_hex(algorithm, hex);
                ChecksumAction::Expect(digest.map_err(|error| {
                    format!("after the colon must be `source`, `print` or a digest in hexadecimal: {error}")
                })?)
            }
        };
        Ok(Self { algorithm, action })
    }
}

impl fmt::Display for ChecksumRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            ChecksumAction::Compare => write!(f, "{}", self.algorithm),
            ChecksumAction::Print => write!(f, "{}:print", self.algorithm),
            ChecksumAction::Expect(digest) => write!(f, "{}:{digest}", self.algorithm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_of_xrdcp_is_read_and_written() {
        for text in ["adler32", "crc32c:print", "adler32:0a0b0c0d", "md5:d41d8cd98f00b204e9800998ecf8427e"] {
            assert_eq!(text.parse::<ChecksumRequest>().unwrap().to_string(), text);
        }
        assert_eq!("md5:source".parse::<ChecksumRequest>().unwrap().to_string(), "md5");
        assert_eq!("SHA-256:print".parse::<ChecksumRequest>().unwrap().to_string(), "sha256:print");
        for text in ["", "md4", "adler32:", "adler32:xyz", "md5:00", "auto"] {
            assert!(text.parse::<ChecksumRequest>().is_err(), "{text}");
        }
    }
}
