use towpath_store::sys::clock;

use super::*;

const ADVANCE: ProgressSnapshot = ProgressSnapshot {
    found_files: 20_000,
    is_all_found: false,
    ended_files: 12_345,
    skipped_files: 0,
    moved_bytes: 3 << 30,
    ahead_bytes: 5 << 30,
    verified_bytes: 1 << 30,
    resumed_files: 0,
    resumed_bytes: 0,
};

fn files() -> Vec<FileLine> {
    let name = |number| format!("root://far.example.org//run7/with/a/long/path/µ-events-{number}.root");
    (0..8).map(|number| FileLine { name: name(number), arrived_bytes: 3 << 20, bytes: 4 << 20 }).collect()
}

fn shown(rows: usize, columns: usize) -> Vec<String> {
    let files = files();
    lines(&ADVANCE, f64::from(1 << 20) * 100.0, (&files, 239), (rows, columns))
}

#[test]
fn a_wide_terminal_shows_all() {
    let lines = shown(24, 110);
    assert_eq!(lines.len(), 10);
    let name = "root://far.example.org//run7/with/a/long/path/µ-events-0.root";
    assert_eq!(lines[0], format!("{name:<77}   75 %    3.00 MiB of   4.00 MiB"));
    assert_eq!(lines[8], "… and 231 more");
    let total = "3.00 GiB of 8.00 GiB+, 100.00 MiB/s, ETA at least 0:52, 12345/20000+ files, 1.00 GiB verified";
    assert_eq!(lines[9], total);
    let all = ProgressSnapshot { is_all_found: true, ..ADVANCE };
    let total = "3.00 GiB of 8.00 GiB, 1.00 MiB/s, ETA 1:25:20, 12345/20000 files, 1.00 GiB verified";
    assert_eq!(lines_of(&all, 1 << 20), [total]);
    let total = "3.00 GiB of 8.00 GiB, 0 B/s, 12345/20000 files, 1.00 GiB verified";
    assert_eq!(lines_of(&all, 0), [total], "nobody knows when");
}

fn lines_of(advance: &ProgressSnapshot, bytes_per_s: u32) -> Vec<String> {
    lines(advance, f64::from(bytes_per_s), (&[], 0), (24, 100))
}

#[test]
fn a_narrow_one_shows_less() {
    let lines = shown(24, 40);
    assert_eq!(lines[0], format!("{:<33} {:>4} %", "…with/a/long/path/µ-events-0.root", 75));
    assert_eq!(lines[9], "3.00 GiB of 8.00 GiB+, 100.00 MiB/s");
    assert_eq!(shown(4, 40).len(), 3, "one file, what is left out, the total");
    assert_eq!(shown(3, 40), [lines[9].clone()]);
}

#[test]
fn nothing_is_wider_or_higher_than_the_terminal() {
    for rows in 1..30 {
        for columns in 21..150 {
            let lines = shown(rows, columns);
            assert!(lines.len() < rows.max(2), "{rows} rows: {lines:?}");
            let widths = lines.iter().map(|line| measure_text_width(line));
            assert!(widths.max() <= Some(columns), "{columns} columns: {lines:?}");
        }
    }
}

#[test]
fn a_rate_is_that_of_late() {
    let look = Duration::from_millis(200);
    let mut now = clock::now();
    let mut meter = Meter::new(now);
    let mut moved = 0;
    for per_s in [1000, 3000] {
        for _ in 0..100 {
            now += look;
            moved += per_s / 5;
            meter.rate(now, moved);
        }
        let rate = meter.rate(now, moved);
        assert!((rate / per_s as f64 - 1.0).abs() < 0.01, "{rate} after 20 s of {per_s}");
    }
    // From the first look on, whatever it is averaged over.
    let rate = Meter::new(now).rate(now + look, 200);
    assert!((rate - 1000.0).abs() < 1.0, "{rate}");
}

#[test]
fn a_stalled_copy_shows_no_remaining_time() {
    let stalled = line(&ADVANCE, 300.0);
    assert!(!stalled.contains("ETA"), "{stalled}");
    assert_eq!((eta_s(&ADVANCE, 300.0), eta_s(&ADVANCE, 0.0)), (None, None));
    assert!(eta_s(&ADVANCE, 3000.0).is_some());
}

#[test]
fn a_log_has_one_line_of_any_width() {
    assert_eq!(
        line(&ADVANCE, f64::from(1 << 20) * 100.0),
        "3.00 GiB of 8.00 GiB+, 100.00 MiB/s, ETA at least 0:52, 12345/20000+ files, 1.00 GiB verified"
    );
}
