"""What an agent reads before it asks, and what a call costs: bytes of MCP's list of tools, processor milliseconds of each tool.

    python -m benchmarks.bench_mcp [--store STORE] [--runs 7] [--against COMMIT]

The store holds the sample data; without one only bytes are printed. Bytes are those of the reply as `json.dumps` writes it. Every call
is warm: it was made once before; the median of the runs is printed. With a commit its code is measured too, in turns, and each side
imports the sample data into its own store: an earlier commit cannot open a store of today.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.types import ListToolsResult, Tool

QUERY = {"query": "when are we moving house", "as_of": "2026-07-01"}
CHANGES = {"changes": {"lists.vector.weight": 2.0}}
SET = {"query_set": "all", "queries": 20, "config": "cems", "seconds": 600}
CALLS: dict[str, dict[str, Any]] = {
    "overview": {},
    "find_memories": {"words": "tea"},
    "read_memory": {"memory_id": "m312"},
    "search": {**QUERY, "explain": True},
    "why": {**QUERY, "memory_id": "m312"},
    "blame": {**QUERY, "text": "We move house on 1 October."},
    "what_if": {**QUERY, **CHANGES},
    "what_if_memory": {**QUERY, "memory_id": "m312", "content": "We stay."},
    "parameters": {"section": "fusion"},
    "evaluate": SET,
    "compare": {**SET, **CHANGES},
    "memory": {**SET, "memory_id": "m312"},
    "losses": SET,
}


def listed(tools: Sequence[Tool]) -> dict[str, Any]:
    """The reply to `tools/list`."""
    return ListToolsResult(tools=[*tools]).model_dump(mode="json", by_alias=True, exclude_none=True)


def listed_bytes(tools: Sequence[Tool]) -> int:
    """The bytes of that reply."""
    return len(json.dumps(listed(tools), ensure_ascii=False).encode())


async def measured(store: Path, runs: int) -> dict[str, float]:
    """Bytes, and processor milliseconds by tool where the store exists, of the package that this process imports."""
    # Commits differ in the module that ServedStore is in; each server imports it.
    from cems_workbench.mcp.server import ServedStore, WorkbenchServer  # type: ignore[attr-defined]

    async with Client(WorkbenchServer(ServedStore(store))) as client:
        tools = (await client.list_tools()).tools
        figures: dict[str, float] = {"bytes of list_tools": listed_bytes(tools)}
        for key in ("inputSchema", "outputSchema", "description"):
            figures[f"  {key}"] = sum(len(json.dumps(tool[key])) for tool in listed(tools)["tools"] if key in tool)
        for name, arguments in CALLS.items() if store.is_dir() else ():
            spent = []
            for _ in range(runs + 1):
                start = time.process_time()
                found = await client.call_tool(name, arguments)
                spent.append(1000 * (time.process_time() - start))
                assert not found.is_error, found.content
            figures[f"{name}, ms"] = statistics.median(spent[1:])
    return figures


def of_checkout(checkout: Path, store: Path, runs: int) -> dict[str, float]:
    """The figures of another checkout, by this script, on a store into which its code imports the sample data the first time."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "CEMS_WORKBENCH_SERVE": "off"}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments, "--store", str(store)]
        return subprocess.run(
            command, cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE
        ).stdout.decode()

    if not store.is_dir():
        run("-m", "cems_workbench", "import", "sample_data")
    return dict(json.loads(run(__file__, "--runs", str(runs), "--json")))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "no-store")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.json:
        print(json.dumps(anyio.run(measured, chosen.store, chosen.runs)))
    elif chosen.against is None:
        for name, value in anyio.run(measured, chosen.store, chosen.runs).items():
            print(f"{name:24}{value:10,.1f}")
    else:
        from benchmarks.alternate import ROOT, earlier

        with earlier(chosen.against) as checkout, tempfile.TemporaryDirectory() as stores:
            sides = [of_checkout(folder, Path(stores) / folder.name, chosen.runs) for folder in 2 * (checkout, ROOT)]
        for name in sides[0]:
            before, now = (min(sides[i][name], sides[i + 2][name]) for i in (0, 1))
            print(f"{name:24}{before:10,.1f}{now:10,.1f}  {now / before if before else 1:.2f}")


if __name__ == "__main__":
    main()
