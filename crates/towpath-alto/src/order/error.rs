//! What is wrong with a text that somebody wrote.

/// A statement, a pipeline or an aggregate that cannot be read. Whoever wrote it has to change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}, found {found}")]
pub struct SyntaxError {
    /// Where, in characters; the first is 1, and the end is one more than there are.
    pub column: usize,
    /// What could have stood there.
    pub expected: String,
    /// What stood there, in quotes and cut to 32 characters, or `the end`.
    pub found: String,
}
