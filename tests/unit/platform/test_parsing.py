"""What a stranger wrote is bounded before it is parsed, and refused in one line within a second."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cems_workbench.config.forms.files import import_config, load_import
from cems_workbench.errors import InputError, short
from cems_workbench.pipeline.bundle import read_bundle
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
