//! The listing as a page for browsers.
//!
//! The page works without JavaScript, except for its filter. The sort controls are buttons of a form rather than
//! links, so that programs that follow all links of a page do not fetch it in each order.

use std::{fmt::Write as _, sync::LazyLock};

use http::HeaderValue;
use towpath_proto::{http::date, units::size_text};
use towpath_store::{FileKind, Printable, StorePath};

use super::{
    ListingHead, Totals,
    entry_list::{Column, EntryView, SortOrder},
};
use crate::{
    http::target,
    web_page::{self, Escaped, grouped},
};

/// Maximum number of links to parent directories, in addition to the one to the root. Longer paths are abbreviated,
/// because the length of all links together would grow with the square of the path's length.
const MAX_PARENTS: usize = 8;

static STYLE: LazyLock<String> = LazyLock::new(|| format!("{}{}", web_page::STYLE, include_str!("style.css")));

const SCRIPT: &str = include_str!("filter.js");

/// The `Content-Security-Policy` of the page.
pub(super) static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| web_page::security_policy(&STYLE, Some(SCRIPT)));

/// Returns the page up to its first entry.
pub(super) fn head(head: &ListingHead) -> String {
    let ListingHead { directory, site, sorted } = head;
    let mut html = web_page::head(format_args!("{directory} – {site}"), &STYLE);
    write_breadcrumbs(&mut html, directory, site);
    match sorted {
        Some((_, totals)) => write!(html, "<p id=\"count\" role=\"status\">{totals}</p>").ok(),
        None => write!(
            html,
            "<p id=\"count\" role=\"status\">This directory has too many entries to sort. They follow in the order of \
             the file system.</p>"
        )
        .ok(),
    };
    // The style hides it once the footer has arrived.
    html.push_str("<p id=\"late\">Still loading, or interrupted: this list is complete if its last line is the number of entries.</p>");
    html.push_str("<label hidden>Filter <input type=\"search\" autocomplete=\"off\"></label>");
    html.push_str("<form id=\"sort\"></form>\n<table><thead><tr>");
    for (column, title) in Column::ALL.into_iter().zip(["Name", "Size", "Modified (UTC)"]) {
        write_column_header(&mut html, column, title, sorted.as_ref().map(|(order, _)| *order));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    html
}

/// Writes the path with a link for each parent.
fn write_breadcrumbs(html: &mut String, directory: &StorePath, site: &str) {
    let mut parents: Vec<_> =
        std::iter::successors(directory.parent(), StorePath::parent).take(MAX_PARENTS + 1).collect();
    let is_abbreviated = parents.last().is_some_and(|last| !last.is_root());
    parents.retain(|parent| !parent.is_root());
    parents.reverse();
    match directory.is_root() {
        true => write!(html, "<h1>{}/", Escaped(site)).ok(),
        false => write!(html, "<h1><a href=\"/\">{}</a>/", Escaped(site)).ok(),
    };
    if is_abbreviated {
        html.push_str("…/");
    }
    for parent in &parents {
        let (href, name) = (target::encode(parent, true), parent.name().unwrap_or_default());
        write!(html, "<a href=\"{href}\">{}</a>/", Escaped(Printable(name))).ok();
    }
    if let Some(name) = directory.name() {
        write!(html, "{}/", Escaped(Printable(name))).ok();
    }
    html.push_str("</h1>\n");
}

/// Writes the header of a column, with a button if the listing can be sorted.
fn write_column_header(html: &mut String, column: Column, title: &str, order: Option<SortOrder>) {
    let Some(order) = order else {
        write!(html, "<th scope=\"col\">{title}</th>").ok();
        return;
    };
    let state = match order {
        SortOrder { column: sorted, .. } if sorted != column => "",
        SortOrder { is_descending: true, .. } => " aria-sort=\"descending\"",
        SortOrder { is_descending: false, .. } => " aria-sort=\"ascending\"",
    };
    let next = order.after_click(column).word();
    write!(html, "<th scope=\"col\"{state}><button form=\"sort\" name=\"sort\" value=\"{next}\">{title}</button></th>")
        .ok();
}

/// Writes the row of an entry. Its link is relative, and optional end tags are omitted, because there may be many rows.
pub(super) fn write_entry(html: &mut String, entry: EntryView<'_>) {
    let EntryView { name, kind, size, modified_s } = entry;
    let slash = if kind == FileKind::Directory { "/" } else { "" };
    let (href, name) = (target::encode_relative(name), Escaped(Printable(name)));
    write!(html, "<tr><td><a href=\"{href}{slash}\">{name}{slash}</a>").ok();
    match kind {
        FileKind::Directory => html.push_str("<td>"),
        FileKind::File if size < 1024 => write!(html, "<td>{size} B").unwrap_or_default(),
        FileKind::File => write!(html, "<td title=\"{size}\">{}", size_text(size)).unwrap_or_default(),
        FileKind::Other => html.push_str("<td>special"),
    }
    let modified = modified_s.map(date::format_minute).unwrap_or_default();
    writeln!(html, "<td>{modified}").ok();
}

/// Writes the end of the page. Without its footer, the page says that it is incomplete.
pub(super) fn write_end(html: &mut String, totals: &Totals) {
    write!(html, "</tbody></table>\n<footer>{totals}</footer>\n<script>{SCRIPT}</script></body></html>\n").ok();
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { entries, directories, bytes } = *self;
        let count = |number: u64, one: &str, many: &str| {
            format!("{} {}", grouped(number), if number == 1 { one } else { many })
        };
        f.write_str(&count(entries, "entry", "entries"))?;
        if directories > 0 {
            write!(f, ", of which {}", count(directories, "directory", "directories"))?;
        }
        if entries > directories {
            write!(f, "; <span title=\"{bytes}\">{}</span> in files", size_text(bytes))?;
        }
        Ok(())
    }
}
