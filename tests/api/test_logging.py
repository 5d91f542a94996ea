"""Logs: one JSON object a line, with the ids of what it belongs to, and without anybody's secrets."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from app.observability.lines import bound
from app.observability.logging import configure_logging, leave_out
from tests.logs import logs_as_before


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    with logs_as_before():
        yield


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_is_json_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.get_logger("app.turn").info("operation", turn_id="t", n=1)

    (line,) = lines_of(capsys)
    assert line["event"] == "operation"
    assert line["logger"] == "app.turn"
    assert line["level"] == "info"
    assert line["turn_id"] == "t"
    assert str(line["timestamp"]).endswith("Z")


def test_lines_of_libraries_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logging.getLogger("uvicorn.error").info("Started %d", 7, extra={"color_message": "x"})

    (line,) = lines_of(capsys)
    assert line["event"] == "Started 7"
    assert "color_message" not in line


def test_bound_ids_are_on_every_line_inside_and_on_none_outside(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    log = structlog.get_logger()
    with bound(request_id="r", stream_id="s"):
        log.info("inside")
        logging.getLogger("somebody").warning("else")
    log.info("outside")

    inside, other, outside = lines_of(capsys)
    assert inside["request_id"] == other["request_id"] == "r"
    assert "request_id" not in outside


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning")
    structlog.get_logger().info("small")
    logging.getLogger("uvicorn.error").info("small")
    structlog.get_logger().warning("large")

    assert [line["event"] for line in lines_of(capsys)] == ["large"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json" if form == "json" else "console")
    try:
        _fail("sw0rd" + "fish")
    except ValueError:
        structlog.get_logger().exception("failed")

    shown = capsys.readouterr().out
    assert "_fail" in shown
    assert "sw0rdfish" not in shown


def test_errors_that_have_been_told_are_not_told_by_the_server_again(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    leave_out("a.server", (KeyError,))
    log = logging.getLogger("a.server")
    log.error("told", exc_info=KeyError("x"))
    log.error("not told", exc_info=ValueError("y"))
    log.error("plain")

    assert [line["event"] for line in lines_of(capsys)] == ["not told", "plain"]


def _fail(password: str) -> None:
    if password:
        raise ValueError
