"""`serve`: a command answered by a process that stayed behind is the command run alone, and nothing depends on that process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cems_workbench.cli.serve import serve_check
from cems_workbench.serve.client import _older, answer
from cems_workbench.serve.wire import Directory, NotServed, answering, servers, store_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="no Unix sockets that name their peer")

STUB = """from cems_workbench.serve import client, server; server.COMMANDS = server.KEEPER = 'tests.served_commands'
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
"""
SERVER = f"""{STUB}
environment = dict(os.environ)
server.Server(server.Address(sys.argv[1], environment), server.Directory(environment), float(sys.argv[2])).serve()
"""
CLIENT = f"""{STUB}
code = client.answer()
if code is not None:
    sys.exit(code)
os.environ["SERVED_HERE"] = "no"
from tests.served_commands import main
main()
"""
Started = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Starts Python with some code in a directory with a runtime directory; what it left behind is ended."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("CEMS_WORKBENCH_SERVE", "on")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    processes = []

    def start(*words: str, **variables: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, *words], stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **variables}
        )
        processes.append(process)
        return process

    yield start
    for status in servers():
        os.kill(status["pid"], signal.SIGKILL)
    for process in processes:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[bytes], typed: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a process."""
    out, err = process.communicate(typed, timeout=60)
    return process.returncode, out, err


def until(true: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def serving(store: Path) -> dict[str, int]:
    """The status of the server of a store, once it answers."""
    until(lambda: answering(str(store)))
    return answering(str(store)) or {}


def test_served_command_has_streams_directory_and_environment_of_its_client(started: Started, tmp_path: Path) -> None:
    started("-c", SERVER, str(tmp_path), "60")
    serving(tmp_path)
    words = ["-c", CLIENT, "search", "ß \udcff", f"--store={tmp_path}"]
    for variables in ({}, {"NO_COLOR": "1", "COLUMNS": "43"}):
        served = finished(started(*words, **variables), b"typed")
        assert served == finished(started(*words, **variables, CEMS_WORKBENCH_SERVE="off"), b"typed")
        assert served[0] == 3
    assert serving(tmp_path)["commands"] == 2
    assert finished(started(*words, CEMS_WORKBENCH_PRESET="workbench"))[0] == 3
    assert serving(tmp_path)["commands"] == 2, "another environment is another server's"


def test_interrupt_of_the_client_interrupts_the_served_command(started: Started, tmp_path: Path) -> None:
    started("-c", SERVER, str(tmp_path), "60")
    serving(tmp_path)
    client = started("-c", CLIENT, "search", "wait", f"--store={tmp_path}")
    until((tmp_path / "begun").exists)
    client.send_signal(signal.SIGINT)
    assert finished(client) == (130, b"", b"interrupted\n")


def test_command_runs_itself_when_its_server_dies_or_hangs(started: Started, tmp_path: Path) -> None:
    started("-c", SERVER, str(tmp_path), "60")
    serving(tmp_path)
    code, out, _ = finished(started("-c", CLIENT, "search", "die", f"--store={tmp_path}"))
    assert (code, b"'die'" in out) == (3, True)
    started("-c", SERVER, str(tmp_path), "60")
    stopped = serving(tmp_path)["pid"]
    os.kill(stopped, signal.SIGSTOP)
    assert finished(started("-c", CLIENT, "search", "x", f"--store={tmp_path}"))[0] == 3
    until(lambda: not servers())


def test_server_ends_after_idle_time_and_when_it_is_told(started: Started, tmp_path: Path) -> None:
    idle = started("-c", SERVER, str(tmp_path), "0.3")
    assert idle.wait(30) == 0
    asked = started("-c", SERVER, str(tmp_path), "60")
    assert serving(tmp_path)["pid"] == asked.pid
    assert [one["pid"] for one in servers(str(tmp_path), stop=True)] == [asked.pid]
    assert asked.wait(30) == 0
    assert not list((tmp_path / "run" / "cems-workbench").iterdir())


def test_other_users_are_refused(started: Started, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can be another user")
    started("-c", SERVER, str(tmp_path), "60")
    serving(tmp_path)
    directory = tmp_path / "run" / "cems-workbench"
    (file,) = directory.iterdir()
    ask_it = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); import socket; from cems_workbench.serve.wire import Wire\n"
        "os.chdir(os.path.dirname(sys.argv[1])); os.setgid(12345); os.setuid(12345)\n"
        "wire = Wire(socket.socket(socket.AF_UNIX)); wire.socket.connect(os.path.basename(sys.argv[1]))\n"
        "try:\n    wire.send({'do': 'status'}); print(wire.receive())\nexcept ConnectionError:\n    print(None)"
    )
    outside = finished(started("-c", ask_it, str(file), str(ROOT)))
    assert b"PermissionError" in outside[2]
    # Without the directory in between, the server itself refuses.
    for folder in [directory, *directory.parents]:
        folder.chmod(folder.stat().st_mode | 0o011)
    file.chmod(0o777)
    assert finished(started("-c", ask_it, str(file), str(ROOT)))[1] == b"None\n"
    directory.chmod(0o700)


def test_directory_of_another_user_or_open_to_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    place = tmp_path / "cems-workbench"
    place.mkdir(mode=0o700)
    place.chmod(0o755)
    with pytest.raises(NotServed, match="can be opened by one"):
        Directory(environment)
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(NotServed, match="no directory of this user"):
        Directory(environment)


def test_system_that_names_no_peer_serves_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_SERVE", "on")
    monkeypatch.delattr(socket, "SO_PEERCRED")
    check = serve_check(str(tmp_path))
    assert (check.status, "no Unix sockets" in check.finding) == ("optional", True)
    monkeypatch.setattr("sys.argv", ["cems-workbench", "search", "q"])
    assert answer() is None


def test_older_or_other_state_of_a_store_is_refused() -> None:
    assert _older(["a", 4, 1], ["a", 5]) and _older(["b", 9, 1], ["a", 5])
    assert not _older(["a", 5, 1], ["a", 5]) and not _older(None, ["a", 5])


def test_store_is_found_as_the_command_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_of(["search", "q"], {}) == os.path.join(".workbench", "store")
    Path(".env").write_text("export cems_workbench_store = 'c'\n")
    assert store_of(["search", "q"], {}) == "c"
    assert store_of(["search", "q"], {"CEMS_WORKBENCH_STORE": "b"}) == "b"
    assert store_of(["search", "q", "--store=a"], {"CEMS_WORKBENCH_STORE": "b"}) == "a"


@pytest.mark.thorough
def test_first_search_leaves_a_process_that_answers_alike_and_knows_every_edit(started: Started, store: Path) -> None:
    def run(*words: str, serve: str = "on") -> tuple[int, bytes, bytes]:
        plain = ["-m", "cems_workbench", *words, "--store", str(store)]
        code, out, err = finished(started(*plain, CEMS_WORKBENCH_SERVE=serve))
        return code, out, re.sub(rb"(?m)^\w+: \d+ of \d+.*\n", b"", err)  # progress, if it takes long

    search = ["search", "how do we roll back a failed deploy?", "--as-of=2026-01-01", "--set=rerank.backend=none"]
    first = run(*search)
    pid = serving(store)["pid"]
    assert first[0] == 0
    assert run(*search) == first == run(*search, serve="off")
    missing = run("why", search[1], "no-such-memory", "--json")
    assert missing[0] == 2
    assert missing == run("why", search[1], "no-such-memory", "--json", serve="off")
    checks = json.loads(run("doctor", "--json")[1])
    assert any(check["name"] == "serve" and f"pid {pid}" in check["finding"] for check in checks)

    note = store.parent / "note.md"
    note.write_text("# Roll back a failed deploy\n\nWe roll back a failed deploy with the zebra command.\n")
    assert run("import", str(note))[0] == 0
    edited = run(*search)
    assert b"zebra" in edited[1]
    assert serving(store) | {"ends_in_s": 0} == serving(store) | {"pid": pid, "commands": 4, "ends_in_s": 0}
