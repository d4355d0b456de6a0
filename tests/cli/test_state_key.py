"""The key for sealing: from a file that is safe, or made once for all servers of a user."""

from __future__ import annotations

import base64
import logging
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antiphon.cli.errors import CommandError, UsageError
from antiphon.cli.state_key import own_file, state_key

KEY = bytes(range(200, 232))
TEXT = base64.b64encode(KEY)


def written(file: Path, content: bytes, mode: int = 0o600) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)
    return file


def state_of(folder: Path) -> dict[str, str]:
    """An environment whose folder of state is this one."""
    return {"XDG_STATE_HOME": str(folder)}


def key_in(folder: Path) -> Path:
    return folder / "antiphon" / "state-key"


@pytest.mark.parametrize("content", [KEY, TEXT, TEXT + b"\n", b" \n" + TEXT + b"\r\n"])
def test_a_key_is_32_bytes_or_their_base64(tmp_path: Path, content: bytes) -> None:
    assert state_key(written(tmp_path / "key", content), {}) == KEY
    written(key_in(tmp_path), content)
    assert state_key(None, state_of(tmp_path)) == KEY


NO_KEYS = [
    b"",
    b"\n",
    KEY[:31],
    KEY + b"\n",
    KEY + KEY,
    TEXT[:-1],
    TEXT + TEXT,
    TEXT[:20] + b"\n" + TEXT[20:],
    b"x" * 300,
]
NO_KEYS += [KEY.hex().encode(), base64.b64encode(KEY[:16]), b"\xff" * 44, TEXT + b"\n" * 300]


@pytest.mark.parametrize("content", NO_KEYS)
def test_a_file_without_a_key_is_one_line_that_names_it_and_shows_nothing_of_it(tmp_path: Path, content: bytes) -> None:
    given, own = written(tmp_path / "key", content), written(key_in(tmp_path), content)
    with pytest.raises(UsageError, match=r"^--state-key \(ANTIPHON_STATE_KEY\): ") as refused:
        state_key(given, {})
    assert f"{given} holds no key" in str(refused.value)
    with pytest.raises(CommandError, match="--state-key") as refused_own:
        state_key(None, state_of(tmp_path))
    assert str(refused_own.value).startswith(f"{own} holds no key")
    for message in (str(refused.value), str(refused_own.value)):
        assert "\n" not in message
        assert not any(word in message for word in (TEXT.decode(), KEY.hex(), repr(KEY)))
    assert own.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="bits of access are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match="open to other users .*chmod 600"):
        state_key(written(tmp_path / "key", TEXT, mode), {})
    written(key_in(tmp_path), TEXT, mode)
    with pytest.raises(CommandError, match="open to other users .*chmod 600"):
        state_key(None, state_of(tmp_path))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_that_is_ours_alone_is_taken(tmp_path: Path, mode: int) -> None:
    assert state_key(written(tmp_path / "key", TEXT, mode), {}) == KEY


def test_a_link_to_a_key_is_taken(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path / "key", TEXT))
    assert state_key(link, {}) == KEY


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for given in (pipe, tmp_path):
        with pytest.raises(UsageError, match="is no regular file"):
            state_key(given, {})
    with pytest.raises(UsageError, match=r"--state-key .*missing cannot be read: No such file"):
        state_key(tmp_path / "missing", {})


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    key = state_key(None, state_of(state))
    file = key_in(state)
    assert len(key) == 32
    assert state_key(None, state_of(state)) == key
    assert state_key(file, {}) == key, "the file can be given to another server"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]
    assert state_key(None, state_of(tmp_path / "b")) != key


def started_at_once(folder: Path, servers: int = 8) -> list[bytes]:
    together = threading.Barrier(servers)

    def start(_: int) -> bytes:
        together.wait()
        return state_key(None, state_of(folder))

    with ThreadPoolExecutor(servers) as pool:
        return list(pool.map(start, range(servers)))


def test_servers_that_start_at_once_agree_on_a_key(tmp_path: Path) -> None:
    """Often enough that they meet in the middle of making it."""
    for folder in (tmp_path / str(attempt) for attempt in range(20)):
        (key,) = set(started_at_once(folder))
        assert state_key(key_in(folder), {}) == key
        assert list(key_in(folder).parent.iterdir()) == [key_in(folder)]


@pytest.mark.parametrize("folder", ["file", "link", "/proc/antiphon"])
def test_where_no_key_can_be_kept_there_is_one_for_now(
    tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    key_in(tmp_path / "link").parent.mkdir(parents=True)
    key_in(tmp_path / "link").symlink_to("nowhere")
    with caplog.at_level(logging.WARNING):
        keys = {state_key(None, state_of(tmp_path / folder)) for _ in range(2)}
    assert [len(key) for key in keys] == [32, 32]
    assert len(caplog.messages) == 2
    assert "--state-key" in caplog.messages[0] and str(tmp_path / folder) in caplog.messages[0]
    assert not any(key.hex() in caplog.text or base64.b64encode(key).decode() in caplog.text for key in keys)
    assert len(list(key_in(tmp_path / "link").parent.iterdir())) == 1


def test_the_user_s_own_file(tmp_path: Path) -> None:
    home = Path.home()
    assert own_file({}, windows=False) == home / ".local/state/antiphon/state-key"
    assert own_file({"XDG_STATE_HOME": ""}, windows=False) == home / ".local/state/antiphon/state-key"
    assert own_file({"XDG_STATE_HOME": "relative"}, windows=False) == home / ".local/state/antiphon/state-key"
    assert own_file(state_of(tmp_path), windows=False) == key_in(tmp_path)
    assert own_file({"LOCALAPPDATA": str(tmp_path)}, windows=True) == key_in(tmp_path)
    assert own_file(state_of(tmp_path), windows=True) == home / "AppData/Local/antiphon/state-key"
