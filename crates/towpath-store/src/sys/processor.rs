//! CPU time used and waited for by this process.

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

/// Minimum interval of [`percent_wanted_lately`]: a sample costs some microseconds per thread.
const LATELY: Duration = Duration::from_millis(200);
/// Maximum age of a sample; older ones say nothing about the present.
const LONG_AGO: Duration = Duration::from_secs(5);

/// Returns the time that each thread of this process, by its number, has run or waited for a processor since it
/// started. Empty if the system does not report it (`/proc/PID/task/TID/schedstat` of Linux).
pub fn time_wanted() -> HashMap<u32, Duration> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let each = |task: fs::DirEntry| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        Some((thread, wanted(&fs::read_to_string(task.path().join("schedstat")).ok()?)?))
    };
    tasks.filter_map(each).collect()
}

/// Returns the fraction of the time between two results of [`time_wanted`], `seconds` apart, during which this process
/// ran or was runnable: of all processors together, or of the one that its busiest thread can use. From 0 to 1.
pub fn share_wanted(before: &HashMap<u32, Duration>, now: &HashMap<u32, Duration>, seconds: f64) -> f64 {
    let wanted = now.iter().map(|(thread, time)| {
        let since = time.saturating_sub(before.get(thread).copied().unwrap_or_default());
        since.as_secs_f64() / seconds
    });
    let (all, hottest) = wanted.fold((0.0, 0.0_f64), |(all, hottest), share| (all + share, hottest.max(share)));
    hottest.max(all / processors() as f64).min(1.0)
}

/// Returns the same in per cent for the interval between the last two samples, at least a fifth of a second apart.
/// Zero if the last sample is too old.
pub fn percent_wanted_lately() -> u64 {
    struct LastSample {
        at: Instant,
        threads: HashMap<u32, Duration>,
    }
    static LAST: OnceLock<Mutex<LastSample>> = OnceLock::new();
    static PERCENT: AtomicU64 = AtomicU64::new(0);
    let begin = || Mutex::new(LastSample { at: clock::now(), threads: time_wanted() });
    // While another thread takes a sample, the previous value is returned.
    let Ok(mut last) = LAST.get_or_init(begin).try_lock() else { return PERCENT.load(Relaxed) };
    let now = clock::now();
    let passed = now.saturating_duration_since(last.at);
    if passed >= LATELY {
        let threads = time_wanted();
        let share = share_wanted(&last.threads, &threads, passed.as_secs_f64());
        PERCENT.store(if passed > LONG_AGO { 0 } else { (100.0 * share) as u64 }, Relaxed);
        *last = LastSample { at: now, threads };
    }
    PERCENT.load(Relaxed)
}

/// Returns the number of CPUs that this process may use, at least one.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Parses the nanoseconds that a thread ran, the nanoseconds that it waited, and its time slices.
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
        // This terminates: the calling thread is among the counted ones.
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
