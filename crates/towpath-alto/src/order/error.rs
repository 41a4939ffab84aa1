//! Syntax errors in user-supplied text.

/// A statement, a pipeline or an aggregate that cannot be parsed. Its author has to correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: expected {expected}, found {found}")]
pub struct SyntaxError {
    /// Column in characters, from 1. The end of the text is one past the last character.
    pub column: usize,
    /// The expected input.
    pub expected: String,
    /// The input found: quoted and truncated to 32 characters, or `the end`.
    pub found: String,
}
