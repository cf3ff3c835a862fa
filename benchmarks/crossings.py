"""Which modules a query crosses on its way through `search`, and how often it comes back to one that it had left.

    python -m benchmarks.crossings [QUERY] [--store STORE]

The command `search` runs once on a copy of the sample, with the default config and a query that the copy has not met. Counted are calls
from one function of `cems_workbench` to another that carry the query: an argument (`self` too) is its text, or an object or a collection
that has the text in a field or as an element, as a `Request`, `Evidence` and a list of texts have. Each pair of calling and called function
counts once, where it occurs first, so that no loop over candidates counts. The modules of the called functions, in order and with
repetitions in a row counted once, are the steps; a step into a module of an earlier step is a return: steps = modules + returns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.alternate import ROOT

PACKAGE = f"{ROOT}/cems_workbench/"
QUERY = "Who agreed to move the nightly backup of harbor?"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that carries the query: the module and name of the called function, and the names of the arguments that carry it."""

    module: str
    function: str
    names: tuple[str, ...]


def carries(value: Any, query: str) -> bool:
    """Whether a value is the text of the query, or has it in a field or as an element."""
    if isinstance(value, str):
        return value == query
    if isinstance(value, dict):
        value = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name, None) for field in fields(value)]
    elif not isinstance(value, (tuple, list)):
        return False
    return any(isinstance(each, str) and each == query for each in value)


def traced(query: str, store: Path) -> list[Call]:
    """The calls of `search` that carry the query, in order, each pair of functions once."""
    from cems_workbench.cli.options import AskedInFull, ConfigChoice
    from cems_workbench.cli.query import search_command

    calls: dict[tuple[CodeType | None, CodeType], Call] = {}

    def follow(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        pair = caller.f_code if caller is not None else None, code
        if pair in calls:
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if names := tuple(name for name in arguments if carries(frame.f_locals.get(name), query)):
            calls[pair] = Call(code.co_filename.removeprefix(PACKAGE), code.co_qualname, names)

    sys.setprofile(follow)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            search_command(query, choice=ConfigChoice(), asked=AskedInFull(), store=store)
    finally:
        sys.setprofile(None)
    return list(calls.values())


def steps_of(calls: list[Call]) -> list[list[Call]]:
    """The calls by step: those in a row that are of one module."""
    steps: list[list[Call]] = []
    for call in calls:
        if steps and steps[-1][0].module == call.module:
            steps[-1].append(call)
        else:
            steps.append([call])
    return steps


def main(arguments: list[str] | None = None) -> None:
    """Print the path, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="?", default=QUERY)
    parser.add_argument("--store", type=Path, help="search this store instead of a new one of the sample")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        store = given.store
        if store is None:
            store = Path(folder) / "store"
            command = ("-m", "cems_workbench", "--no-serve", "import", "sample_data", "--store", str(store))
            subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
        steps = steps_of(traced(given.query, store))
    visits: Counter[str] = Counter()
    for number, step in enumerate(steps, 1):
        module = step[0].module
        print(f"{number:3} {'back' if visits[module] else '    '} {module}")
        visits[module] += 1
        for call in step:
            print(f"              {call.function}({', '.join(call.names)})")
    names = {name for step in steps for call in step for name in call.names}
    print(f"\n{len(visits)} modules in {len(steps)} steps, {len(steps) - len(visits)} returns, {len(names)} names")
    print("most visits: " + ", ".join(f"{module} {count}" for module, count in visits.most_common(5)))


if __name__ == "__main__":
    main()
