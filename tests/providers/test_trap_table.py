"""The ways in which providers are known to go wrong, and the tests that prove what comes of each.

A line is a symptom that others have met. What begins with `trap ` is an entry of `tests/providers/traps.py`, in
whichever dialects it is there; the others are tests.
"""

import ast
from pathlib import Path

import pytest

from tests.providers.traps import TRAPS
from tests.syntax import parsed

ROOT = Path(__file__).parents[1]

TABLE: dict[str, tuple[str, ...]] = {
    # The connection and its events
    "a pool that loses its places to cancelled calls": (
        "providers/test_setup.py::test_there_is_a_connection_for_every_request_that_is_let_in",
        "providers/test_traps_http.py::test_calls_that_are_left_in_any_state_leave_no_task_and_no_socket",
    ),
    "more streams than a client's default, and models that think for long": (
        "providers/test_loopback.py::test_more_streams_than_a_clients_default_allows_run_at_a_time",
        "providers/test_loopback.py::test_a_peer_that_never_answers_runs_into_the_first_deadline",
        "providers/test_loopback.py::test_comments_do_not_keep_a_silent_model_alive",
    ),
    "a reader that stops and leaves the socket open": (
        "providers/test_loopback.py::test_closing_the_stream_closes_the_socket",
        "providers/test_loopback.py::test_cancelling_the_reader_closes_the_socket_while_the_model_is_silent",
    ),
    "a new connection for each call, and a tail that is held open": (
        "providers/test_traps_http.py::test_answers_that_follow_one_another_use_one_connection",
        "providers/test_traps_http.py::test_a_peer_that_never_ends_its_whole_answer_is_left",
    ),
    "signs that some take for the end of a line": (
        "trap a whole answer",
        "providers/test_sse.py::test_no_other_sign_ends_a_line",
    ),
    "characters and line ends cut between two reads": (
        "trap lines that end in CR LF",
        "trap a byte order mark",
        "providers/test_traps.py::test_it_is_read_the_same_wherever_the_bytes_are_cut",
    ),
    "events without data": ("trap empty data", "trap ids and retries without data"),
    "a last event without its blank line": ("trap a last event without its blank line",),
    "two documents in one event": ("trap two documents in one event",),
    "events of many megabytes": (
        "providers/test_traps_http.py::test_an_event_over_the_limit_is_refused_and_the_next_answer_is_whole",
    ),
    "a success that is a page or a plain document": (
        "providers/test_requests.py::test_a_success_that_is_no_stream_is_an_error",
    ),
    "proxies that buffer or compress": (
        "providers/test_requests.py::test_the_request_goes_to_the_base_url_with_its_headers",
        "providers/test_loopback.py::test_compressed_events_are_read_although_nobody_asked_for_them",
    ),
    "half a character in a delta": ("trap half a character in each of two deltas", "trap half a character alone"),
    # Errors, further attempts, other models
    "an overload inside a success": ("trap an overload before the first word", "trap an overload after the first word"),
    "an error behind a chunk that says nothing yet": (
        "trap an overload before the first word",
        "providers/test_gateway.py::test_an_attempt_that_fails_before_output_leaves_no_trace_but_its_bill",
    ),
    "errors of every form": (
        "trap an error that says nothing",
        "trap an error that is a text",
        "trap an error of an old server",
        "trap an event named error",
        "trap an error in the first choice",
    ),
    "a failure that only another field tells": ("trap a failure that only the native reason tells",),
    "DONE and nothing else": ("trap DONE and nothing else",),
    "an end in the middle that looks like a whole answer": ("trap an end in the middle", "trap DONE is no end"),
    "whole answers without a finish reason": ("trap DONE alone ends an answer",),
    "a connection that drops after the finish reason": (
        "providers/test_dialects_loopback.py::test_a_whole_answer_is_whole_whatever_the_connection_does_then",
    ),
    "attempts that multiply": (
        "providers/test_traps_http.py::test_nobody_below_the_gateway_asks_again",
        "providers/test_gateway.py::test_the_same_model_is_asked_again_with_growing_waits_and_then_the_next",
    ),
    "waits in every form, and endless ones": (
        "providers/test_errors.py::test_the_wait_is_read_in_every_form",
        "providers/test_gateway.py::test_a_wait_over_the_cap_means_the_next_model_at_once",
        "providers/test_gateway.py::test_no_wait_goes_past_the_deadline",
    ),
    "a limit that never heals": (
        "providers/test_errors.py::test_a_refused_request_gets_its_reason",
        "providers/test_gateway.py::test_what_does_not_heal_is_not_asked_again_but_another_model_is",
    ),
    "a bad request that is sent to everybody": (
        "providers/test_gateway.py::test_a_request_that_is_at_fault_itself_goes_nowhere_else",
    ),
    "text that is told twice": (
        "providers/test_gateway.py::test_after_the_first_text_reasoning_or_call_nothing_is_tried_again",
    ),
    "errors of the client's own kind": (
        "providers/test_requests.py::test_what_the_client_raises_becomes_a_provider_error_without_the_request",
    ),
    # Tokens
    "running totals that are added up": ("trap a running total with every chunk is not added up",),
    "usage after the finish reason, or twice": (
        "trap a whole answer",
        "providers/test_chat_decoder.py::test_every_chunk_with_usage_is_reported_as_the_running_total_after_its_text",
    ),
    "totals that leave fields out": ("trap totals that leave the input out",),
    "cached tokens and thoughts, inside the count or beside it": (
        "trap totals that leave the input out",
        "trap thoughts are counted beside the candidates",
    ),
    "servers that refuse to tell usage": (
        "providers/test_requests.py::test_a_server_that_refuses_stream_options_is_asked_again_without_them",
    ),
    "answers that were left, without a final usage": (
        "providers/test_gateway.py::test_a_reader_that_leaves_is_recorded_and_counts_against_nobody",
        "providers/test_chat_decoder.py::test_usage_is_not_made_up_when_none_is_told",
    ),
    # Calls
    "parallel calls under one index": ("trap parallel calls all at index 0",),
    "indexes, ids and names that are missing or repeated": (
        "trap a name in every delta, and no id",
        "providers/test_chat_calls.py::test_calls_are_put_together_however_they_are_numbered",
    ),
    "arguments as an object, as nothing, or never": ("trap arguments as an object, as nothing, and never",),
    "arguments that were cut": ("trap arguments that the length limit cut", "trap an end in the middle of a call"),
    "stop, although tools are called": ("trap calls, and stop as the reason",),
    "calls without results in the history": (
        "conversation/test_valid.py::test_a_lost_result_becomes_a_neutral_error_in_the_place_of_its_call",
    ),
    "forms of call ids": ("providers/test_chat_body.py::test_mistral_gets_ids_of_nine_letters_and_digits_that_agree",),
    "long arguments after long silence": (
        "providers/test_anthropic.py::test_options_and_tools_are_sent_in_the_dialects_words",
    ),
    # Reasoning, replay, options
    "thoughts that go back changed, or to another model": (
        "providers/test_anthropic.py::test_thinking_goes_back_byte_for_byte_where_it_stood",
        "gmi/test_hops.py::test_reasoning_stays_with_its_message_for_the_model_that_thought_it",
    ),
    "calls whose signature is missing": (
        "providers/test_gemini.py::test_a_round_of_another_model_gets_the_word_that_stands_in_for_a_signature",
        "providers/test_chat_body.py::test_signatures_of_calls_go_back_where_the_server_wants_them",
    ),
    "reasoning that has to come back, in one of two fields": (
        "trap reasoning in two fields is told once",
        "providers/test_chat_body.py::test_reasoning_goes_back_in_tool_rounds_where_the_server_wants_it",
    ),
    "items that the server did not keep": ("providers/test_responses.py::test_messages_become_items",),
    "tags of reasoning inside the text": ("trap tags of reasoning that the deltas cut",),
    "a forced tool beside thinking": (
        "providers/test_anthropic.py::test_thinking_takes_out_what_the_server_refuses_with_it",
    ),
    "reasons to finish that nobody expects": (
        "trap the finish reason brand_new",
        "trap the stop reason brand_new",
        "trap the finish reason BRAND_NEW",
        "trap a call that could not be written",
        "trap a prompt that is blocked",
        "trap a stop without any part",
    ),
    "forms of structured output": (
        "providers/test_gemini.py::test_options_and_tools_are_sent_in_the_dialects_words",
        "providers/test_responses.py::test_options_and_tools_are_sent_in_the_dialects_words",
        "providers/test_refusals.py::test_the_form_of_an_answer_is_left_out_only_where_the_request_can_do_without",
    ),
    "prompts that no cache finds again": (
        "providers/test_anthropic.py::test_the_prompt_is_marked_for_the_cache_in_two_places",
        "providers/test_chat_body.py::test_a_cache_key_is_sent_where_the_server_knows_it",
        "conversation/test_requests.py::test_each_turns_request_begins_with_that_of_the_turn_before_it",
    ),
    "models that work on after a cancel": (
        "providers/test_chat_body.py::test_a_plain_request_sends_nothing_that_was_not_set",
    ),
}


def names_in(path: Path) -> set[str]:
    found = parsed(path.read_text(encoding="utf-8")).body
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("symptom", TABLE)
def test_each_known_fault_of_providers_has_its_tests(symptom: str) -> None:
    for proof in TABLE[symptom]:
        if proof.startswith("trap "):
            assert [name for name in TRAPS if name.endswith(f": {proof.removeprefix('trap ')}")], proof
        else:
            file, _, name = proof.partition("::")
            assert name in names_in(ROOT / file), proof


def test_no_known_fault_is_left_out() -> None:
    assert len(TABLE) == 51
