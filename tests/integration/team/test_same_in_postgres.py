"""What holds of labels, sets, configs and looks in a store's own database holds in a team's: the same tests, on a PostgreSQL.

They are those of the unit tests, imported; what is different here is the fixture `store` of this folder.
"""

# ruff: noqa: F401 (pytest runs what is imported, and finds the fixtures by their names)

from tests.unit.store.test_configs import (
    test_experiments_come_newest_first_with_their_evidence,
    test_history_and_experiments_are_listed_and_numbered_apart,
    test_name_and_reason_may_be_put_better_later_and_nothing_else_changes,
    test_the_history_lists_the_latest_first_and_names_may_repeat,
)
from tests.unit.store.test_import_reports import (
    filled,
    test_a_log_that_has_grown_takes_the_place_of_what_was_read_of_it_before,
    test_judgments_that_come_with_a_log_are_of_the_memories_it_means,
    test_the_failing_ones_stand_first,
)
from tests.unit.store.test_labels import (
    labelled,
    test_a_change_of_mind_is_kept_and_undone_step_by_step,
    test_a_hold_out_that_shares_a_query_with_an_earlier_one_goes_on_counting,
    test_a_judge_called_wrong_is_a_mark_of_its_own_that_undo_of_labels_leaves_alone,
    test_a_label_carries_its_author_time_note_and_what_was_shown,
    test_a_query_that_is_named_twice_is_looked_at_once,
    test_a_queue_is_kept_in_order_replaced_and_forgotten,
    test_a_rejected_edge_of_a_file_stays,
    test_a_scale_of_the_set_admits_its_own_grades,
    test_a_skip_is_of_one_person_and_changes_no_verdict,
    test_an_accepted_pair_is_an_edge_under_its_author_until_it_is_undone,
    test_an_import_contradicting_a_label_given_here_is_a_conflict_of_its_row,
    test_an_import_over_an_import_replaces_and_keeps_what_it_was,
    test_decisions_stand_beside_the_raw_labels_and_the_latest_counts,
    test_imports_undone_in_reverse_order_leave_the_store_as_before,
    test_model_judgments_are_recorded_in_bulk_and_people_are_not,
    test_reviewers_and_models_do_not_overwrite_one_another,
    test_skips_and_unclear_queries_are_marks_that_can_be_undone,
    test_that_nothing_answers_a_query_is_a_label_of_the_whole_store_and_can_be_undone,
    test_the_decision_of_a_colleague_becomes_an_edge_of_this_store,
    test_the_latest_decision_counts_and_undo_restores_the_one_before,
    test_the_same_label_twice_is_one_event,
    test_undo_takes_back_ones_own_only,
    test_what_a_person_looked_at_is_kept_with_that_nothing_answers,
    test_what_cannot_be_a_label_is_refused_and_leaves_no_trace,
    three,
)
from tests.unit.store.test_query_sets import (
    test_a_changed_input_makes_a_version_and_the_earlier_one_stays_as_it_was,
    test_a_grade_off_the_scale_of_every_set_of_its_query_is_reported_and_the_rest_used,
    test_a_query_in_two_sets_is_one_query_and_both_follow_its_words,
    test_a_relevant_judgment_against_no_answer_is_said_and_both_are_kept,
    test_a_set_has_its_own_scale_and_keeps_it_over_imports,
    test_an_answer_is_written_to_the_present_version_of_every_set_of_its_query,
    test_queries_are_put_and_taken_out_by_hand,
    test_that_nothing_answers_a_query_is_part_of_its_set,
)
from tests.unit.store.test_store_memories import (
    test_a_judgment_can_be_taken_back,
    test_another_grade_of_the_same_judge_replaces_the_old_one_with_a_note,
    test_judged_queries_are_counted_anew_only_where_something_was_written,
    test_judgments_naming_unknown_queries_or_memories_are_reported,
    test_judgments_of_deleted_memories_are_absent,
    test_queries_round_trip_and_update,
)
