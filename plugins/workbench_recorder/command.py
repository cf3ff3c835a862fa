"""`record`: what an agent asks an API and what it answers, without code in either."""

from __future__ import annotations

from pathlib import Path

from cems_workbench.cli.main import Command
from cems_workbench.cli.terminal import say, say_next, words_of

DEFAULT_PORT = 8770


def record_command(to: list[str], out: Path, port: int = DEFAULT_PORT) -> None:
    """Record what an agent asks an API and what it answers, through a proxy that only you reach; nothing is changed. Give the
    agent its address instead of the API's. `import` reads the file: a query log with recorded answers."""
    from workbench_recorder.proxy import record

    calls = record(to, port, out, lambda line: say(line, err=True))
    say(f"{calls:,} calls recorded")
    if calls:
        say_next(words_of("import", str(out)))


COMMAND = Command("record", record_command, place=19)
