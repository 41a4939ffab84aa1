//! How much processor time this process wants.

use std::{collections::HashMap, fs, num::NonZero, thread, time::Duration};

/// For how long each thread of this process, by its number, has run or waited for a processor since it began. Empty if the system does not
/// tell (`/proc/PID/task/TID/schedstat` of Linux).
pub fn time_wanted() -> HashMap<u32, Duration> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let each = |task: fs::DirEntry| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        Some((thread, wanted(&fs::read_to_string(task.path().join("schedstat")).ok()?)?))
    };
    tasks.filter_map(each).collect()
}

/// Processors that this process may use, at least one.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Of nanoseconds that a thread ran, nanoseconds that it waited, and time slices.
fn wanted(line: &str) -> Option<Duration> {
    let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
    let [ran, waited] = [words.next()?.ok()?, words.next()?.ok()?];
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_wants_time() {
        let sum = || time_wanted().values().sum::<Duration>();
        let before = sum();
        let mut number = 1_u64;
        // Ends: the thread that asks is one of those that are counted.
        while sum() < before + Duration::from_millis(30) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(processors() >= 1);
    }

    #[test]
    fn waiting_for_a_processor_is_wanting_one() {
        assert_eq!(wanted("1500 500 7\n"), Some(Duration::from_nanos(2000)));
        assert_eq!(wanted("1500"), None);
        assert_eq!(wanted("x y z"), None);
    }
}
