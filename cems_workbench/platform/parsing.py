"""Reading what a stranger may have written: YAML, JSON, TOML, Python literals and `.env`, each by one function.

Every text is bounded before it is parsed, in characters, depth and digits; a key that stands twice is an error that names it; and an
error is one short line, whatever the text holds. YAML loses what makes it dangerous or ambiguous: anchors and aliases, with which 400
bytes become gigabytes, the octal `010` (8 in YAML 1.1, 10 to people) and the base 60 of `1:30` (90). `yes`, `no`, `on` and `off` are true
and false, as people mean them beside a switch; where text is wanted they stand in quotes. See
docs/internals/decisions/0014-one-safe-reading.md.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cems_workbench.errors import InputError, one_line, short

if TYPE_CHECKING:
    from dotenv.parser import Binding

MOST_CHARS = 100_000
"""Of a config or another text that people write by hand; the longest preset has a tenth of it."""
MOST_DEPTH = 50
MOST_DIGITS = 1_000
MOST_FILE_BYTES = 500_000_000
"""Of a file that is read whole, such as a bundle or a JSON document."""

_INT_BITS = 3_322
"""Of `MOST_DIGITS` decimal digits."""
_DEEP = f"nested too deeply (more than {MOST_DEPTH} levels)"


def read_text(path: Path, what: str, most: int = 4 * MOST_CHARS) -> str:
    """The text of a file of at most `most` bytes, without a byte order mark. Raises InputError; `what` is what the file should be."""
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such {what}") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
    if len(raw) > most:
        raise InputError(f"{path}: larger than {most:,} bytes, which no {what} is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None


def bounded(text: str, source: str, most: int = MOST_CHARS) -> str:
    """`text`, where it is short enough to be parsed. Raises InputError."""
    if len(text) > most:
        raise InputError(f"{source}: {len(text):,} characters; at most {most:,} are read")
    return text


class _Loader(yaml.SafeLoader):
    """Safe loader that also refuses aliases, depth, duplicate keys and numbers that people and YAML 1.1 read differently."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            found = one_line(f"{sign}{event.anchor}", 40)
            raise _refused(f"anchors and aliases ({found}) are not read; write the value out", event.start_mark)
        if self.depth >= MOST_DEPTH:
            raise _refused(_DEEP, event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _refused(problem: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _refused(f"key {short(key)} is not text; put it in quotes", key_node.start_mark)
        if key in seen:
            raise _refused(f"duplicate key {short(key)}", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    digits = text.lstrip("+-")
    whole = node.tag.endswith(":int")
    if ":" in digits:
        raise _refused(
            f"{one_line(text, 40)} is base 60 in YAML 1.1; write the number itself, or text in quotes", node.start_mark
        )
    if whole and len(digits) > MOST_DIGITS:
        raise _refused(f"a number of {len(digits):,} digits", node.start_mark)
    if whole and re.fullmatch(r"0\d+", digits):
        plain = digits.lstrip("0") or "0"
        raise _refused(
            f"{one_line(text, 40)} is octal in YAML 1.1; write {one_line(plain, 40)}, or text in quotes",
            node.start_mark,
        )
    read = yaml.SafeLoader.construct_yaml_int if whole else yaml.SafeLoader.construct_yaml_float
    value: int | float = read(loader, node)
    return value


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
# YAML 1.1 reads "1e-3" as text; numbers written by other tools use it.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def yaml_values(text: str, source: str, most: int = MOST_CHARS) -> Any:
    """Plain values of a YAML text, or of JSON, which YAML 1.1 reads but for some escapes; None of an empty one. Raises InputError."""
    if bounded(text, source, most).lstrip().startswith("{"):
        try:
            return _within_bounds(json.loads(text, object_pairs_hook=_unique), source)
        except json.JSONDecodeError:  # then it is YAML in flow style
            pass
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: {_reason(error)}") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{source}:{where} not readable as YAML: {one_line(problem)}") from None
    except (ValueError, RecursionError, OverflowError) as error:  # what looks like a date and is none: 2020-13-45
        raise InputError(f"{source}: not readable: {_reason(error)}") from None


def json_values(text: str | bytes, source: str, most: int = MOST_CHARS) -> Any:
    """Plain values of a JSON text. Raises InputError."""
    if len(text) > most:
        raise InputError(f"{source}: {len(text):,} characters; at most {most:,} are read")
    try:
        return _within_bounds(json.loads(text, object_pairs_hook=_unique), source)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {_reason(error)}") from None


def toml_values(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises InputError."""
    if _DOTTED.search(_TOML_TEXT.sub("q", bounded(text, source))):  # tomllib takes the square of their number
        raise InputError(f"{source}: {_DEEP}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not readable as TOML: {_toml_problem(str(error), text)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {_reason(error)}") from None
    _within_bounds(values, source)
    return values


_TOML_TEXT = re.compile(r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*')
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MOST_DEPTH}}}")
_TWICE = re.compile(r"Cannot overwrite a value \(at (?:line (\d+)|end)")


def _toml_problem(message: str, text: str) -> str:
    """What tomllib says, with the key that it does not name where one stands twice."""
    if (twice := _TWICE.match(message)) is not None:
        lines = text.rstrip().split("\n")
        number = min(int(twice[1] or len(lines)), len(lines))
        return f"line {number}: duplicate key {short(lines[number - 1].partition('=')[0].strip())}"
    return one_line(f"{message[:1].lower()}{message[1:]}")


def python_literal(text: str, source: str, call: str) -> Any:
    """The literal in the one `call({...})` of a snippet, which is read, never executed. Raises InputError."""
    try:
        tree = ast.parse(bounded(text, source))
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call and node.args
        ]
        if len(calls) != 1:
            raise InputError(f"{source}: expected one {call}({{...}}), found {len(calls)}")
        for node in ast.walk(calls[0].args[0]):
            if isinstance(node, ast.Dict):
                _unique((key.value, None) for key in node.keys if isinstance(key, ast.Constant))
        return _within_bounds(ast.literal_eval(calls[0].args[0]), source)
    except SyntaxError as error:
        raise InputError(f"{source}: line {error.lineno or 1}: not readable as Python: {_reason(error)}") from None
    except _DuplicateKey as error:
        raise InputError(f"{source}: {error}") from None
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise InputError(f"{source}: {call} needs a literal: text, numbers, lists and mappings only") from None


def env_bindings(text: str, source: str) -> list[Binding]:
    """The variables of a `.env` text, in order; one that stands twice is left to the caller, as every reader takes the last."""
    import io

    from dotenv.parser import parse_stream

    if _SPACES.search(bounded(text, source)):  # the parser takes the square of their number
        raise InputError(f"{source}: a run of more than {MOST_SPACES:,} spaces")
    return list(parse_stream(io.StringIO(text)))


MOST_SPACES = 1_000
_SPACES = re.compile(rf"[^\S\r\n]{{{MOST_SPACES}}}")


class _DuplicateKey(ValueError):
    """A key stands twice in one mapping."""


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping of pairs. Raises a ValueError that names a key which stands twice."""
    values: dict[Any, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _DuplicateKey(f"duplicate key {short(key)}")
        values[key] = value
    return values


def _within_bounds(values: Any, source: str) -> Any:
    """`values`, where they are not too deep and no number in them is too long. Raises InputError."""
    level, depth = [[values]], 0
    while level:
        if depth > MOST_DEPTH:
            raise InputError(f"{source}: {_DEEP}")
        below: list[Any] = []
        for container in level:
            for value in container.values() if isinstance(container, dict) else container:
                if isinstance(value, (dict, list, tuple, set)):
                    below.append(value)
                elif type(value) is int and value.bit_length() > _INT_BITS:
                    raise InputError(f"{source}: a number of more than {MOST_DIGITS:,} digits")
        level, depth = below, depth + 1
    return values


def _reason(error: Exception) -> str:
    """Why a text cannot be read, of what a parser raised beside its own error."""
    if isinstance(error, _DuplicateKey):
        return str(error)
    if isinstance(error, RecursionError):
        return _DEEP
    text = one_line(str(getattr(error, "msg", error)).split(";")[0])
    return "a number of too many digits" if text.startswith("Exceeds the limit") else text


def moment_of(text: str, where: str) -> datetime:
    """An ISO 8601 moment in UTC; a bare date is its midnight. Raises InputError; `where` is what the text was given for."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{where} {text}: expected an ISO 8601 date or time, such as 2026-09-01") from None
