//! The command lines of `ls`, `df`, `du` and `find`, and the format of their sizes.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
};

use clap::{ArgAction, Args};
use towpath_proto::units::size_text;

/// Format of sizes in text; JSON always has the exact size.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Sizes {
    /// Print sizes with a unit, such as `1.50 GiB` [default: on a terminal].
    #[arg(long, short = 'h')]
    pub human_readable: bool,
    /// Print sizes in bytes [default: if the standard output is not a terminal].
    #[arg(long, conflicts_with = "human_readable")]
    pub bytes: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

impl Sizes {
    /// Returns whether sizes are printed with a unit.
    pub(crate) fn are_human(self) -> bool {
        self.human_readable || (!self.bytes && io::stdout().is_terminal())
    }

    /// Returns a size as text.
    pub(crate) fn text(self, bytes: u64) -> String {
        if self.are_human() { size_text(bytes) } else { bytes.to_string() }
    }
}

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct List {
    /// Paths or URLs. A `*` in a quoted URL matches any part of a name.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print sizes, times and modes.
    #[arg(long, short = 'l')]
    pub long: bool,
    /// List recursively.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Ignored, like -A, for compatibility with `ls`: names with a leading dot are always listed.
    #[arg(long, short = 'a', visible_short_alias = 'A')]
    pub all: bool,
    /// Sort by size, largest first; with -R over the whole tree.
    #[arg(long, short = 'S', conflicts_with = "by_time")]
    pub by_size: bool,
    /// Sort by modification time, newest first; with -R over the whole tree.
    #[arg(long, short = 't')]
    pub by_time: bool,
    /// Reverse the order.
    #[arg(long, short = 'r')]
    pub reverse: bool,
    /// Format of sizes.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Print one JSON object per entry.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `df`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Space {
    /// Paths or URLs.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Format of sizes.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Print one JSON object per path.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `du`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Usage {
    /// Paths or URLs. A `*` in a quoted URL matches any part of a name.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print only the total of each path.
    #[arg(long, short = 's', conflicts_with = "max_depth")]
    pub summarize: bool,
    /// Print directories down to N levels below each path [default: all].
    #[arg(long, short = 'd', value_name = "N")]
    pub max_depth: Option<usize>,
    /// Format of sizes.
    #[command(flatten)]
    pub sizes: Sizes,
    /// Print one JSON object per directory.
    #[arg(long)]
    pub json: bool,
}
