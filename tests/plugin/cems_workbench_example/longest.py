"""A command: the memories with the longest texts."""

from __future__ import annotations

from typing import Annotated

import typer

from cems_workbench.cli.main import Command
from cems_workbench.cli.options import StoreOption, open_existing_store
from cems_workbench.cli.terminal import say


def longest(
    shown: Annotated[int, typer.Option("--show", min=1, help="Number of memories.")] = 10, store: StoreOption = None
) -> None:
    """List the memories with the longest texts."""
    with open_existing_store(store) as opened:
        lengths = {memory.id: len(memory.content) for memory in opened.memories.read().values()}
    for memory_id in sorted(lengths, key=lambda memory_id: (-lengths[memory_id], memory_id))[:shown]:
        say(f"{lengths[memory_id]:6} {memory_id}")


COMMAND = Command("longest", longest)
