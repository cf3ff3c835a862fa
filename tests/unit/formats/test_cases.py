"""Files as people have them, one case a file or folder in `cases/*.json`: the rows that are read of it, and what is said of the others.

A case has the lines of its file (`holds`; an object is a line of JSON) or of each file of its folder; `found` is what was read, without
the fields that are at their default, or `refused` is the line of the refusal. `report` is where the case was seen.
A reading that is meant to change: `python -m tests.unit.formats.test_cases` writes `found` and `refused` anew; read the difference.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read, read_path
from cems_workbench.records import RowError
from workbench_fidelity.recordings import parse_recording

FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def facts(value: Any, folder: Path) -> Any:
    """`value` as JSON has it: records by the fields that are not at their default, errors as their line, paths below `folder`."""
    if isinstance(value, RowError):
        return facts(str(value), folder)
    if is_dataclass(value):
        named = {each.name: (getattr(value, each.name), each) for each in fields(value)}
        return {name: facts(item, folder) for name, (item, each) in named.items() if item != default_of(each)}
    if isinstance(value, Mapping):
        return {str(key): facts(item, folder) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [facts(item, folder) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.replace(f"{folder}/", "") if isinstance(value, str) else value


def default_of(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def text_of(lines: list[Any] | dict[str, str]) -> bytes:
    if isinstance(lines, dict):
        return lines["latin-1"].encode("latin-1")
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()


def make(path: Path, holds: Any) -> None:
    """The file or folder of a case; a folder with nothing in it holds None."""
    if (isinstance(holds, dict) and "latin-1" not in holds) or holds is None:
        path.mkdir(parents=True, exist_ok=True)
        for name, inner in (holds or {}).items():
            make(path / name, inner)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text_of(holds))


def outcome(case: dict[str, Any], home: Path) -> dict[str, Any]:
    """`found` or `refused` of a case."""
    folder = home / "home"  # names of conversations have that of the folder around them
    try:
        if "recording" in case:
            return {
                "found": facts(
                    parse_recording(text_of(case["recording"]).decode(), case.get("name", "answers")), folder
                )
            }
        path = folder / case["path"]
        make(path, case["holds"])
        if case.get("detect"):
            return {"found": detect(path)}
        read_one = read_path if path.is_dir() else read
        found = facts(read_one(path, case.get("format", "auto")), folder)
    except InputError as error:
        return {"refused": facts(str(error), folder)}
    for parsed in found if isinstance(found, list) else [found]:
        parsed.pop("source")
        if not case.get("rows"):
            parsed.pop("extra", None)
    return {"found": found}


def all_cases() -> Iterable[Any]:
    for file in FILES:
        for name, cases in json.loads(file.read_text("utf-8")).items():
            for number, case in enumerate(cases, 1):
                yield pytest.param(case, id=f"{file.stem}: {name} {number} {case.get('path', '')}")


@pytest.mark.parametrize("case", list(all_cases()))
def test_file_is_read_as_its_case_says(case: dict[str, Any], tmp_path: Path) -> None:
    expected = {name: case[name] for name in ("found", "refused") if name in case}
    assert outcome(case, tmp_path) == expected


DEEPEST = {"holds": 4, "recording": 4, "found": 6}
"""How deep the lines of a file and the records of a folder are."""


def laid_out(value: Any, depth: int = 0, deepest: int = 5) -> str:
    """JSON with a line for each line of a file and each record, and no line broken below it."""
    whole = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth == deepest or len(whole) < 100 or not isinstance(value, dict | list):
        return whole if whole.isprintable() else json.dumps(value)
    inner = "  " * (depth + 1)
    items = (
        [
            f"{json.dumps(key)}: {laid_out(item, depth + 1, DEEPEST.get(key, 5) if isinstance(item, list) else deepest)}"
            for key, item in value.items()
        ]
        if isinstance(value, dict)
        else [laid_out(item, depth + 1, deepest) for item in value]
    )
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{inner}" + f",\n{inner}".join(items) + f"\n{'  ' * depth}{closed}"


if __name__ == "__main__":
    for file in FILES:
        groups = json.loads(file.read_text("utf-8"))
        for case in (one for cases in groups.values() for one in cases):
            with tempfile.TemporaryDirectory() as home:
                told = outcome(case, Path(home))
            for name in ("found", "refused"):
                case.pop(name, None)
            case.update(told)
        file.write_text(laid_out(groups) + "\n", "utf-8")
