//! How much processor time this process wants.

use std::{
    collections::HashMap,
    fs,
    num::NonZero,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::clock::{self, Instant};

/// The shortest time over which [`percent_wanted_lately`] looks: asking costs some microseconds for each thread.
const LATELY: Duration = Duration::from_millis(200);
/// What was seen over a longer time says nothing of now.
const LONG_AGO: Duration = Duration::from_secs(5);

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

/// How much of the time between two answers of [`time_wanted`], so many seconds apart, this process ran or waited to run: of all processors together, or of the one
/// that its hottest thread can use. From 0 to 1.
pub fn share_wanted(before: &HashMap<u32, Duration>, now: &HashMap<u32, Duration>, seconds: f64) -> f64 {
    let wanted = now.iter().map(|(thread, time)| {
        let since = time.saturating_sub(before.get(thread).copied().unwrap_or_default());
        since.as_secs_f64() / seconds
    });
    let (all, hottest) = wanted.fold((0.0, 0.0_f64), |(all, hottest), share| (all + share, hottest.max(share)));
    hottest.max(all / processors() as f64).min(1.0)
}

/// The same in per cent, between the last two times that it was asked, a fifth of a second apart or more. Nothing is known after a long time in which nobody asked.
pub fn percent_wanted_lately() -> u64 {
    struct Last {
        at: Instant,
        threads: HashMap<u32, Duration>,
    }
    static LAST: OnceLock<Mutex<Last>> = OnceLock::new();
    static PERCENT: AtomicU64 = AtomicU64::new(0);
    let begin = || Mutex::new(Last { at: clock::now(), threads: time_wanted() });
    // Who finds somebody else looking takes what was seen before.
    let Ok(mut last) = LAST.get_or_init(begin).try_lock() else { return PERCENT.load(Relaxed) };
    let now = clock::now();
    let passed = now.saturating_duration_since(last.at);
    if passed >= LATELY {
        let threads = time_wanted();
        let share = share_wanted(&last.threads, &threads, passed.as_secs_f64());
        PERCENT.store(if passed > LONG_AGO { 0 } else { (100.0 * share) as u64 }, Relaxed);
        *last = Last { at: now, threads };
    }
    PERCENT.load(Relaxed)
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
    fn a_share_is_that_of_the_hottest_thread_or_of_all() {
        let threads = |ms: &[u64]| (0..).zip(ms.iter().map(|ms| Duration::from_millis(*ms))).collect();
        assert_eq!(share_wanted(&threads(&[100]), &threads(&[600]), 1.0), 0.5);
        let all = vec![100; 8 * processors()];
        assert!((share_wanted(&threads(&[]), &threads(&all), 1.0) - 0.8).abs() < 1e-9);
        assert_eq!(share_wanted(&threads(&[]), &threads(&[5000]), 1.0), 1.0, "there is no more than all");
    }

    #[test]
    fn waiting_for_a_processor_is_wanting_one() {
        assert_eq!(wanted("1500 500 7\n"), Some(Duration::from_nanos(2000)));
        assert_eq!(wanted("1500"), None);
        assert_eq!(wanted("x y z"), None);
    }
}
