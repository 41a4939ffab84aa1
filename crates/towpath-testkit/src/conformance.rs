//! The promises of RFC 0001, as checks that every store and every wrapper passes.
//!
//! [`check`] runs the table of checks against a [`Fixture`]: a store and an empty directory in it. Each check gets a
//! directory of its own and runs as a task of its own; failures are reported by name after all have run. Checks of
//! capabilities that a store does not have are skipped. A remote store may report less specific faults, because its
//! protocol has fewer error codes; the fixture maps them.

mod attributes;
mod copying;
mod digests;
mod listing;
mod metadata;
mod naming;
mod reading;
mod resuming;
mod test_context;
mod updating;
mod uploading;

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use towpath_store::{Caller, Capabilities, Fault, Store, StorePath};

use self::test_context::TestContext;

/// A store to be checked.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The caller of every operation.
    pub caller: Caller,
    /// An existing directory that the checks may fill; they do not clean up.
    pub directory: StorePath,
    /// Maps a fault of the store to the fault that its client reports; `|fault| fault` without a protocol in between.
    pub heard_as: fn(Fault) -> Fault,
    /// Whether names may have any byte but `/` and NUL; otherwise the checks keep to letters, digits and UTF-8.
    pub any_name: bool,
}

impl Fixture {
    /// A store without a protocol in between, to be filled from its root on.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, caller: Caller::local(), directory: StorePath::root(), heard_as: |fault| fault, any_name: true }
    }
}

/// One promise.
#[derive(Clone, Copy)]
pub struct Check {
    /// Name of the promise: `module::function` below `conformance`.
    pub name: &'static str,
    needs: fn(&Capabilities) -> bool,
    run: fn(TestContext) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A table of checks: after each capability, the modules and their functions that need it.
macro_rules! checks {
    ($($needs:expr => { $($module:ident: $($function:ident)+;)+ })+) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$($($(
            Check {
                name: concat!(stringify!($module), "::", stringify!($function)),
                needs: $needs,
                run: |context| $module::$function(context).boxed(),
            },
        )+)+)+];
    };
}

checks! {
    |_| true => {
        metadata: space_is_told;
        reading: missing_files_are_not_found;
        listing: missing_directories_are_not_found;
    }
    |can| can.create => {
        metadata: a_file_is_described a_directory_is_described errors_name_their_path;
        reading: every_range_is_what_was_written_there reads_are_short_only_at_the_end an_empty_file_is_read
            read_into_appends read_now_appends_or_leaves_the_buffer many_tasks_read_at_once
            a_dropped_read_leaves_the_handle_usable a_file_is_read_with_known_metadata a_directory_is_not_opened the_local_file_has_the_content
            announced_ranges_can_be_read_when_they_are_ready a_withdrawn_announcement_leaves_the_handle_usable
            a_vector_read_answers_each_range_once a_range_past_the_end_fails_alone a_vector_of_thousands_is_read
            ranges_of_a_vector_may_overlap;
        uploading: an_upload_is_invisible_until_it_is_committed an_empty_file_can_be_uploaded
            dropping_an_upload_leaves_nothing aborting_leaves_nothing a_finished_handle_says_so
            the_size_must_be_the_one_promised a_small_file_may_be_larger_than_was_announced
            the_digests_must_be_those_promised commit_tells_the_metadata an_existing_file_is_not_replaced_unasked
            of_two_commits_only_one_is_first a_missing_file_can_be_replaced
            parents_are_made_only_when_asked a_directory_is_not_replaced a_file_is_no_parent
            a_file_that_cannot_fit_is_refused_at_once the_mode_is_as_asked digests_in_order_are_computed;
        resuming: a_new_upload_with_a_key_is_as_any_other;
        naming: directories_are_made directories_are_made_with_their_parents names_are_kept_byte_for_byte;
        listing: all_entries_are_listed_in_bounded_batches an_empty_directory_has_no_entries
            a_file_is_not_listed entries_are_described a_listing_can_be_dropped known_digests_are_listed;
        digests: every_algorithm_is_computed known_digests_are_right progress_is_reported
            there_is_no_digest_of_what_is_no_file a_digest_can_be_cancelled;
    }
    |can| can.create && can.remove => {
        metadata: the_version_changes_with_the_content;
        reading: a_replaced_file_is_never_mixed only_the_version_asked_for_is_opened
            a_file_is_not_read_with_outdated_metadata
            the_local_file_is_the_version_that_was_opened;
        uploading: a_failed_commit_leaves_the_old_file of_two_commits_the_later_wins;
        naming: files_are_removed directories_are_removed;
        digests: known_digests_follow_the_content;
    }
    |can| can.create && !can.remove => {
        uploading: without_removal_existing_files_are_not_replaced;
        naming: without_removal_all_entries_stay;
    }
    |can| can.create && !can.rename => {
        naming: without_renames_names_stay;
    }
    |can| can.create && can.write_any_order => {
        uploading: pieces_come_in_any_order gaps_read_as_zeros a_piece_may_be_written_twice
            many_tasks_write_at_once what_is_written_can_be_read_back an_upload_can_be_cut_and_extended
            a_piece_beyond_all_sizes_is_refused;
    }
    |can| can.create && !can.resume => {
        resuming: a_key_keeps_nothing_where_nothing_can_be_kept;
    }
    |can| can.create && can.resume => {
        resuming: an_upload_goes_on_where_it_broke_off an_upload_may_break_off_again_and_again
            another_key_or_size_finds_nothing one_upload_at_a_time_has_the_key
            a_commit_that_comes_too_early_costs_nothing nobody_goes_on_from_wrong_data
            an_upload_with_a_key_must_tell_its_size;
    }
    |can| can.create && can.resume && can.remove => {
        resuming: what_is_aborted_or_committed_is_not_taken_up_again a_commit_that_is_refused_costs_nothing;
    }
    |can| can.create && can.set_mtime => {
        metadata: times_can_be_changed;
        uploading: the_time_is_the_one_promised;
    }
    |can| can.create && can.update => {
        metadata: size_can_be_changed mode_can_be_changed;
        updating: changes_are_visible_at_once changes_stay_when_the_handle_is_dropped
            known_digests_are_forgotten_at_the_first_change an_update_can_cut_and_extend
            an_update_can_be_verified only_existing_files_are_updated a_file_changed_in_place_is_noticed;
    }
    |can| can.create && can.remove && can.remove_tree => {
        naming: trees_are_removed;
    }
    |can| can.create && can.rename => {
        naming: files_are_renamed directories_are_renamed_with_what_they_hold
            existing_names_are_not_taken_unasked impossible_renames_are_refused;
    }
    |can| can.create && can.rename && can.remove => {
        naming: a_rename_can_replace;
    }
    |can| can.create && can.copy => {
        copying: a_copy_is_the_same a_copy_keeps_what_is_known_of_it existing_files_are_not_replaced_unasked
            impossible_copies_are_refused;
    }
    |can| can.create && can.copy && can.remove => {
        copying: a_copy_can_replace_a_file;
    }
    |can| can.create && can.attributes => {
        attributes: attributes_are_kept attributes_are_removed existing_attributes_can_be_protected
            bounds_are_kept attributes_go_with_the_file digests_are_no_attributes;
    }
}

/// Runs all checks that the store's capabilities call for.
///
/// # Panics
/// If checks fail, after all of them have run, with their names.
pub async fn check(fixture: &Fixture) {
    check_except(fixture, &[]).await;
}

/// As [`check`], but for the promises in `exceptions`, which this store is known (and documented) not to keep.
///
/// # Panics
/// As [`check`], and for an exception that names no check.
pub async fn check_except(fixture: &Fixture, exceptions: &[&str]) {
    let can = fixture.store.capabilities();
    let unknown = exceptions.iter().find(|name| !CHECKS.iter().any(|check| check.name == **name));
    assert!(unknown.is_none(), "there is no check {unknown:?}");
    let mut failed = Vec::new();
    let needed = CHECKS.iter().filter(|check| (check.needs)(&can) && !exceptions.contains(&check.name));
    for check in needed {
        if !passes(check, fixture).await {
            eprintln!("conformance: {check:?} FAILED");
            failed.push(check.name);
        }
    }
    assert!(failed.is_empty(), "{:?} breaks {} promises: {}", fixture.store, failed.len(), failed.join(", "));
}

/// Runs one check in a task of its own, so that a panic ends nothing else.
async fn passes(check: &Check, fixture: &Fixture) -> bool {
    let context = TestContext::set_up(fixture, check.name).await;
    tokio::spawn((check.run)(context)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use towpath_store::memory::MemoryStore;

    use super::*;
    use crate::fault::{FaultStore, Faults};

    #[test]
    fn every_check_has_its_own_name() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
    }

    /// The suite itself can fail: a store that lies is found by the checks that are about its lie.
    #[tokio::test]
    async fn a_store_that_reads_too_little_is_found() {
        let faults = Faults { short_reads_per_mille: 1000, ..Faults::default() };
        let store = FaultStore::new(Arc::new(MemoryStore::new(64 << 20)), faults);
        let failure = tokio::spawn(async move { check(&Fixture::new(Arc::new(store))).await }).await.unwrap_err();
        let message = *failure.into_panic().downcast::<String>().unwrap();
        for promise in ["reading::every_range_is_what_was_written_there", "reading::a_vector_of_thousands_is_read"] {
            assert!(message.contains(promise), "{message}");
        }
        assert!(!message.contains("naming::directories_are_made"), "{message}");
    }
}
