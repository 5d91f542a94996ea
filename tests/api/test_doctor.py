"""The command `doctor`: which of the models that are set up answer."""

from pathlib import Path

from tests.api.process import command
from tests.mock_model import ModelServer


async def test_each_model_that_is_set_up_is_asked_and_told(tmp_path: Path, mock: ModelServer) -> None:
    (tmp_path / "providers.yaml").write_text(
        f"""
providers:
  house:
    base_url: {mock.base_url}
    api_key_env: HOUSE_KEY
    models: {{big: {{}}, other: {{}}}}
roles: {{chat: "house:big", utility: "scripted:demo"}}
""",
        encoding="utf-8",
    )
    mock.script({"status": 401, "body": {"error": {"message": "bad key sk-house-0123456789"}}}, model="other")

    done = await command(
        "doctor", place=tmp_path, FERMATA_PROVIDERS_FILE="providers.yaml", HOUSE_KEY="sk-house-0123456789"
    )

    lines = [line.split(maxsplit=2)[:2] for line in done.output.splitlines()]
    assert (done.code, done.errors) == (1, "")
    assert lines[1:] == [["house:big", "ok"], ["scripted:demo", "ok"], ["house:other", "FAILED"]]
    assert "sk-house" not in done.output
    assert {request["headers"]["authorization"] for request in mock.seen.requests} == {"Bearer sk-house-0123456789"}


async def test_a_provider_of_which_no_model_is_named_is_asked_what_it_has(tmp_path: Path, mock: ModelServer) -> None:
    (tmp_path / "providers.yaml").write_text(
        f"providers: {{house: {{base_url: '{mock.base_url}', api_key_env: HOUSE_KEY}}}}", encoding="utf-8"
    )
    mock.script({"body": {"data": [{"id": "big"}, {"id": "small"}]}})

    done = await command(
        "doctor", place=tmp_path, FERMATA_PROVIDERS_FILE="providers.yaml", HOUSE_KEY="sk-house-0123456789"
    )

    assert done.code == 0
    assert "It has 2 models: big, small." in done.output
    assert [request["path"] for request in mock.seen.requests] == ["/v1/models"]


async def test_a_model_may_be_named_and_all_well_is_code_zero(tmp_path: Path) -> None:
    done = await command("doctor", "scripted:demo", place=tmp_path)

    assert done.code == 0
    assert done.output.count("\n") == 2


async def test_a_model_without_its_key_says_what_to_set(tmp_path: Path) -> None:
    done = await command("doctor", "anthropic:claude", place=tmp_path)

    assert done.code == 1
    assert "ANTHROPIC_API_KEY" in done.output


async def test_a_file_that_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("rolls: {}", encoding="utf-8")

    done = await command("doctor", place=tmp_path, FERMATA_PROVIDERS_FILE="p.yaml")

    assert (done.code, done.output) == (1, "")
    assert "p.yaml is not right at rolls" in done.errors
    assert "Traceback" not in done.errors
