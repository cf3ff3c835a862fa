"""Files: bounded before they are parsed, written atomically; and long collections of garbage."""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cems_workbench.config.forms.files import import_config, load_import
from cems_workbench.errors import InputError, short
from cems_workbench.pipeline.bundle import read_bundle
from cems_workbench.platform import start_up
from cems_workbench.platform.atomic_write import output_path, write_atomically, write_text
from cems_workbench.platform.parsing import MAX_CHARS, MAX_DEPTH, json_values, yaml_values

MANY = MAX_CHARS - 1_000


def nine_nested_aliases(path: str) -> str:
    """383 bytes that stand for 9^9 values, as the value of one key."""
    steps = ["&a0 [x, x, x, x, x, x, x, x, x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))]
    *sections, leaf = path.split(".")
    head = "".join(f"{'  ' * depth}{section}:\n" for depth, section in enumerate(sections))
    return f"version: 1\n{head}{'  ' * len(sections)}{leaf}: [{', '.join(steps)}]\n"


@pytest.mark.parametrize("path", ["name", "lists", "fusion", "rerank", "fusion.k", "rerank.bands"])
def test_nested_aliases_are_one_line(path: str) -> None:
    with pytest.raises(
        InputError, match=r"x\.yaml: line \d not readable as YAML: anchors and aliases \(&a0\) are not read"
    ):
        import_config(nine_nested_aliases(path), source="x.yaml")


HOSTILE = {
    "yaml: brackets": ("x.yaml", "[" * MANY),
    "yaml: braces": ("x.yaml", "{" * MANY),
    "yaml: hexadecimal": ("x.yaml", "fusion: {k: 0x" + "f" * MANY + "}"),
    "yaml: tag": ("x.yaml", "!" * MANY + " a"),
    "yaml: key": ("x.yaml", "\x1b[31mk" * 10_000 + ": 1"),
    "yaml: too large": ("x.yaml", "#" * (MAX_CHARS + 1)),
    "json: deep": ("x.json", '{"fusion":' * (MANY // 10)),
    "json: deep and whole": ("x.json", '{"a":' * 60 + "1" + "}" * 60),
    "json: digits": ("x.json", '{"fusion": {"k": ' + "1" * MANY + "}}"),
    "json: twice": ("x.json", '{"name": "a", "name": "b"}'),
    "toml: dotted": ("x.toml", "a." * (MANY // 2) + "a = 1"),
    "toml: dotted in a table": ("x.toml", "x = {" + '"a" . ' * (MANY // 6) + "a = 1}"),
    "toml: hexadecimal": ("x.toml", "version = 0x" + "f" * MANY),
    "toml: digits": ("x.toml", "version = " + "1" * MANY),
    "toml: brackets": ("x.toml", "a = " + "[" * MANY),
    "toml: twice": ("x.toml", 'name = "a"\nname = "b"'),
    "python: digits": ("x.py", "config_from({'version': " + "1" * MANY + "})"),
    "python: hexadecimal": ("x.py", "config_from({'version': 0x" + "f" * MANY + "})"),
    "python: twice": ("x.py", "config_from({'name': 'a', 'name': 'b'})"),
    "python: minus": ("x.py", "config_from(" + "-" * MANY + "1)"),
    "python: deep": ("x.py", "config_from(" + "{'a':" * 60 + "1" + "}" * 60 + ")"),
    "env: spaces": ("x.env", "CEMS_A=a" + " " * MANY + "b"),
    "env: quotes": ("x.env", "CEMS_A='" * (MANY // 8)),
    "any: blank lines": ("x", "\n" * MANY + "{"),
}


@pytest.mark.parametrize(("name", "text"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_config_is_one_short_line_within_a_second(name: str, text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        import_config(text, source=name)
    assert time.process_time() - began < 1
    line = str(caught.value)
    assert line.startswith(f"{name}:") and line.isprintable() and len(line) < 500


def test_a_key_that_stands_twice_is_named() -> None:
    for name in ("json", "toml", "python"):
        source, text = HOSTILE[f"{name}: twice"]
        with pytest.raises(InputError, match=r"duplicate key '?name"):
            import_config(text, source=source)


def test_answers_are_truth_beside_a_switch_and_text_in_quotes() -> None:
    read = import_config("name: 'no'\ndedup: {enabled: yes}", source="x.yaml").config
    assert read.name == "no" and read.dedup.enabled is True
    assert yaml_values("k: [on, off, yes, no, '010', '1:30', 0x10, 0b11, 1_000]", "x") == {
        "k": [True, False, True, False, "010", "1:30", 16, 3, 1000]
    }


def test_nesting_up_to_the_bound_is_read() -> None:
    for values in (yaml_values, json_values):
        assert values("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x")
        with pytest.raises(InputError, match="nested too deeply"):
            values("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "x")


def test_a_value_is_never_written_out_whole() -> None:
    shared: object = ["x"] * 9
    for _ in range(30):
        shared = [shared] * 9
    for value in (shared, "x" * 10**6, int("0x" + "f" * 10**5, 16), {"k": "x" * 10**6}):
        assert len(short(value)) <= 60


def test_an_endless_file_is_read_to_its_bound(tmp_path: Path) -> None:
    endless = tmp_path / "c.yaml"
    endless.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="larger than 400,000 bytes, too large for a config file"):
        load_import(endless)


def test_a_bundle_is_bounded_in_depth_and_names_what_stands_twice(tmp_path: Path) -> None:
    bundle = tmp_path / "b.json"
    bundle.write_text(json.dumps({"notes": json.loads('{"a":' * 80 + "1" + "}" * 80)}))
    with pytest.raises(InputError, match="nested too deeply"):
        read_bundle(bundle)
    bundle.write_text('{"format": 1, "format": 2}')
    with pytest.raises(InputError, match="duplicate key 'format'"):
        read_bundle(bundle)


PACKAGE = Path(__file__).parents[3] / "cems_workbench"
NOT_ATOMIC = {
    "platform/sqlite_copy.py": "a private copy in a folder of its own",
    "store/search/chroma.py": "the number of changes",
    "store/search/directory.py": "a new index, in a directory that becomes current when complete",
    "serve/server.py": "the name of its process, for the system",
    "store/claims.py": "claims on cards, worthless once their process has ended",
    "store/database.py": "the count of commits",
    "jobs/traces.py": "rows of a file that is written atomically",
    "formats/base/files.py": "an unpacked copy, in a temporary directory",
}
WRITES = re.compile(r"\.write_(text|bytes)\(|open\([^)]*[\"'][wax]b?[\"']|np\.save\(|np\.savez\(|to_csv\(")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit files of this process to `size` bytes: a real failure in the middle of a write, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_the_good_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    write_text(path, "good")
    path.chmod(0o640)
    with pytest.raises(InputError) as caught, files_of_at_most(1_000):
        write_text(path, "x" * 100_000)
    assert str(caught.value) == f"{path}: cannot be written: File too large"
    assert path.read_text() == "good" and os.listdir(tmp_path) == ["run.txt"]
    write_text(path, "better")
    assert path.read_text() == "better" and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(InputError, match="is not UTF-8"):
        write_text(path, "half an emoji \ud83d")
    assert path.read_text() == "better"


def test_what_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "away" / "x", "No such file or directory"),
        (tmp_path / "file" / "x", "Not a directory"),
        (Path("/proc/nothing"), "cannot be written"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            write_text(path, "x")
        assert "\n" not in str(caught.value)
    write_text(tmp_path / ("y" * 250), "a name as long as names may be")


def test_links_are_followed_and_devices_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "text"
    write_text(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_a_folder_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), write_atomically(tmp_path / "set", directory=True) as part:
        (part / "one").touch()
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with output_path(tmp_path / "set", directory=True) as part:
        (part / "one").touch()
    assert os.listdir(tmp_path) == ["set"]


def test_files_are_written_atomically() -> None:
    direct = set()
    for file in PACKAGE.rglob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            if WRITES.search(line) and not re.search(r"\b(part|place)\.(open|write_)", line):
                direct.add(str(file.relative_to(PACKAGE)))
    # These write into a file that was opened atomically.
    assert direct - NOT_ATOMIC.keys() <= {"formats/base/format.py", "pipeline/text_pieces.py", "tuning/scorer.py"}, (
        "use platform/atomic_write.py"
    )


FULL, YOUNG = {"generation": 2}, {"generation": 0}


class Clock:
    """Seconds, as they are set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the collector was told, in order."""
    told: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: told.append("unfreeze"))
    return told


def test_what_a_long_collection_leaves_is_left_out_and_looked_through_again_after_a_while(done, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(start_up, "time", clock)
    watch = start_up._FreezeLongLived()

    def collected(seconds: float, info: dict[str, int] = FULL) -> list[str]:
        done.clear()
        watch("start", info)
        clock.now += seconds
        watch("stop", info)
        return done

    assert collected(start_up.FREEZE_AFTER_S / 2) == []
    assert collected(start_up.FREEZE_AFTER_S * 2, YOUNG) == []
    assert collected(start_up.FREEZE_AFTER_S * 2) == ["freeze"]
    clock.now += start_up.REFREEZE_EVERY_S
    assert collected(start_up.FREEZE_AFTER_S / 2) == ["unfreeze"]
    assert collected(start_up.FREEZE_AFTER_S / 2) == []
    assert collected(start_up.FREEZE_AFTER_S * 2) == ["freeze"]


def test_it_is_watched_once_however_many_pages_ask() -> None:
    for _ in range(3):
        start_up.watch()
    assert sum(isinstance(each, start_up._FreezeLongLived) for each in gc.callbacks) == 1
