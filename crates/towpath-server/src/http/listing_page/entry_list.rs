//! The entries of a listing, in memory and in order.

use std::cmp::Ordering;

use towpath_store::{Entry, Error, Fault, FileKind, Result};

/// A list of entries. All names are in one buffer; an entry needs 32 bytes and its name.
#[derive(Debug, Default)]
pub(super) struct EntryList {
    names: Vec<u8>,
    entries: Vec<ListedEntry>,
}

/// An entry, with its name in the buffer of its list.
#[derive(Debug, Clone, Copy)]
struct ListedEntry {
    name_start: u32,
    name_bytes: u16,
    kind: FileKind,
    size: u64,
    modified_s: Option<i64>,
}

/// An entry as rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryView<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: FileKind,
    pub(super) size: u64,
    pub(super) modified_s: Option<i64>,
}

/// A column of the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Size,
    Modified,
}

impl Column {
    pub(super) const ALL: [Column; 3] = [Column::Name, Column::Size, Column::Modified];

    /// Returns the name in the query.
    fn word(self) -> &'static str {
        match self {
            Column::Name => "name",
            Column::Size => "size",
            Column::Modified => "modified",
        }
    }
}

/// The order of a listing: by a column, then by name. Directories come first in every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) column: Column,
    pub(super) is_descending: bool,
}

impl SortOrder {
    /// The default order.
    pub(super) const BY_NAME: SortOrder = SortOrder { column: Column::Name, is_descending: false };

    /// Returns the order in `sort=size` or, descending, `sort=-size`; the default order for any other query.
    pub(super) fn of_query(query: Option<&str>) -> Self {
        let pairs = query.into_iter().flat_map(|query| query.split('&'));
        let word = pairs.filter_map(|pair| pair.strip_prefix("sort=")).next().unwrap_or_default();
        let (is_descending, word) = word.strip_prefix('-').map_or((false, word), |word| (true, word));
        let column = Column::ALL.into_iter().find(|column| column.word() == word);
        column.map_or(Self::BY_NAME, |column| Self { column, is_descending })
    }

    /// Returns the value of `sort` in the query.
    pub(super) fn word(self) -> String {
        format!("{}{}", if self.is_descending { "-" } else { "" }, self.column.word())
    }

    /// Returns the order after a click on the header of `column`: the reverse if it is sorted by it, else ascending by
    /// name, or the largest or newest first.
    pub(super) fn after_click(self, column: Column) -> Self {
        let is_descending = if self.column == column { !self.is_descending } else { column != Column::Name };
        Self { column, is_descending }
    }

    fn compare(self, a: &EntryView<'_>, b: &EntryView<'_>) -> Ordering {
        let by_column = match self.column {
            Column::Name => a.name.cmp(b.name),
            Column::Size => a.size.cmp(&b.size),
            Column::Modified => a.modified_s.cmp(&b.modified_s),
        };
        let is_file = |entry: &EntryView<'_>| entry.kind != FileKind::Directory;
        let by_column = if self.is_descending { by_column.reverse() } else { by_column };
        is_file(a).cmp(&is_file(b)).then(by_column).then_with(|| a.name.cmp(b.name))
    }
}

impl EntryList {
    /// Adds the entries of a batch.
    ///
    /// # Errors
    /// `Internal` for a name of 64 KiB, or 4 GiB of names.
    pub(super) fn extend(&mut self, batch: Vec<Entry>) -> Result<()> {
        for Entry { name, metadata } in batch {
            let (Ok(name_start), Ok(name_bytes)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
                return Err(Error::new(Fault::Internal, "the names of the directory are too long to list"));
            };
            self.names.extend_from_slice(&name);
            let modified_s = metadata.mtime_ns.map(|_| metadata.mtime_s());
            let (kind, size) = (metadata.kind, metadata.size);
            self.entries.push(ListedEntry { name_start, name_bytes, kind, size, modified_s });
        }
        Ok(())
    }

    /// Returns the memory that the list occupies, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names.capacity() + self.entries.capacity() * size_of::<ListedEntry>()
    }

    /// Returns the size of the entries, in bytes.
    pub(super) fn used_bytes(&self) -> usize {
        self.names.len() + size_of_val(self.entries.as_slice())
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Sorts the entries, and releases the memory reserved for more.
    pub(super) fn sort(&mut self, order: SortOrder) {
        let Self { names, entries } = self;
        names.shrink_to_fit();
        entries.shrink_to_fit();
        entries.sort_unstable_by(|a, b| order.compare(&a.view(names), &b.view(names)));
    }

    /// Returns the entries from `first` on, in order.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = EntryView<'_>> {
        self.entries.get(first..).unwrap_or_default().iter().map(|entry| entry.view(&self.names))
    }
}

impl ListedEntry {
    fn view<'a>(&self, names: &'a [u8]) -> EntryView<'a> {
        let start = self.name_start as usize;
        let name = names.get(start..start + usize::from(self.name_bytes)).unwrap_or_default();
        EntryView { name, kind: self.kind, size: self.size, modified_s: self.modified_s }
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::Metadata;

    use super::*;

    fn entry(name: &str, kind: FileKind, size: u64, modified_s: i64) -> Entry {
        let metadata = Metadata { mtime_ns: Some(modified_s * 1_000_000_000), ..Metadata::new(kind, size) };
        Entry { name: name.to_owned().into(), metadata }
    }

    fn list() -> EntryList {
        let mut list = EntryList::default();
        list.extend(vec![entry("b", FileKind::File, 7, 30), entry("z", FileKind::Directory, 0, 10)]).unwrap();
        list.extend(vec![
            entry("a", FileKind::File, 7, 20),
            entry("c", FileKind::File, 100, -5),
            entry("y", FileKind::Directory, 0, 40),
        ])
        .unwrap();
        list
    }

    #[test]
    fn directories_come_first_in_every_order() {
        for (query, names) in [
            (None, "yzabc"),
            (Some("sort=name"), "yzabc"),
            (Some("sort=-name"), "zycba"),
            (Some("x=1&sort=size"), "yzabc"),
            (Some("sort=-size"), "yzcab"),
            (Some("sort=modified"), "zycab"),
            (Some("sort=-modified"), "yzbac"),
            (Some("sort=<script>"), "yzabc"),
        ] {
            let mut list = list();
            list.sort(SortOrder::of_query(query));
            let sorted: Vec<u8> = list.iter_from(0).flat_map(|entry| entry.name.to_vec()).collect();
            assert_eq!(String::from_utf8(sorted).unwrap(), names, "{query:?}");
        }
    }

    #[test]
    fn a_click_reverses_the_order() {
        let words = |order: SortOrder| Column::ALL.map(|column| order.after_click(column).word());
        assert_eq!(words(SortOrder::BY_NAME), ["-name", "-size", "-modified"]);
        assert_eq!(words(SortOrder::of_query(Some("sort=-size"))), ["name", "size", "-modified"]);
    }

    #[test]
    fn an_entry_needs_little_memory() {
        let mut list = EntryList::default();
        list.extend((0..1000).map(|index| entry(&format!("{index:030}"), FileKind::File, 1, 1)).collect()).unwrap();
        list.sort(SortOrder::BY_NAME);
        assert_eq!([list.memory_bytes(), list.used_bytes()], [1000 * (30 + 32); 2]);
    }
}
