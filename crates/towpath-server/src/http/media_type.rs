//! Media types by file name extension, for browsers and notebooks.

/// Extensions, in lower case.
const TYPES: [(&str, &str); 24] = [
    ("txt", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/plain; charset=utf-8"),
    ("py", "text/plain; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("gz", "application/gzip"),
    ("zip", "application/zip"),
    ("tar", "application/x-tar"),
    ("zst", "application/zstd"),
    ("parquet", "application/vnd.apache.parquet"),
    ("h5", "application/x-hdf5"),
    ("nc", "application/x-netcdf"),
];

/// Media type of unknown extensions, including ROOT files.
const BYTES: &str = "application/octet-stream";

/// Returns the media type of a file of that name.
pub(super) fn of(name: &[u8]) -> &'static str {
    let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else { return BYTES };
    let end = &name[dot + 1..];
    TYPES
        .iter()
        .find(|(known, _)| end.eq_ignore_ascii_case(known.as_bytes()))
        .map_or(BYTES, |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_counts() {
        for (name, media_type) in [
            ("a.TXT", "text/plain; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a.root", BYTES),
            ("a", BYTES),
            (".", BYTES),
        ] {
            assert_eq!(of(name.as_bytes()), media_type, "{name}");
        }
    }
}
