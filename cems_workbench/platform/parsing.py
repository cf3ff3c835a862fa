"""Safe parsing of untrusted YAML, JSON, TOML, Python literals and `.env`.

Characters, nesting depth and digits are limited before parsing; a duplicate key is an error that names it; every error is one short line.
YAML anchors and aliases, octals (`010`) and base 60 (`1:30`) are refused; `yes`, `no`, `on` and `off`
are booleans. See docs/internals/decisions/0014-safe-parsing.md.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cems_workbench.errors import InputError, one_line, short

if TYPE_CHECKING:
    from dotenv.parser import Binding

MAX_CHARS = 100_000
"""Limit of a config or another hand-written text; ten times the longest preset."""
MAX_DEPTH = 50
MAX_DIGITS = 1_000
MAX_FILE_BYTES = 500_000_000
"""Limit of a file that is read into memory, such as a bundle or a JSON document."""

_MAX_INT_BITS = 3_322
"""The bits of MAX_DIGITS decimal digits."""
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_TOO_DEEP = f"nested too deeply (more than {MAX_DEPTH} levels)"


def read_text(path: Path, what: str, max_bytes: int = 4 * MAX_CHARS) -> str:
    """The text of a file without its byte order mark. Raises InputError; `what` names the kind of file in it."""
    try:
        with path.open("rb") as file:
            # Not by `stat`: the file may grow, or be a pipe or device without a size.
            raw = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such {what}") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
    if len(raw) > max_bytes:
        raise InputError(f"{path}: larger than {max_bytes:,} bytes, too large for a {what}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if is_duckdb(raw):
            raise InputError(f"{path}: an evidence file or another DuckDB database, not a {what}") from None
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None


def is_duckdb(head: bytes) -> bool:
    """Whether a file that begins so (12 bytes are enough) is a DuckDB database, as evidence files of query sets are."""
    return head[8:12] == b"DUCK"


def decimal_number(text: str) -> Decimal | None:
    """A number with a decimal point or comma, in digits of any width; None for other text."""
    plain = unicodedata.normalize("NFKC", text.strip()).replace("\N{MINUS SIGN}", "-")
    if plain.count(",") == 1 and "." not in plain:
        plain = plain.replace(",", ".")
    return Decimal(plain) if _DECIMAL.fullmatch(plain) else None


def within_length(text: str, source: str, max_chars: int = MAX_CHARS) -> str:
    """`text`, if it is short enough to be parsed. Raises InputError."""
    if len(text) > max_chars:
        raise InputError(f"{source}: {len(text):,} characters; at most {max_chars:,} are read")
    return text


class _Loader(yaml.SafeLoader):
    """Safe loader that also refuses aliases, deep nesting, duplicate keys, and numbers that people and YAML 1.1 read differently."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        # 400 bytes of aliases can expand to gigabytes.
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            found = one_line(f"{sign}{event.anchor}", 40)
            raise _yaml_error(f"anchors and aliases ({found}) are not read; write the value out", event.start_mark)
        # Before the recursion, which would exhaust the stack.
        if self.depth >= MAX_DEPTH:
            raise _yaml_error(_TOO_DEEP, event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _yaml_error(problem: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _yaml_error(f"key {short(key)} is not text; put it in quotes", key_node.start_mark)
        # YAML would keep the last value silently.
        if key in seen:
            raise _yaml_error(f"duplicate key {short(key)}", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    digits = text.lstrip("+-")
    whole = node.tag.endswith(":int")
    if ":" in digits:
        raise _yaml_error(
            f"{one_line(text, 40)} is base 60 in YAML 1.1; write the number itself, or text in quotes", node.start_mark
        )
    # Before the conversion, whose time grows with the square of the digits.
    if whole and len(digits) > MAX_DIGITS:
        raise _yaml_error(f"a number of {len(digits):,} digits", node.start_mark)
    if whole and re.fullmatch(r"0\d+", digits):
        plain = digits.lstrip("0") or "0"
        raise _yaml_error(
            f"{one_line(text, 40)} is octal in YAML 1.1; write {one_line(plain, 40)}, or text in quotes",
            node.start_mark,
        )
    read = yaml.SafeLoader.construct_yaml_int if whole else yaml.SafeLoader.construct_yaml_float
    value: int | float = read(loader, node)
    return value


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


class _ShippedLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's parser, several times as fast; only for files of ours, since it does not refuse what `_Loader` does."""


for _loader in (_Loader, _ShippedLoader):
    # YAML 1.1 reads "1e-3" as text; numbers written by other tools use it.
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def shipped_yaml_values(text: str) -> Any:
    """Plain values of a YAML text that is part of this package."""
    return yaml.load(text, Loader=_ShippedLoader)  # noqa: S506 - a SafeLoader


def yaml_values(text: str, source: str, max_chars: int = MAX_CHARS) -> Any:
    """Plain values of a YAML or JSON text; None if it is empty. Raises InputError."""
    if within_length(text, source, max_chars).lstrip().startswith("{"):
        try:
            return _check_bounds(json.loads(text, object_pairs_hook=_unique_keys), source)
        except json.JSONDecodeError:  # may be YAML in flow style
            pass
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: {_parse_problem(error)}") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{source}:{where} not readable as YAML: {one_line(problem)}") from None
    except (ValueError, RecursionError, OverflowError) as error:  # such as an invalid date: 2020-13-45
        raise InputError(f"{source}: not readable: {_parse_problem(error)}") from None


def json_values(text: str | bytes, source: str, max_chars: int = MAX_CHARS) -> Any:
    """Plain values of a JSON text. Raises InputError."""
    if len(text) > max_chars:
        raise InputError(f"{source}: {len(text):,} characters; at most {max_chars:,} are read")
    try:
        return _check_bounds(json.loads(text, object_pairs_hook=_unique_keys), source)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {_parse_problem(error)}") from None


def toml_values(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises InputError."""
    if _DOTTED.search(_TOML_TEXT.sub("q", within_length(text, source))):  # tomllib is quadratic in their number
        raise InputError(f"{source}: {_TOO_DEEP}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not readable as TOML: {_toml_problem(str(error), text)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: {_parse_problem(error)}") from None
    _check_bounds(values, source)
    return values


_TOML_TEXT = re.compile(r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*')
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}")
_TWICE = re.compile(r"Cannot overwrite a value \(at (?:line (\d+)|end)")


def _toml_problem(message: str, text: str) -> str:
    """The message of tomllib, with the name of a duplicate key, which tomllib omits."""
    if (twice := _TWICE.match(message)) is not None:
        lines = text.rstrip().split("\n")
        number = min(int(twice[1] or len(lines)), len(lines))
        return f"line {number}: duplicate key {short(lines[number - 1].partition('=')[0].strip())}"
    return one_line(f"{message[:1].lower()}{message[1:]}")


def python_literal(text: str, source: str, call: str) -> Any:
    """The literal in the only `call({...})` of a snippet, which is parsed, never executed. Raises InputError."""

    def literal(node: ast.AST) -> ast.expr | None:
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call
        return node.args[0] if isinstance(node, ast.Call) and called and node.args else None

    return _python_literal(text, source, literal, f"{call}({{...}})", call)


def python_assigned(text: str, source: str, name: str) -> Any:
    """The literal in the only `name = {...}` of a snippet, which is parsed, never executed. Raises InputError."""

    def literal(node: ast.AST) -> ast.expr | None:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return None
        target = node.targets[0]
        return node.value if isinstance(target, ast.Name) and target.id == name else None

    return _python_literal(text, source, literal, f"{name} = {{...}}", name)


def _python_literal(
    text: str, source: str, literal: Callable[[ast.AST], ast.expr | None], form: str, needs: str
) -> Any:
    try:
        tree = ast.parse(within_length(text, source))
        found = [value for node in ast.walk(tree) if (value := literal(node)) is not None]
        if len(found) != 1:
            raise InputError(f"{source}: expected one {form}, found {len(found)}")
        for node in ast.walk(found[0]):
            if isinstance(node, ast.Dict):
                # `literal_eval` would keep the last value silently.
                _unique_keys((key.value, None) for key in node.keys if isinstance(key, ast.Constant))
        return _check_bounds(ast.literal_eval(found[0]), source)
    except SyntaxError as error:
        raise InputError(
            f"{source}: line {error.lineno or 1}: not readable as Python: {_parse_problem(error)}"
        ) from None
    except _DuplicateKey as error:
        raise InputError(f"{source}: {error}") from None
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise InputError(f"{source}: {needs} needs a literal: text, numbers, lists and mappings only") from None


def env_bindings(text: str, source: str) -> list[Binding]:
    """The variables of a `.env` text, in order, including duplicates. Raises InputError."""
    import io

    from dotenv.parser import parse_stream

    if _SPACES.search(within_length(text, source)):  # the parser is quadratic in their number
        raise InputError(f"{source}: a run of more than {MAX_SPACES:,} spaces")
    return list(parse_stream(io.StringIO(text)))


MAX_SPACES = 1_000
_SPACES = re.compile(rf"[^\S\r\n]{{{MAX_SPACES}}}")


class _DuplicateKey(ValueError):
    """A duplicate key in a mapping."""


def _unique_keys(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping of pairs. Raises a ValueError that names a duplicate key."""
    values: dict[Any, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _DuplicateKey(f"duplicate key {short(key)}")
        values[key] = value
    return values


def _check_bounds(values: Any, source: str) -> Any:
    """`values`, if they are not nested too deeply and contain no number that is too long. Raises InputError."""
    # Level by level: recursion could exhaust the stack before the limit is seen.
    level, depth = [[values]], 0
    while level:
        if depth > MAX_DEPTH:
            raise InputError(f"{source}: {_TOO_DEEP}")
        below: list[Any] = []
        for container in level:
            for value in container.values() if isinstance(container, dict) else container:
                if isinstance(value, (dict, list, tuple, set)):
                    below.append(value)
                elif type(value) is int and value.bit_length() > _MAX_INT_BITS:
                    raise InputError(f"{source}: a number of more than {MAX_DIGITS:,} digits")
        level, depth = below, depth + 1
    return values


def _parse_problem(error: Exception) -> str:
    """Why a text cannot be parsed, for exceptions other than the parser's own error."""
    if isinstance(error, _DuplicateKey):
        return str(error)
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    text = one_line(str(getattr(error, "msg", error)).split(";")[0])
    return "a number of too many digits" if text.startswith("Exceeds the limit") else text


def parse_datetime(text: str, option: str) -> datetime:
    """An ISO 8601 date or time in UTC; a date is its midnight. Raises InputError, which names `option`."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{option} {text}: expected an ISO 8601 date or time, such as 2026-09-01") from None
