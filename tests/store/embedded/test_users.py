"""Whom Postgres runs as. Root has to be somebody else; anybody else stays who he is."""

import os
import pwd
from pathlib import Path

import asyncpg
import pytest

from app.store.embedded.binaries import Binaries
from app.store.embedded.errors import NoUserError
from app.store.embedded.folder import DataFolder, open_folder
from app.store.embedded.identity import Identity, candidates, choose_identity
from tests.postgres import passable_folder
from tests.store.embedded.conftest import Make
from tests.store.embedded.processes import status_of
from tests.store.embedded.test_binaries import put_postgres

IS_ROOT = os.geteuid() == 0


def outer_user(pid: int | None) -> int:
    assert pid is not None
    return int(status_of(pid)["Uid"][0])


def seen_of(path: Path) -> list[tuple[int, int, int]]:
    """Mode, user and group of the path and of all its parents."""
    return [(found.st_mode, found.st_uid, found.st_gid) for found in (p.stat() for p in (path, *path.parents))]


async def test_it_runs_as_an_existing_unprivileged_user_who_gets_only_his_folders(
    empty_dir: Path, postgres: Make
) -> None:
    empty_dir.mkdir(mode=0o755)
    before = seen_of(empty_dir)
    users = Path("/etc/passwd").read_bytes()
    server = postgres(empty_dir)

    await server.start()

    user = outer_user(server.pid)
    assert user == (pwd.getpwuid(user).pw_uid if IS_ROOT else os.geteuid())
    assert user != 0
    assert {name.stat().st_uid for name in (empty_dir / "postgres", empty_dir / "run")} == {user}
    assert {name.stat().st_uid for name in empty_dir.glob("postgres.lo*")} == {os.geteuid()}
    assert seen_of(empty_dir) == before
    assert Path("/etc/passwd").read_bytes() == users


async def test_in_a_folder_closed_to_others_it_runs_in_a_user_namespace(tmp_path: Path, postgres: Make) -> None:
    tmp_path.chmod(0o700)
    before = seen_of(tmp_path)
    server = postgres(tmp_path / "data")

    await server.start()

    assert outer_user(server.pid) == os.geteuid()
    assert (tmp_path / "data" / "postgres").stat().st_uid == os.geteuid()
    assert seen_of(tmp_path) == before


async def test_data_goes_with_the_way_it_is_run_when_a_folder_gets_closed(empty_dir: Path, postgres: Make) -> None:
    first = postgres(empty_dir)
    await first.start()
    connection = await asyncpg.connect(first.dsn)
    await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    await connection.close()
    await first.stop()
    empty_dir.chmod(0o700)
    second = postgres(empty_dir)

    await second.start()

    assert outer_user(second.pid) == os.geteuid()
    connection = await asyncpg.connect(second.dsn)
    assert await connection.fetchval("SELECT answer FROM kept") == 42
    await connection.close()


def test_binaries_that_only_we_can_run_are_run_by_ourselves(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    binaries = Binaries(put_postgres(tmp_path / "bin", "postgres (PostgreSQL) 18.1"), "18.1")
    with passable_folder() as parent:
        folder = open_folder(parent / "data")

        identity = choose_identity(binaries, folder)

    assert identity.owner == (os.geteuid(), os.getegid())


def test_the_user_who_has_the_data_comes_first() -> None:
    with passable_folder() as parent:
        folder = open_folder(parent / "data")
        folder.cluster.mkdir()
        (folder.cluster / "PG_VERSION").touch()
        daemon = pwd.getpwnam("daemon")
        if IS_ROOT:
            os.chown(folder.cluster, daemon.pw_uid, daemon.pw_gid)

        first = next(candidates(folder))

    assert first.owner == ((daemon.pw_uid, daemon.pw_gid) if IS_ROOT else (os.geteuid(), os.getegid()))


def test_root_may_run_it_as_the_user_who_owns_the_folders_around(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder = open_folder(tmp_path / "data")
    if IS_ROOT:
        os.chown(folder.root, pwd.getpwnam("games").pw_uid, -1)
    owner = folder.root.stat().st_uid
    is_known = owner in {user.pw_uid for user in pwd.getpwall()}

    found = list(candidates(folder))

    assert found[-1].namespace
    assert (owner in [identity.uid for identity in found]) is is_known
    assert all(identity.uid for identity in found)


def test_a_user_without_a_name_is_shown_as_one_with_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)

    found = list(candidates(DataFolder(tmp_path)))

    assert [identity.namespace for identity in found] == [True]
    assert found[0].uid is not None
    assert pwd.getpwuid(found[0].uid).pw_uid == found[0].uid


@pytest.mark.parametrize(("user", "words"), [(0, "refuses to run as root"), (54321, "knows by name")])
def test_when_nothing_works_the_error_says_what_to_do(
    user: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binaries = Binaries(put_postgres(tmp_path / "bin", "it does not run", code=1), "18.1")
    monkeypatch.setattr(os, "geteuid", lambda: user)

    with pytest.raises(NoUserError, match=words) as raised:
        choose_identity(binaries, DataFolder(tmp_path))

    assert "DATABASE_URL" in str(raised.value)


def test_an_order_names_this_process_as_the_owner() -> None:
    order = Identity("somebody", 5, 6).order(["command"], folder="/here", lifeline=True)

    assert order == (os.getpid(), ["command"], "/here", 5, 6, False, True)
