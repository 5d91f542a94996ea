"""How histories, limits and summaries are known to go wrong, and the tests that prove that these do not."""

from pathlib import Path

import pytest

from tests.providers.test_trap_table import names_in

HERE = Path(__file__).parent

TABLE: dict[str, tuple[str, ...]] = {
    # The rolling summary
    "a round that is split between summary and history": (
        "test_history::test_a_round_is_taken_whole_or_told_whole_and_never_taken_while_it_waits",
        "test_summary_turns::test_a_hosts_round_goes_into_the_summary_whole_or_reaches_the_model_whole",
    ),
    "a round without answers that is summarized": (
        "test_history::test_a_round_is_taken_whole_or_told_whole_and_never_taken_while_it_waits",
        "test_summary_turns::test_a_pause_that_was_answered_is_taken_by_a_later_pass_and_never_while_it_waits",
    ),
    "messages of one instant": ("test_edges::test_messages_of_one_instant_are_neither_lost_nor_told_twice",),
    "a second pass that skips a new head": (
        "test_history::test_a_second_pass_takes_no_new_head",
        "test_summary_turns::test_passes_follow_one_another_without_a_new_head_and_all_that_was_said_stays_readable",
    ),
    "a profile with another head": (
        "test_history::test_each_message_is_in_the_summary_or_told_and_never_both",
        "test_history::test_another_profile_goes_on_from_the_summary_that_the_first_one_made",
        "test_summary_turns::test_under_a_smaller_head_the_old_head_is_still_told",
    ),
    "a state for each profile": ("test_summary_turns::test_a_turn_in_another_mode_goes_on_from_the_same_summary",),
    "an older state without a head": (
        "test_history::test_a_state_without_a_recorded_head_keeps_its_gap",
        "test_summary_turns::test_a_summary_of_unknown_head_keeps_its_gap_and_can_be_made_longer",
    ),
    "no conversation to summarize": (
        "test_edges::test_the_first_turn_of_a_conversation_has_nothing_to_summarize",
        "test_summary_turns::test_with_persistence_off_there_is_no_summary",
    ),
    "a pass that fails, and the summary that is there": (
        "test_summary_turns::test_a_failed_pass_never_fails_the_turn_and_keeps_the_summary_that_is_there",
    ),
    "a summary that says nothing": (
        "test_compaction::test_an_answer_that_says_nothing_is_none",
        "test_summary_turns::test_a_failed_pass_never_fails_the_turn_and_keeps_the_summary_that_is_there",
        "test_edges::test_an_empty_summary_replaces_no_message_at_the_limit",
    ),
    "a summary that is switched off and stored": (
        "test_summary_turns::test_where_the_mode_switches_it_off_the_history_is_the_plain_one",
    ),
    "the profile of a mode": ("test_compaction::test_the_mode_picks_the_profile",),
    "the prompt of a profile": ("test_edges::test_a_profiles_own_prompt_replaces_the_one_for_all_modes",),
    "errors and thoughts": (
        "test_valid::test_errors_and_thoughts_are_never_told",
        "test_summary_turns::test_errors_thoughts_and_rolled_back_turns_are_neither_summarized_nor_told",
        "test_limit_turns::test_errors_and_thoughts_stay_in_the_conversation_and_are_never_told",
    ),
    "an input that is told twice, or counted into the head": (
        "test_edges::test_the_input_is_told_once_and_the_same_words_said_before_stay",
        "test_edges::test_the_first_turn_of_a_conversation_has_nothing_to_summarize",
    ),
    "head and tail that overlap": (
        "test_history::test_what_is_sent_is_valid_and_fits_whatever_the_limit_head_and_budget",
        "test_window::test_twice_is_the_same_as_once",
    ),
    "an input that is summarized": (
        "test_summary_turns::test_even_without_a_tail_the_turns_own_input_is_not_summarized",
    ),
    "a message that vanishes": (
        "test_history::test_each_message_is_in_the_summary_or_told_and_never_both",
        "test_history::test_within_the_budget_nothing_that_may_be_sent_is_lost",
        "test_valid::test_nothing_that_says_something_is_lost",
    ),
    "system messages in a summary": (
        "test_edges::test_a_system_message_of_the_conversation_is_told_word_for_word_beside_the_summary",
        "test_edges::test_a_later_system_message_does_not_keep_the_messages_behind_it_out_of_the_next_pass",
        "test_compaction::test_system_messages_summaries_and_messages_that_say_nothing_are_never_taken",
    ),
    "a border that moves below the minimum": (
        "test_compaction::test_a_border_that_moves_for_a_round_does_nothing_rather_than_split_it",
    ),
    "an answer of a summarizer that is no JSON": (
        "test_compaction::test_an_answer_that_is_no_such_json_counts_as_the_summary_itself",
        "test_compaction::test_an_answer_is_read_as_json_also_in_a_fence_amid_words_or_cut_short",
    ),
    "a summarizer that keeps failing": (
        "test_summary_turns::test_after_three_failures_in_a_row_it_is_not_tried_until_something_changes",
        "test_summary_turns::test_the_breaker_tries_again_once_as_many_messages_have_come_as_a_pass_needs",
    ),
    "a summarizer that takes long": (
        "test_summary_turns::test_past_its_deadline_the_turn_goes_on_and_the_pass_is_tried_at_the_next_turn",
    ),
    # The limit, and what is stored
    "a limit of zero": (
        "test_window::test_a_limit_of_zero_keeps_everything",
        "test_limit_turns::test_with_a_limit_of_zero_every_message_is_told",
    ),
    "a head that drops out": (
        "test_window::test_head_and_newest_message_stay_and_no_round_is_torn",
        "test_window::test_a_limit_without_room_beside_the_head_keeps_head_and_newest_message",
    ),
    "summaries that drop out": (
        "test_window::test_a_drop_keeps_the_summary_behind_the_head_and_the_last_one",
        "test_window::test_with_room_for_one_summary_beside_the_newest_message_the_last_one_stays",
        "test_limit_turns::test_summaries_that_are_messages_themselves_stay_as_well",
    ),
    "a round at the limit": (
        "test_window::test_a_round_that_the_kept_messages_reach_into_stays_whole_even_over_the_limit",
        "test_limit_turns::test_a_round_that_the_kept_messages_reach_into_is_told_whole_even_over_the_limit",
        "test_limit_turns::test_a_summary_at_the_limit_takes_rounds_whole",
    ),
    "no model to summarize with": ("test_limit_turns::test_without_a_model_to_summarize_with_messages_drop_out",),
    "messages that come while a summary is made": (
        "test_edges::test_messages_that_are_added_while_a_summary_is_made_are_all_told",
    ),
    "a summarizer that raises at the limit": (
        "test_limit_turns::test_a_summarizer_that_raises_drops_messages_out_and_never_the_new_one",
    ),
    "another order, or other values, after a restart": (
        "test_edges::test_messages_of_one_instant_are_neither_lost_nor_told_twice",
        "test_reading::test_what_is_stored_comes_back_as_it_was",
    ),
    "messages that come back after a restart": (
        "test_edges::test_messages_past_the_limit_do_not_come_back_after_a_restart",
    ),
    "a stored message that changes": ("test_edges::test_no_limit_and_no_summary_ever_changes_a_stored_message",),
    "a conversation that is read as a whole": (
        "test_reading::test_a_bounded_read_tells_what_reading_everything_would_tell",
        "test_reading::test_a_turn_on_a_hundred_thousand_messages_reads_few_rows",
        "test_reading::test_a_rolling_summary_that_is_new_in_a_very_long_conversation_tells_a_bounded_number_of_messages",
    ),
}


@pytest.mark.parametrize("fault", TABLE)
def test_each_known_fault_of_histories_has_its_tests(fault: str) -> None:
    for proof in TABLE[fault]:
        module, _, name = proof.partition("::")
        assert name in names_in(HERE / f"{module}.py"), proof
