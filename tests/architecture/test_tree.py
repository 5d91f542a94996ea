"""The root holds what it is meant to hold, and no file tells of the machine on which it was written."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TOP_LEVEL = {
    *("app", "migrations", "openapi", "tests"),
    *("Dockerfile", "Makefile", "alembic.ini", "docker-compose.yml", "pyproject.toml"),
    *("requirements-dev.txt", "requirements.txt"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *(
        ".ci",
        ".dockerignore",
        ".editorconfig",
        ".env.example",
        ".gitattributes",
        ".gitignore",
        ".pre-commit-config.yaml",
    ),
}

# Put together from parts, so that this file doesn't hold what it looks for.
HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs"),
        ("deb", "debian"),
        ("proxy", "golang"),
    ]
]
PATHS = ["/" + "tmp/", "/" + "work/", "/" + "root/", "/" + "home/[a-z]"]
TRACES = re.compile("|".join([*map(re.escape, HOSTS), *PATHS]))


def repository_files() -> list[str]:
    """Give the files that are tracked, and those that would be if they were added."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def texts() -> Iterator[tuple[str, str]]:
    for name in repository_files():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            yield name, content.decode(encoding="utf-8")


def test_the_root_holds_only_what_it_is_meant_to() -> None:
    found = {name.partition("/")[0] for name in repository_files()}
    assert found - TOP_LEVEL == set()


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    traces = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if TRACES.search(line)
    ]
    assert traces == []


def test_no_file_has_line_ends_of_two_characters() -> None:
    assert [name for name, text in texts() if "\r\n" in text] == []


def test_each_text_ends_with_one_line_end() -> None:
    assert [name for name, text in texts() if text and (not text.endswith("\n") or text.endswith("\n\n"))] == []


@pytest.mark.parametrize("line", [f"https://{HOSTS[0]}/simple", f"open('{PATHS[0]}a')", "cd /" + "home/ann"])
def test_a_trace_is_seen(line: str) -> None:
    assert TRACES.search(line)
