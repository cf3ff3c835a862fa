"""The app and its database at 10,000, 100,000 and 1,000,000 memories: what grows with the store, and what does not.

    python -m benchmarks.bench_scale [--sizes 10000,100000,1000000] [--stores DIR] [--store PATH] [--json FILE]

For each size a store is made of the first memories of one endless row (scale_memories.py), in a separate process, with vectors made
beforehand, queries and labels: import in rows a second, and what building takes of the processor and of the disk, beside the engines alone:
the same rows in DuckDB, the same vectors in Chroma with the same graph, the same texts in bm25s. When all are built the app is started on
each, with Chromium before it: the first page (beside a Streamlit app of one line), browsing, filtering, paging and searching on Memories,
at once and when models and indexes are loaded, a cold query until the order of the lists is painted, and the memory of the process; and
`search` and `doctor` from a shell. Then both lists with filters, and what changes take until both have them (scale_lists.py), beside
Chroma's and bm25s' own queries, in turn. At last labels and a slider, on all stores in turn. Stores are made with the embedder in 8 bits,
and each is asked with that of its vectors. Stores and engines are kept in --stores and used again; --store measures one that is there. More
of the lists alone, on other texts, is in scale_lexical.py and scale_vectors.py.

Times are the page's whole: from the action to the end of the rerun, drawn. The machine should do nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser

from benchmarks.bench_label import graded
from benchmarks.bench_paint import painted
from benchmarks.bench_slider import BLEND, measure, window
from benchmarks.scale_lexical import size_of
from benchmarks.scale_lists import Engines, PreparedVectors, changes, lists
from benchmarks.scale_memories import BLOCK, memories, memory_id
from benchmarks.serving import AT_REST, QUERY_BOX, ROOT, WORKBENCH, chromium, free_port, served
from benchmarks.turns import Summary, summary
from cems_workbench.config.forms.yaml_form import DEFAULT
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.models.resolve import EIGHT_BIT, PACKAGED_ID
from cems_workbench.records import Judgment, ParsedInput, Query
from cems_workbench.store import Selection, Store
from cems_workbench.store.memories import Memories as MemoriesOfStore
from cems_workbench.store.rows import VersionedCache
from tests.browser.pages import Memories, Window, window_on

EMBEDDER = "CEMS_WORKBENCH_EMBEDDER"
"""A store is asked with the embedder of its vectors."""
QUERIES, LABELS_EACH = 300, 20
CARDS = 10
"""How many cards are graded for each round: of 80 the slowest four were 15 % apart from run to run."""
TURNS = 4
"""How often the stores take turns at Label and the slider."""
AT_ONCE = 2
"""How often each thing is done on Memories while models and indexes are loaded, which begins with the first page."""
AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
MEMORIES_MS, PAINT_S, FUSED_MS, RSS_BYTES = 300, 3.0, 500, 8 << 30
SLIDER_GROWTH, LABEL_GROWTH, OVER_ENGINES, LEXICAL, VECTOR = 1.2, 1.2, 1.3, 1.5, 1.3
WANTED = ("browse", "page", "search, a rare word", "search, a common word", "filter")
"""What is to be done on Memories in `MEMORIES_MS`; an order, chosen in two steps, is measured besides."""
LIST_MS, RECALL, EDIT_S, NEW_S = 30, 0.995, 1.0, 10.0


@dataclass
class Figures:
    """What was measured at one size: seconds (`_s`), milliseconds (`_ms`, the 95th percentile) and bytes."""

    memories: int
    embedder: str = PACKAGED_ID
    """Of the store's vectors; this one where stores were made before it was kept."""
    import_rows_a_second: float | None = None
    import_peak: int | None = None
    peer_rows_a_second: float | None = None
    index_s: float | None = None
    build_s: float | None = None
    """Of the processor: importing and both indexes."""
    peer_build_s: float | None = None
    """Of the processor: the three engines alone."""
    database: int = 0
    peer_database: int | None = None
    vectors: int = 0
    peer_vectors: int | None = None
    lexical: int = 0
    peer_lexical: int | None = None
    paint_s: float = 0.0
    peer_paint_s: float = 0.0
    loading_ms: dict[str, float] = field(default_factory=dict)
    """On Memories while models and indexes are loaded: the slower of two."""
    page_ms: dict[str, float] = field(default_factory=dict)
    label_ms: float = math.nan
    fused_ms: float = 0.0
    slider_ms: float = math.nan
    rss: int = 0
    shell_s: dict[str, float] = field(default_factory=dict)
    calls_ms: dict[str, float] = field(default_factory=dict)
    """Of the processor, all cores together: what the database does for a page, the median of five."""
    lexical_ms: dict[str, Summary] = field(default_factory=dict)
    """By filter, median and 95th percentile, as all of these."""
    vector_ms: dict[str, Summary] = field(default_factory=dict)
    recall: dict[str, float] = field(default_factory=dict)
    """By filter the share of the exact nearest 150 that the vector list has."""
    peer_lexical_ms: Summary | None = None
    peer_vector_ms: Summary | None = None
    found_s: dict[str, float] = field(default_factory=dict)
    """From a change until both lists have it: the longest of several."""
    peer_new_s: float | None = None
    """Until `SentenceTransformer.encode` and Chroma alone have 1,000 new texts: the longest of as many."""


def made(count: int, place: Path) -> Figures:
    """A store of so many memories with vectors, queries and labels; what it took beside the engines alone."""
    figures = Figures(count)
    with Store.open(place) as store:
        seconds, cpu, peak = 0.0, 0.0, resident()
        for start in range(0, count, 10 * BLOCK):
            given = tuple(memories(min(10 * BLOCK, count - start), start))
            began, used = time.perf_counter(), time.process_time()
            store.add(ParsedInput("scale", "scale", memories=given))
            seconds, cpu = seconds + time.perf_counter() - began, cpu + time.process_time() - used
            peak = max(peak, resident())
        figures.import_rows_a_second, figures.import_peak = count / seconds, peak
        store.add(judged(count))
        embedder, used = PreparedVectors(count, EIGHT_BIT), time.process_time()
        figures.embedder = EIGHT_BIT
        figures.index_s = store.indexes.refresh(embedder).seconds
        figures.build_s = cpu + time.process_time() - used
    engines_alone(figures, engines_of(place))
    return figures


def engines_of(place: Path) -> Path:
    """Where the engines alone are kept that are measured beside a store."""
    return place.with_name(f"{place.name}-engines")


def engines_alone(figures: Figures, place: Path) -> None:
    """The same rows, vectors and texts in DuckDB, Chroma and bm25s, in a folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    figures.peer_rows_a_second, figures.peer_database, rows_s = in_duckdb_alone(figures.memories, place)
    figures.peer_build_s = rows_s + Engines.build(place, figures.memories)
    figures.peer_vectors, figures.peer_lexical = size_of(place / "chroma"), size_of(place / "bm25s")


def judged(count: int) -> ParsedInput:
    """Queries out of the memories' own words, and labels."""
    rng = np.random.default_rng(5)
    rows = rng.integers(0, count, QUERIES).tolist()
    words = [" ".join(next(memories(1, row)).content.split()[1:7]) for row in rows]
    queries = [Query(f"q{i:04d}", text, as_of=AS_OF) for i, text in enumerate(words)]
    drawn = [(query.qid, memory_id(int(row))) for query in queries for row in rng.integers(0, count, LABELS_EACH)]
    judgments = [Judgment(qid, key, int(rng.integers(0, 4)), "bench", "human") for qid, key in dict.fromkeys(drawn)]
    return ParsedInput("scale", "scale", queries=tuple(queries), judgments=tuple(judgments))


def in_duckdb_alone(count: int, place: Path) -> tuple[float, int, float]:
    """Rows a second, bytes, and seconds of the processor, of the same memories in a table of DuckDB with a key and nothing else."""
    import duckdb

    from cems_workbench.store.memories import FIELDS, staging

    seconds = cpu = 0.0
    with closing(duckdb.connect(str(place / "alone.duckdb"))) as connection:
        for start in range(0, count, BLOCK):
            rows = staging(list(memories(min(BLOCK, count - start), start))).select(list(FIELDS))
            began, used = time.perf_counter(), time.process_time()
            connection.register("staged", rows)
            if not start:
                connection.execute("CREATE TABLE memories AS FROM staged LIMIT 0")
                connection.execute("ALTER TABLE memories ADD PRIMARY KEY (id)")
            connection.execute("INSERT INTO memories FROM staged")
            seconds, cpu = seconds + time.perf_counter() - began, cpu + time.process_time() - used
    return count / seconds, size_of_files(place, "alone.duckdb*"), cpu


def resident(pid: int | str = "self") -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def at_rest(pid: int) -> None:
    """Return when a process has done next to nothing for a second: what it loads in the background is loaded."""

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    a_twentieth = os.sysconf("SC_CLK_TCK") / 20
    before, now = -a_twentieth, used()
    while now - before > a_twentieth:
        time.sleep(1)
        before, now = now, used()


def in_browser(figures: Figures, store: Path, rounds: int) -> None:
    """Start the app on a store and use it."""
    with chromium() as launched:
        figures.paint_s, figures.peer_paint_s = first_paint(launched, store)
        with served(WORKBENCH, free_port(), store) as (url, pid):
            with closing(launched()) as browser:
                figures.loading_ms = on_memories(browser, url, AT_ONCE)
                at_rest(pid)
                figures.page_ms = on_memories(browser, url, rounds)
                figures.fused_ms = summary(list(until_fused(browser, url, questions(store), rounds)))[1]
            figures.rss = resident(pid)


def label_and_slider(stores: dict[Path, Figures], rounds: int) -> None:
    """Keys on Label and moves of a slider, on all stores in turn; times on a large store are reported next to those on a small one."""
    keys: dict[Path, list[float]] = {place: [] for place in stores}
    moved: dict[Path, list[float]] = {place: [] for place in stores}
    cards, moves = max(1, rounds * CARDS // TURNS), max(1, 2 * rounds // TURNS)
    for place in stores:
        queue_of(place, TURNS * cards)
    with ExitStack() as apps, chromium() as launched:
        served_at = {}
        for place, figures in stores.items():
            os.environ[EMBEDDER] = figures.embedder
            served_at[place] = apps.enter_context(served(WORKBENCH, free_port(), place))
        for turn in range(TURNS + 1):
            for place, (url, pid) in served_at.items():
                with closing(launched()) as browser:
                    if not turn:
                        list(until_fused(browser, url, questions(place), 1))  # what is loaded once
                        at_rest(pid)
                        continue
                    keys[place] += [one["shown"] - one["key"] for one in graded(browser, url, cards)]
                    (found,) = measure([window(browser, url, False, questions(place)[0])], BLEND, moves)
                    moved[place] += [one["painted"] - one["release"] for one in found]
        for place, figures in stores.items():
            figures.label_ms, figures.slider_ms = summary(keys[place])[1], summary(moved[place])[1]
            figures.rss = max(figures.rss, resident(served_at[place][1]))


def first_paint(launched: Callable[[], Browser], store: Path) -> tuple[float, float]:
    """Seconds from the start of the process to the query box, and of an app of one line to its line; the median of three after one."""
    with tempfile.TemporaryDirectory() as name, closing(launched()) as browser:
        peer = Path(name) / "peer.py"
        peer.write_text('import streamlit as st\nst.write("painted")\n')
        apps = (
            (WORKBENCH, QUERY_BOX),
            (("streamlit", "run", str(peer), "--server.headless", "true", "--server.port"), "text=painted"),
        )
        page, ports, times = browser.new_page(), [free_port(), free_port()], ([], [])  # type: ignore[var-annotated]
        for _ in range(4):
            for side, (module, sign) in enumerate(apps):
                times[side].append(painted(page, module, ports[side], sign, store)[0])
    ours, others = (sorted(side[1:])[1] for side in times)
    return ours, others


def queue_of(place: Path, cards: int) -> None:
    """A queue of pairs nobody judged."""
    with Store.open(place) as store:
        given = {(one.qid, one.memory_id) for one in store.judgments.read()}
        ids = [one.id for one in store.memories.find(Selection(), 50).memories]
        pairs = [(query.qid, key) for query in store.queries.read() for key in ids if (query.qid, key) not in given]
        store.queues.save(make_queue("bench", [PooledPair(*pair, {"cems": 1}) for pair in pairs[:cards]], "shuffled"))


def questions(place: Path) -> list[str]:
    """The words of the store's queries."""
    with Store.open(place) as store:
        return [query.query for query in store.queries.read()]


CLOCK = """
Object.assign(window, {wbMoved: 0, wbRows: 0, wbDrawn: 0, wbDrawing: 0});
const moved = () => { window.wbMoved = performance.now(); };
addEventListener('pointerdown', moved, true);
addEventListener('keydown', event => { if (event.key === 'Enter') moved(); }, true);
const frame = () => new Promise(done => requestAnimationFrame(done));
const drawn = async () => {
  window.wbDrawing += 1;
  do { await frame(); await frame(); }
  while (document.querySelector('[data-testid=stApp]')?.dataset.testScriptState !== 'notRunning');
  window.wbDrawn = performance.now();
  window.wbDrawing -= 1;
};
window.WebSocket = class extends window.WebSocket {
  constructor(...given) { super(...given); this.addEventListener('message', drawn); }
};
const TABLE = '[data-testid=stDataFrame]', isTable = node => node.matches?.(TABLE) || node.querySelector?.(TABLE);
const look = changes => { if (changes.some(change => [...change.addedNodes].some(isTable)))
  requestAnimationFrame(() => requestAnimationFrame(() => { window.wbRows = performance.now(); })); };
addEventListener('DOMContentLoaded', () => new MutationObserver(look).observe(document.body, {childList: true, subtree: true}));
"""
"""The page's own clock: when a button was pressed or Enter struck; when other rows were drawn; and when what came last from the server was
drawn and no run of the script was at work any more. Drawn is two frames later."""


def on_memories(browser: Browser, url: str, rounds: int) -> dict[str, float]:
    """The 95th percentile of each thing that one does on Memories, in milliseconds, by the page's own clock."""
    times: dict[str, list[float]] = {}
    with window_on(browser, url) as window:
        window.page.add_init_script(CLOCK)

        @contextmanager
        def timed(name: str) -> Iterator[None]:
            yield
            window.page.wait_for_function("window.wbDrawn > window.wbMoved && !window.wbDrawing")
            moved, rows, end = window.page.evaluate("[window.wbMoved, window.wbRows, window.wbDrawn]")
            times.setdefault(name, []).append(float(end - moved))
            if rows > moved and name.startswith("search"):  # elsewhere they come at the end
                times.setdefault(f"{name}: its rows", []).append(float(rows - moved))

        page = Memories.open(window)
        window.view("Deleted")  # what is loaded once, by whatever page is first
        for turn in range(rounds):
            with timed("browse"):
                window.view("Browse")
            for name, words in (
                ("search, a rare word", f"{turn + 11}7"),
                ("search, a common word", COMMON[turn % len(COMMON)]),
            ):
                with timed(name), window.rerun():
                    page.words.fill(words)
                    page.words.press("Enter")
            with window.rerun():
                page.words.fill("")
                page.words.press("Enter")
            with timed("filter"):
                window.choose("Pinned", "not pinned")
            with timed("page"):
                turn_to(window, 2)
            with timed("order"):
                window.choose("Order", "Longest" if turn % 2 else "Most accessed")
            with timed("filter"):
                window.choose("Pinned", "pinned")
            window.view("Deleted")
    return {name: summary(values)[1] for name, values in times.items()}


COMMON = ("the", "with", "and", "that")


def turn_to(window: Window, number: int) -> None:
    """Turn to a page of the table."""
    with window.rerun():
        window.page.get_by_test_id("stPagination").get_by_role("button", name=re.compile(rf"\b{number}$")).first.click()


FIRST_ORDER = """() => { window.wbFused = 0; let seen = false; const painted = () => { window.wbFused = performance.now(); };
  const look = () => { if (!seen && document.querySelector('.wb-settling-note, .wb-result')) {
    seen = true; requestAnimationFrame(() => requestAnimationFrame(painted)); } };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true}); }"""
ASKED = "addEventListener('keydown', event => { if (event.key === 'Enter') window.wbAsked = performance.now(); }, true)"


def until_fused(browser: Browser, url: str, asked: Sequence[str], rounds: int) -> Iterator[float]:
    """Milliseconds from Enter until an order is painted, of a query that nobody asked before; each in a new session, once its page
    is drawn: how long that takes is `first_paint`."""
    for turn in range(rounds + 2):
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.add_init_script(ASKED)
        page.goto(url)
        page.locator(QUERY_BOX).wait_for(timeout=120_000)
        page.locator(AT_REST).wait_for(timeout=120_000)
        page.evaluate(FIRST_ORDER)
        page.locator(QUERY_BOX).fill(asked[-1 - turn])
        page.locator(QUERY_BOX).press("Enter")
        page.wait_for_function("window.wbFused > 0", polling=10, timeout=120_000)
        if turn > 1:  # the first two load models and indexes
            yield float(page.evaluate("window.wbFused - window.wbAsked"))
        page.locator(".wb-result").first.wait_for(timeout=120_000)
        page.close()


def calls(place: Path) -> dict[str, float]:
    """Milliseconds of the processor for what pages ask of the database, each time as if nobody had asked it before."""
    with Store.open(place) as store:
        memories_of = store.memories
        count = memories_of.count()
        project = next((name for name, _ in memories_of.projects() if name), None)
        some = [one.id for one in memories_of.find(Selection(), 200, count // 3).memories]
        asked: dict[str, Callable[[], object]] = {
            "first page, newest first": lambda: memories_of.find(Selection(), 200),
            "page in the middle": lambda: memories_of.find(Selection(), 200, count // 2),
            "first page of a project": lambda: memories_of.find(Selection(projects=(project,)), 200),
            "first page, longest first": lambda: memories_of.find(Selection(sort="length"), 200),
            "a text that few have": lambda: memories_of.find(Selection(text="7777"), 200),
            "a text that most have": lambda: memories_of.find(Selection(text="the"), 200),
            "200 memories by id": lambda: memories_of.read(some),
            "the filters' values": memories_of.facets,
            "statistics": lambda: memories_of.statistics(),
            "exact duplicates": lambda: memories_of.exact_duplicates(30),
        }
        return {
            name: statistics.median(processor_ms(memories_of, call) for _ in range(5)) for name, call in asked.items()
        }


def processor_ms(of: MemoriesOfStore, call: Callable[[], object]) -> float:
    """Milliseconds of the processor; what was kept is dropped before."""
    of._cache = VersionedCache(of._database)
    began = time.process_time()
    call()
    return 1e3 * (time.process_time() - began)


def from_a_shell(store: Path, asked: str) -> dict[str, float]:
    """Seconds that a command takes, from starting its process to its end."""
    found = {}
    for name, arguments in (("search", ["search", asked]), ("doctor", ["doctor"])):
        began = time.perf_counter()
        command = [sys.executable, "-m", "cems_workbench", *arguments, "--store", str(store)]
        subprocess.run(command, cwd=ROOT, check=name == "search", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found[name] = time.perf_counter() - began
    return found


def table(rows: Sequence[Figures]) -> str:
    """The figures of all sizes as Markdown."""

    def line(name: str, value: Callable[[Figures], str]) -> str:
        return f"| {name} | {' | '.join(value(one) for one in rows)} |"

    def number(value: float | None, unit: str, digits: int = 0) -> str:
        return "–" if value is None else f"{value:,.{digits}f} {unit}"

    def megabytes(value: int | None) -> str:
        return number(None if value is None else value / 1e6, "MB")

    def times(value: Summary | None, recall: float | None = None) -> str:
        return (
            "–"
            if value is None
            else f"{value[0]:.1f}, {value[1]:.1f} ms" + (f", {recall:.4f}" if recall is not None else "")
        )

    actions = list(dict.fromkeys(name for one in rows for name in one.page_ms))
    filters = list(dict.fromkeys(name for one in rows for name in one.lexical_ms))
    return "\n".join(
        [
            f"| | {' | '.join(f'{one.memories:,}' for one in rows)} |",
            f"|---|{'---:|' * len(rows)}",
            line("import, rows a second", lambda one: number(one.import_rows_a_second, "")),
            line("… the same rows into DuckDB alone", lambda one: number(one.peer_rows_a_second, "")),
            line("import, memory of the process", lambda one: megabytes(one.import_peak)),
            line("both indexes built", lambda one: number(one.index_s, "s")),
            line("all built, processor", lambda one: number(one.build_s, "s")),
            line("… the three engines alone", lambda one: number(one.peer_build_s, "s")),
            line("database", lambda one: megabytes(one.database)),
            line("… DuckDB alone", lambda one: megabytes(one.peer_database)),
            line("vectors", lambda one: megabytes(one.vectors)),
            line("… Chroma alone", lambda one: megabytes(one.peer_vectors)),
            line("lexical index", lambda one: megabytes(one.lexical)),
            line("… bm25s alone", lambda one: megabytes(one.peer_lexical)),
            line("first page, from starting the process", lambda one: number(one.paint_s, "s", 2)),
            line("… an app of one line", lambda one: number(one.peer_paint_s, "s", 2)),
            *(
                line(f"Memories: {name}, while it loads", lambda one, n=name: number(one.loading_ms.get(n), "ms"))  # type: ignore[misc]
                for name in actions
            ),
            *(line(f"Memories: {name}, p95", lambda one, n=name: number(one.page_ms.get(n), "ms")) for name in actions),  # type: ignore[misc]
            line("Label: key to next card, p95", lambda one: number(one.label_ms, "ms")),
            line("Inspect: cold query until the lists' order is painted, p95", lambda one: number(one.fused_ms, "ms")),
            line("Inspect: slider to repainted ranking, p95", lambda one: number(one.slider_ms, "ms")),
            line("memory of the app after all that", lambda one: megabytes(one.rss)),
            *(
                line(f"database, {name}, processor", lambda one, n=name: number(one.calls_ms.get(n), "ms"))  # type: ignore[misc]
                for name in dict.fromkeys(name for one in rows for name in one.calls_ms)
            ),
            *(line(f"lexical list, {name}", lambda one, n=name: times(one.lexical_ms.get(n))) for name in filters),  # type: ignore[misc]
            line("… bm25s", lambda one: times(one.peer_lexical_ms)),
            *(
                line(f"vector list, {name}", lambda one, n=name: times(one.vector_ms.get(n), one.recall.get(n)))  # type: ignore[misc]
                for name in filters
            ),
            line("… Chroma", lambda one: times(one.peer_vector_ms)),
            *(
                line(f"{name} until both lists have it", lambda one, n=name: number(one.found_s.get(n), "s", 2))  # type: ignore[misc]
                for name in dict.fromkeys(name for one in rows for name in one.found_s)
            ),
            line("… 1,000 new in SentenceTransformer and Chroma alone", lambda one: number(one.peer_new_s, "s", 2)),
            *(
                line(f"`{name}` from a shell", lambda one, n=name: number(one.shell_s.get(n), "s", 1))  # type: ignore[misc]
                for name in ("search", "doctor")
            ),
        ]
    )


def targets(rows: Sequence[Figures]) -> dict[str, bool]:
    """Which of the targets the largest store meets, beside the smallest."""
    small, large = rows[0], rows[-1]
    met = {
        f"first page ≤ {PAINT_S:g} s": large.paint_s <= PAINT_S,
        f"on Memories {'; '.join(WANTED)} ≤ {MEMORIES_MS} ms": max(large.page_ms[name] for name in WANTED)
        <= MEMORIES_MS,
        f"slider ≤ {SLIDER_GROWTH:g} × that of {small.memories:,}": large.slider_ms <= SLIDER_GROWTH * small.slider_ms,
        f"label ≤ {LABEL_GROWTH:g} × that of {small.memories:,}": large.label_ms <= LABEL_GROWTH * small.label_ms,
        f"memory ≤ {RSS_BYTES >> 30} GiB": large.rss <= RSS_BYTES,
        f"lists' order ≤ {FUSED_MS} ms up to 100,000": all(
            r.fused_ms <= FUSED_MS for r in rows if r.memories <= 100_000
        ),
    }
    if large.found_s and large.peer_lexical_ms and large.peer_vector_ms:
        lexical, nearest = (
            large.lexical_ms["all"][0] / large.peer_lexical_ms[0],
            large.vector_ms["all"][0] / large.peer_vector_ms[0],
        )
        slowest = max(high for found in (large.lexical_ms, large.vector_ms) for _, high in found.values())
        filtered = min(share for name, share in large.recall.items() if name != "all")
        met |= {
            f"lexical list ≤ {LEXICAL:g} × bm25s ({lexical:.2f})": lexical <= LEXICAL,
            f"vector list ≤ {VECTOR:g} × Chroma ({nearest:.2f})": nearest <= VECTOR,
            f"both lists with every filter ≤ {LIST_MS:g} ms ({slowest:.1f})": slowest <= LIST_MS,
            f"recall with every filter ≥ {RECALL:g} ({filtered:.4f})": filtered >= RECALL,
            f"an edit found within {EDIT_S:g} s": large.found_s["edit"] <= EDIT_S,
            f"1,000 new found within {NEW_S:g} s": large.found_s["1,000 new"] <= NEW_S,
        }
        if large.peer_new_s:
            ratio = large.found_s["1,000 new"] / large.peer_new_s
            met[f"1,000 new ≤ {OVER_ENGINES:g} × SentenceTransformer and Chroma alone ({ratio:.2f})"] = (
                ratio <= OVER_ENGINES
            )
    if None not in (large.peer_database, large.peer_vectors, large.peer_lexical):
        alone = (large.peer_database or 0) + (large.peer_vectors or 0) + (large.peer_lexical or 0)
        ours = large.database + large.vectors + large.lexical
        met[f"disk ≤ {OVER_ENGINES:g} × the engines alone ({ours / alone:.2f})"] = ours <= OVER_ENGINES * alone
    if large.build_s and large.peer_build_s:
        ratio = large.build_s / large.peer_build_s
        met[f"building ≤ {OVER_ENGINES:g} × the engines alone ({ratio:.2f})"] = ratio <= OVER_ENGINES
    return met


def measured(store: Path, figures: Figures, rounds: int) -> Figures:
    """Everything that is measured on a store that is there."""
    os.environ[EMBEDDER] = figures.embedder
    figures.database = size_of_files(store, "workbench.duckdb*")
    figures.vectors = size_of(store / "chroma") + size_of(store / "codes")
    figures.lexical = size_of(store / "lexical")
    figures.calls_ms = calls(store)
    figures.shell_s = from_a_shell(store, questions(store)[1])
    in_browser(figures, store, rounds)
    if figures.build_s is not None:  # one that was made here, so that its vectors are known
        with Store.open(store) as opened:
            embedder = PreparedVectors(figures.memories, figures.embedder)
            engines = Engines.open(engines_of(store))
            found = lists(opened, embedder, engines)
            figures.lexical_ms, figures.vector_ms, figures.recall = found.lexical_ms, found.vector_ms, found.recall
            figures.peer_lexical_ms, figures.peer_vector_ms = found.bm25s_ms, found.chroma_ms
            changed = changes(opened, embedder, engines)
            figures.found_s, figures.peer_new_s = changed.found_s, changed.engines_s
    return figures


def made_before(place: Path) -> Figures:
    """What making a store took, as kept beside it; only its size where it was not made here."""
    known = place / "made.json"
    if known.exists():
        return Figures(**json.loads(known.read_text()))
    with Store.open(place) as store:
        return Figures(store.memories.count(), os.environ.get(EMBEDDER, PACKAGED_ID))


def size_of_files(folder: Path, pattern: str) -> int:
    """Bytes of the files of a folder whose names fit."""
    return sum(path.stat().st_size for path in folder.glob(pattern))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of memories, smallest first")
    parser.add_argument("--stores", type=Path, default=Path(".workbench/scale"), help="where stores are made and kept")
    parser.add_argument("--store", type=Path, action="append", default=[], help="measure a store that is there besides")
    parser.add_argument("--rounds", type=int, default=20, help="how often each thing is done on a page")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    os.environ.setdefault("CEMS_WORKBENCH_PRESET", DEFAULT)
    stores = {options.stores / f"memories-{size}": int(size) for size in options.sizes.split(",") if size}
    for place, count in stores.items():
        if not Store.exists(place):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                figures = alone.submit(made, count, place).result()
            (place / "made.json").write_text(json.dumps(asdict(figures)))
    os.sync()  # what was written for an hour is not still being written while it is measured
    measured_on: dict[Path, Figures] = {}
    for place in (*stores, *options.store):
        measured_on[place] = measured(place, made_before(place), options.rounds)
        print(table([*measured_on.values()]), flush=True)
    label_and_slider(measured_on, options.rounds)
    rows = [*measured_on.values()]
    met = targets(rows)
    text = "\n".join([table(rows), "", *(f"- {name}: {'met' if good else '**missed**'}" for name, good in met.items())])
    print(text)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in rows], indent=1))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
