"""The data folder and its parts: modes and owners, socket, lock, log, pid file."""

import os
import stat
from pathlib import Path

import pytest

from app.store.embedded.child import has_death_signal
from app.store.embedded.errors import DataFolderError, SocketFolderError
from app.store.embedded.folder import (
    LONGEST_SOCKET_PATH,
    DataFolder,
    hand_over,
    make_socket_folder,
    open_folder,
)
from app.store.embedded.lock import FolderLock
from app.store.embedded.logfile import TAIL_LINES, ServerLog
from app.store.embedded.pidfile import PidFile, is_alive, read_pid_file, serves
from tests.store.embedded.conftest import Make

US = (os.geteuid(), os.getegid())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def somebody_elses_folder(tmp_path: Path) -> Path:
    """Root can give a folder away; anybody else finds one of root's."""
    if os.geteuid() != 0:
        return Path("/usr")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 54321, 54321)
    return tmp_path / "theirs"


def test_a_new_data_folder_is_closed_to_others_who_may_at_most_pass_through(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "new" / "data")

    assert mode_of(folder.root) == (0o711 if os.geteuid() == 0 else 0o700)


def test_a_data_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o750)

    folder = open_folder(tmp_path / "data")

    assert mode_of(folder.root) == 0o750


def test_a_path_that_a_socket_can_have_keeps_the_socket_in_the_data_folder() -> None:
    longest = LONGEST_SOCKET_PATH - len("/run/.s.PGSQL.5432")
    fits = DataFolder(Path("/" + "x" * (longest - 1)))
    does_not = DataFolder(Path("/" + "x" * longest))

    assert fits.sockets == fits.root / "run"
    assert does_not.sockets.parent == Path("/tmp")  # noqa: S108


def test_length_counts_in_bytes() -> None:
    assert DataFolder(Path("/" + "ü" * 60)).sockets.parent == Path("/tmp")  # noqa: S108


def test_two_data_folders_have_two_short_socket_folders_and_one_always_the_same() -> None:
    one, other = DataFolder(Path("/" + "x" * 200)), DataFolder(Path("/" + "y" * 200))

    assert one.sockets != other.sockets
    assert one.sockets == DataFolder(Path("/" + "x" * 200)).sockets


@pytest.mark.parametrize("part", ["x" * 120, "com,ma"])
async def test_a_data_folder_whose_path_is_unfit_for_a_socket_works(
    part: str, data_dir: Path, move: object, postgres: Make
) -> None:
    assert callable(move)
    folder = move(data_dir.parent / part)
    server = postgres(folder)
    sockets = DataFolder(folder).sockets
    try:
        await server.start()

        assert (sockets / ".s.PGSQL.5432").is_socket()
        assert mode_of(sockets) == 0o700
        assert str(sockets) in server.dsn
    finally:
        await server.stop()
        sockets.rmdir()


def test_the_socket_folder_is_made_closed_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_socket_folder(tmp_path / "run", US, None)
    finally:
        os.umask(before)

    assert mode_of(tmp_path / "run") == 0o700


def test_a_socket_folder_of_ours_that_is_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)

    make_socket_folder(tmp_path / "run", US, None)

    assert mode_of(tmp_path / "run") == 0o700


def test_a_socket_folder_that_somebody_else_owns_is_refused(tmp_path: Path) -> None:
    theirs = somebody_elses_folder(tmp_path)
    before = theirs.stat()

    with pytest.raises(SocketFolderError, match=r"belongs to another user .*Remove it"):
        make_socket_folder(theirs, US, None)

    after = theirs.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_a_link_in_the_place_of_the_socket_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target").chmod(0o755)
    (tmp_path / "run").symlink_to(tmp_path / "target")

    with pytest.raises(SocketFolderError, match="can't be used"):
        make_socket_folder(tmp_path / "run", US, None)

    assert mode_of(tmp_path / "target") == 0o755


def test_what_is_handed_over_is_the_tree_and_never_what_its_links_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "file").touch()
    (tree / "link").symlink_to(outside)
    # Only root can give files away; anybody else has them already.
    other = (54321, 54321) if os.geteuid() == 0 else US

    hand_over(tree, other)

    paths = [tree, tree / "below", tree / "below" / "file", tree / "link"]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in paths} == {other}
    assert outside.stat().st_uid == os.geteuid()


def test_a_lock_keeps_a_second_holder_out_until_it_is_released(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")

    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()

    second.release()


def test_a_lock_whose_file_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DataFolderError, match="can't be opened"):
        FolderLock(tmp_path / "lock").acquire()

    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_is_too_large_begins_anew_and_is_kept_once(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log", largest=10)
    held_open = log.open()
    os.write(held_open, b"the first words\n")

    log.keep_small()
    os.write(held_open, b"more\n")
    log.keep_small()
    os.close(held_open)

    assert (tmp_path / "log").read_bytes() == b"more\n"
    assert (tmp_path / "log.1").read_bytes() == b"the first words\n"
    assert mode_of(tmp_path / "log") == 0o600


def test_the_tail_of_a_log_is_its_last_lines_since_a_size(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log")
    (tmp_path / "log").write_text("old\n", encoding="utf-8")
    since = log.size()
    (tmp_path / "log").write_text("old\n" + "\n".join(str(n) for n in range(100)), encoding="utf-8")

    assert log.tail(since).splitlines() == [str(n) for n in range(100 - TAIL_LINES, 100)]
    assert ServerLog(tmp_path / "none").tail() == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", None),
        ("not a number\n", None),
        ("123\n", PidFile(123, ready=False)),
        ("123\n/data\n1\n5432\n/run\n\n1 2\nstarting\n", PidFile(123, ready=False)),
        ("123\n/data\n1\n5432\n/run\n\n1 2\nready   \n", PidFile(123, ready=True)),
        ("123\n/data\n1\n5432\n/run\n\n1 2\nstopping\n", PidFile(123, ready=False)),
        ("-123\n/data\n", PidFile(123, ready=False)),
    ],
)
def test_a_pid_file_is_read_at_every_stage_of_its_writing(words: str, expected: PidFile | None, tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(words, encoding="utf-8")

    assert read_pid_file(tmp_path) == expected


def test_without_a_pid_file_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert read_pid_file(tmp_path) is None


def test_a_live_process_serves_the_folder_in_which_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serves(os.getpid(), tmp_path) is not has_death_signal()  # elsewhere than on Linux it can't be seen
    monkeypatch.chdir(tmp_path)

    assert is_alive(os.getpid())
    assert serves(os.getpid(), tmp_path)


def test_a_process_that_has_ended_serves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = os.posix_spawn("/bin/sh", ["sh", "-c", "exit"], {})
    os.waitpid(ended, 0)

    assert not is_alive(ended)
    assert not serves(ended, tmp_path)
