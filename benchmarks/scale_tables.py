"""The tables of benchmarks/RESULTS/scale.md, out of what `bench_scale --json FILE` measured.

    python -m benchmarks.scale_tables FILE [benchmarks/RESULTS/scale.md]

Each is in the document after a line `<!-- bench_scale: NAME -->` and ends before the next empty line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_scale import (
    FUSED_MS,
    LABEL_GROWTH,
    MEMORIES_MS,
    OVER_ENGINES,
    PAINT_S,
    RSS_BYTES,
    SLIDER_GROWTH,
    WANTED,
)
from benchmarks.serving import ROOT

Figures = Mapping[str, Any]
Value = Callable[[Figures], str]
PAGES = {
    "browse and another page": ("browse", "page"),
    "a word that few and that most have": ("search, a rare word", "search, a common word"),
    "its rows, of one that most have": ("search, a common word: its rows",),
    "filter": ("filter",),
    "order": ("order",),
}
MARK = "<!-- bench_scale: {} -->"


def tables(rows: Sequence[Figures]) -> dict[str, str]:
    """Markdown of each table by its name; `rows` are the figures of each size, smallest first."""
    large = rows[-1]
    slider, label = SLIDER_GROWTH * rows[0]["slider_ms"], LABEL_GROWTH * rows[0]["label_ms"]
    memories: list[tuple[str, Value, str]] = [
        (f"{name}, 95 %", _page("page_ms", actions), f"{MEMORIES_MS} ms" if {*actions} <= {*WANTED} else "")
        for name, actions in PAGES.items()
    ]
    memories += [
        (f"{name}, while models and indexes are loaded", _page("loading_ms", actions), "")
        for name, actions in PAGES.items()
    ]
    app: list[tuple[str, Value, str]] = [
        ("first page, from starting the process (an app of one line)", _first_page, f"{PAINT_S:g} s"),
        (
            "cold query until the order of the lists is painted, 95 %",
            lambda one: f"{one['fused_ms']:.0f} ms",
            f"{FUSED_MS} ms",
        ),
        (
            "slider until the ranking is repainted, 95 %",
            lambda one: f"{one['slider_ms']:.0f} ms",
            f"{slider:.0f} ms",
        ),
        ("Label, key until the next card, 95 %", lambda one: f"{one['label_ms']:.0f} ms", f"{label:.0f} ms"),
        ("memory of the app after all that", lambda one: f"{one['rss'] / 1e9:.1f} GB", f"{RSS_BYTES >> 30} GiB"),
        ("`search`, `doctor` from a shell", _commands, ""),
    ]
    building: list[tuple[str, Value]] = [
        ("imported, rows a second; DuckDB alone", _rows),
        ("built, of the processor", lambda one: f"{one['build_s']:,.0f} s"),
        ("… the engines alone", lambda one: f"{one['peer_build_s']:,.0f} s"),
        (f"… ratio (wanted: {OVER_ENGINES:g})", lambda one: f"{one['build_s'] / one['peer_build_s']:.2f}"),
        ("database; DuckDB", _megabytes("database")),
        ("vectors, with those in 8 bits; Chroma", _megabytes("vectors")),
        ("lexical index; bm25s", _megabytes("lexical")),
        (f"… ratio of the disk (wanted: {OVER_ENGINES:g})", _disk),
        ("memory of the process while importing", lambda one: f"{one['import_peak'] / 1e9:.1f} GB"),
    ]
    lists: list[tuple[str, Value]] = [
        ("lexical list", lambda one: _times(one["lexical_ms"]["all"])),
        ("bm25s", lambda one: _times(one["peer_lexical_ms"])),
        ("vector list", lambda one: _times(one["vector_ms"]["all"])),
        ("Chroma", lambda one: _times(one["peer_vector_ms"])),
    ]
    found: list[tuple[str, Value]] = [(name, _seconds("found_s", name)) for name in large["found_s"]]
    found.append(("1,000 new in SentenceTransformer and Chroma alone", _when_measured("peer_new_s")))
    calls: list[tuple[str, Value]] = [(name, _milliseconds("calls_ms", name)) for name in large["calls_ms"]]
    filters = [
        f"| {'without a filter' if name == 'all' else f'{name} pass'} | {_times(large['lexical_ms'][name], ' and ')} | "
        f"{_times(large['vector_ms'][name], ' and ')} | {large['recall'][name]:.4f} |"
        for name in large["lexical_ms"]
    ]
    peers = f"| bm25s, Chroma | {_times(large['peer_lexical_ms'], ' and ')} | {_times(large['peer_vector_ms'], ' and ')} | |"
    return {
        "app": _beside_what_is_wanted(app, rows),
        "memories": _beside_what_is_wanted(memories, rows),
        "building": "\n".join([*_head(rows), *(_line(name, value, rows) for name, value in building)]),
        "pages": "\n".join([*_head(rows), *(_line(name, value, rows) for name, value in calls)]),
        "filters": "\n".join(
            [f"| {large['memories']:,} | lexical | vectors | recall |", "|---|---:|---:|---:|", *filters, peers]
        ),
        "changes": "\n".join([*_head(rows), *(_line(name, value, rows) for name, value in (*found, *lists))]),
    }


def _beside_what_is_wanted(lines: Sequence[tuple[str, Value, str]], rows: Sequence[Figures]) -> str:
    written = (f"{_line(name, value, rows)} {wanted} |".replace("  |", " |") for name, value, wanted in lines)
    return "\n".join([*_head(rows, "wanted"), *written])


def _head(rows: Sequence[Figures], *more: str) -> tuple[str, str]:
    names = [*(f"{one['memories']:,}" for one in rows), *more]
    return f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"


def _line(name: str, value: Value, rows: Sequence[Figures]) -> str:
    return f"| {name} | {' | '.join(value(one) for one in rows)} |"


def _first_page(one: Figures) -> str:
    return f"{one['paint_s']:.2f} s ({one['peer_paint_s']:.2f})"


def _commands(one: Figures) -> str:
    return f"{one['shell_s']['search']:.1f}, {one['shell_s']['doctor']:.1f} s"


def _rows(one: Figures) -> str:
    return f"{one['import_rows_a_second']:,.0f}; {one['peer_rows_a_second']:,.0f}"


def _page(field: str, actions: Sequence[str]) -> Value:
    def value(one: Figures) -> str:
        found = [
            one[field][name] for name in actions if name in one[field]
        ]  # the rows of a search may have been there before
        return ", ".join(f"{ms:.0f}" for ms in found) + " ms" if found else "–"

    return value


def _times(value: Sequence[float], between: str = ", ") -> str:
    return f"{value[0]:.1f}{between}{value[1]:.1f} ms"


def _seconds(field: str, name: str) -> Value:
    return lambda one: f"{one[field][name]:.2f} s"


def _when_measured(field: str) -> Value:
    return lambda one: "–" if one.get(field) is None else f"{one[field]:.2f} s"


def _milliseconds(field: str, name: str) -> Value:
    return lambda one: f"{one[field][name]:.0f}"


def _megabytes(field: str) -> Value:
    return lambda one: f"{one[field] / 1e6:,.0f}; {one[f'peer_{field}'] / 1e6:,.0f} MB"


def _disk(one: Figures) -> str:
    parts = ("database", "vectors", "lexical")
    return f"{sum(one[name] for name in parts) / sum(one[f'peer_{name}'] for name in parts):.2f}"


def put(document: str, made: Mapping[str, str]) -> str:
    """The document with each table in its place. Raises ValueError for one that has no place there."""
    for name, table in made.items():
        pattern = re.compile(rf"({re.escape(MARK.format(name))}\n\n?)(?:\|.*\n)*")
        document, count = pattern.subn(lambda found, table=table: f"{found[1]}{table}\n", document)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"the document has {count} places for the table {name}: {MARK.format(name)}")
    return document


def main() -> int:
    if len(sys.argv) < 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "benchmarks" / "RESULTS" / "scale.md"
    made = tables(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    place.write_text(put(place.read_text("utf-8"), made), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
