"""Record QMD: `qmd search` (its BM25 mode) of every query over one Markdown file a memory.

    python -m benchmarks.record.qmd --data FOLDER --out qmd.json --qmd node_modules/.bin/qmd

A file is named by its memory and holds "# title" and the content, or the content alone. The index lies in a temporary folder, so that the
user's own is left alone. QMD needs Node from 22 on as `node` (seen with @tobilu/qmd 2.8.3). Its command line prints scores with two
digits; `fidelity` takes them to half a unit of the last.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.record.recording import Row, arguments, asked, memories_of, queries_of, result
from benchmarks.record.recording import written as write_recording

COLLECTION = "memories"
_FILE = re.compile(r"qmd://[^/]+/(\d+)\.md")


def write_files(memories: list[Row], folder: Path, titles: bool) -> list[str]:
    """One file a memory, named by its number: an id may hold what a file name cannot. The ids by number."""
    for number, row in enumerate(memories):
        head = f"# {row['title']}\n\n" if titles and row.get("title") else ""
        (folder / f"{number}.md").write_text(f"{head}{row['content']}\n", encoding="utf-8")
    return [row["id"] for row in memories]


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """The output of a command. Raises CalledProcessError with its errors shown."""
    return subprocess.run(command, env=dict(environment), check=True, stdout=subprocess.PIPE, text=True).stdout


def answers(qmd: str, queries: list[Row], ids: list[str], limit: int, environment: Mapping[str, str]) -> Iterator[Row]:
    """What QMD finds for each query."""
    for query in queries:
        out = run([qmd, "search", "--json", "-n", str(limit), "-c", COLLECTION, "--", query["query"]], environment)
        start = out.find("[")
        found = json.loads(out[start:]) if start >= 0 else []
        hits = [(match, row) for row in found if (match := _FILE.fullmatch(row["file"]))]
        yield asked(query, results=[result(ids[int(match[1])], row["score"]) for match, row in hits])


def main() -> None:
    """Index the memories, ask, and write the recording."""
    parser = arguments("Record the answers of `qmd search`.")
    parser.add_argument("--qmd", default="qmd", help="the command")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--titles", action="store_true", help="begin each file with its memory's title")
    given = parser.parse_args()
    qmd = str(Path(given.qmd).resolve()) if os.sep in given.qmd else given.qmd
    with tempfile.TemporaryDirectory(prefix="record-qmd-") as place:
        folder = Path(place) / "files"
        folder.mkdir()
        ids = write_files(memories_of(given.data), folder, given.titles)
        own = {"XDG_CACHE_HOME": f"{place}/cache", "XDG_CONFIG_HOME": f"{place}/config", "HOME": place}
        environment = dict(os.environ) | own
        run([qmd, "collection", "add", str(folder), "--name", COLLECTION], environment)
        said = run([qmd, "--version"], environment).strip().split("\n")[-1]
        found = answers(qmd, queries_of(given.data, given.first), ids, given.limit, environment)
        config = {"mode": "search", "limit": given.limit, "titles": given.titles}
        count = write_recording(given.out, f"@tobilu/qmd: {said}", config, found)
    print(f"{count} answers in {given.out}")


if __name__ == "__main__":
    main()
