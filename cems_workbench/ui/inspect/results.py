"""The ranking: the pipeline strip and warnings, and the results with rank, score, fields and text, shown literally.

Side by side is a grid in the browser, with a row per memory and a column per stage that did something: `analysis/side_by_side.py` reads
it from the trace, this module writes it into the page as JSON, and `ui/assets/side_by_side.js` draws the rows in view; the component
reports a click. Streamlit's own table draws on a canvas: it has no stacked bars, no greyed rows, and no row that stays in view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import streamlit as st
from markupsafe import Markup
from streamlit.components.v2.types import ComponentRenderer

from cems_workbench.analysis.graph_lists import GraphList
from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.side_by_side import Column, side_by_side
from cems_workbench.analysis.stage_mistakes import KnownMistake, with_those_of_set
from cems_workbench.analysis.supersession import staleness
from cems_workbench.analysis.text_evidence import FoundChunk, chunk_span, chunk_words, chunks_read, found_chunk
from cems_workbench.errors import counted
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.effects import LATER, written_later
from cems_workbench.pipeline.missing_evidence import ParameterNeed
from cems_workbench.pipeline.stages import ABSTAIN, EXPANSION, FUSION, JUDGE, QUERY
from cems_workbench.pipeline.stages.abstain import switched_off as answering_all
from cems_workbench.pipeline.stages.fusion import FusionRow
from cems_workbench.pipeline.stages.lists import shown_only
from cems_workbench.records import Memory
from cems_workbench.ui.inspect import state, tables
from cems_workbench.ui.inspect.baseline import delta_sign, delta_text, lost_results_html
from cems_workbench.ui.inspect.context import token_count_text
from cems_workbench.ui.kit.charts import part_colour
from cems_workbench.ui.kit.html import asset, capital, render


def strip_html(trace: Trace, python_ms: float = 0.0) -> Markup:
    """The strip of a trace. Its replay time and `python_ms`, the page's time so far, are attributes for benchmarks."""
    replay_ms = sum(stage.elapsed_ms or 0.0 for stage in trace.stages)
    cells = []
    for stage in trace.run.stages:
        done, off, took = trace.stage(stage), stage.is_off(trace.config), trace.stage(stage).elapsed_ms
        lines = [stage.description]
        # Candidates in (if any), the count out, then words; stages without candidates have another count.
        flow: tuple[int | None, int | None, str] = (done.candidates_in, done.candidates_out, "")
        if stage is QUERY:
            found = sorted({match.detector for match in trace.stage(QUERY).fields.matches})
            lines += [f"Found: {', '.join(found)}"] if found else []
            flow = None, len(found), f" signal{'s' if len(found) != 1 else ''}"
        elif stage is EXPANSION:
            count = len(trace.evidence.variants)
            flow = None, count, f" variant{'s' if count != 1 else ''}"
        elif stage is JUDGE:
            flow = (None, done.candidates_in, "") if trace.stage(JUDGE).fields.model else (None, None, "–")
        tooltip = "\n".join([*lines, *(f"⚠ {text}" for text in done.warnings)])
        # Three digits, which is what a cell of 14 has room for.
        digits = 0 if took is None or took >= 99.95 else 1 if took >= 9.995 else 2
        time = "off" if off else "" if took is None else f"{took:.{digits}f} ms"
        cells.append((stage, off, tooltip, flow, time, len(done.warnings)))
    return render("inspect/strip.html", cells=cells, python_ms=f"{python_ms:.2f}", replay_ms=f"{replay_ms:.2f}")


def warnings_html(trace: Trace) -> Markup:
    """The warnings and unmet needs of a trace as a list; empty if there are none."""
    mistakes = {mistake.words for mistake in known_mistakes(trace)}
    notes = [(stage, text) for stage, text in trace.warnings if text not in mistakes]
    for need in trace.needs:
        if isinstance(need, ParameterNeed):
            text = f"{need.parameter} is {need.wanted}, but the evidence was gathered with {need.gathered}"
        else:
            text = f"{need.model} did not score {counted(len(need.memory_ids), 'candidates')}"
        notes.append((need.stage, text))
    return notes_html([(stage, f"⚠ {text}") for stage, text in notes]) if notes else Markup("")


def mistakes_html(trace: Trace, of_set: Sequence[KnownMistake] = ()) -> Markup:
    """The known mistakes of the config and its stages in this query and in its set, with their parameters; empty if there are none."""
    found = with_those_of_set(known_mistakes(trace), of_set)
    return render("inspect/mistakes.html", mistakes=found) if found else Markup("")


def notes_html(notes: list[tuple[str, str]] | list[str]) -> Markup:
    """One line per note; of a pair (heading, note), the heading is in bold."""
    return render("inspect/notes.html", notes=[("", note) if isinstance(note, str) else note for note in notes])


GRADES = {0: "not relevant", 1: "related", 2: "helps", 3: "answers it"}
READ_HELP = {
    "chunk": "The reranker reads the chunk with the highest rank in any searched list, including disabled lists",
    "memory": "The text for the reranker is chosen from the whole memory, not from the matching chunk (Rerank → Text source)",
}
FOLD_AFTER_CHARS = 330
"""Characters from which a text is collapsed."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a memory: short text and tooltip; `kind` is `id`, `grade`, `chunk`, `stale`, `superseded` or empty."""

    meaning: str
    text: str
    kind: str = ""


FACT_CLASSES = {"grade": "wb-grade", "chunk": "wb-of-chunks", "stale": "wb-stale", "superseded": "wb-superseded"}


def results_html(
    trace: Trace, grades: Mapping[str, int], followed: str | None = None, against: RankComparison | None = None
) -> Markup:
    """The results, best first. `grades` are human judgments by id; the `followed` memory is marked. Rank changes are
    relative to fusion, or to the pinned baseline (`against`), whose lost results are listed at the end."""
    top = max((result.score or 0.0 for result in trace.results), default=0.0)
    fused = {} if against is not None or trace.external else trace.stage(FUSION).by_id
    read = chunks_read(trace)
    cards = []
    for result in trace.results:
        memory = trace.evidence.memories[result.memory_id]
        if against is not None:
            delta = against.delta(memory.id)
            moved = delta_sign(delta), delta_text(delta, against.name)
        else:
            moved = _move(fused.get(memory.id), result.rank)
        found = found_chunk(trace, memory.id)
        facts = facts_of(memory, trace, result.tokens, grades.get(memory.id), found, read)
        cards.append(
            {
                "result": result,
                "memory": memory,
                "followed": memory.id == followed,
                "width": _width(result.score, top),
                "moved": moved,
                "facts": [(fact, FACT_CLASSES.get(fact.kind)) for fact in facts],
                "title": shown_title(memory),
                "folded": len(memory.content) > FOLD_AFTER_CHARS or memory.content.count("\n") >= 3,
                "pieces": pieces_of(memory.content, found),
            }
        )
    gone = Markup("") if against is None else lost_results_html(against)
    return render("inspect/results.html", results=trace.results, cards=cards, compared=against is not None, gone=gone)


def settling_html(trace: Trace, read: tuple[int, int] | None, switched_off: Collection[int] = ()) -> Markup:
    """Intermediate results while the reranker runs: `read` is (texts read, total), None before the first. Empty if
    there are none. Abstain is not applied until all texts are read. Rows are shorter than those of `results_html` and
    cannot be followed, since their order still changes. `switched_off` as in `replay`."""
    undecided = not ABSTAIN.is_off(trace.config)
    if trace.stage(ABSTAIN).fields.abstained:
        trace = replay(trace.evidence, answering_all(trace.config), switched_off=switched_off)
    if not trace.results:
        return Markup("")
    top = max(result.score or 0.0 for result in trace.results)
    fused = trace.stage(FUSION).by_id
    rows = [(one, _width(one.score, top), *_move(fused.get(one.memory_id), one.rank)) for one in trace.results]
    return render("inspect/settling.html", rows=rows, read=read, undecided=undecided)


def judged_summary(
    trace: Trace, grades: Mapping[str, int], relevant: Collection[str], answerable: bool | None = None
) -> str:
    """One line on the ranks of judged memories; empty if the query is not judged."""
    if answerable is False and not relevant:
        return "Judged as not answered by the store: every result is noise."
    if not grades:
        return ""
    if not relevant:
        return f"{counted(len(grades), 'memories')} judged for this query, none as relevant."
    shown = {result.memory_id for result in trace.results}
    missing = sorted(set(relevant) - shown, key=lambda memory_id: (-grades[memory_id], memory_id))
    text = f"Results have {len(shown.intersection(relevant))} of {counted(len(relevant), 'memories')} judged relevant"
    if not missing:
        return text + "."
    listed = ", ".join(f"{memory_id} (grade {grades[memory_id]})" for memory_id in missing[:6])
    return f"{text}; missing: {listed}{' …' if len(missing) > 6 else ''}"


def _width(score: float | None, top: float) -> str:
    """Percent of the best score."""
    return f"{max(0.0, min(100 * (score or 0.0) / top if top > 0 else 0.0, 100.0)):.1f}"


def _move(fused: FusionRow | None, now: int) -> tuple[str, str]:
    """Places gained or lost since fusion, as a sign and in words."""
    before = None if fused is None else fused.rank_out
    if before is None or before == now:
        return "=", "Same rank as after fusion"
    arrow, word = ("▲", "up") if now < before else ("▼", "down")
    return f"{arrow} {abs(before - now)}", f"{word} from rank {before} after fusion"


def shown_title(memory: Memory) -> str | None:
    """The title, unless the content begins with it."""
    return memory.title if memory.title and not memory.content.startswith(memory.title) else None


def pieces_of(content: str, found: FoundChunk | None) -> tuple[str, str, str] | None:
    """The text before the matching chunk, the chunk, and the text after it; None if the whole memory matched."""
    if found is None or found.count < 2:
        return None
    span = chunk_span(content, found.chunk)
    if span is None:  # show the chunk's text, and the memory below it
        return "", found.chunk.text, f"\n\n{content}"
    return content[: span[0]], content[slice(*span)], content[span[1] :]


def facts_of(
    memory: Memory,
    trace: Trace,
    tokens: int | None,
    grade: int | None,
    found: FoundChunk | None,
    read: Mapping[str, int | None],
) -> list[Fact]:
    """What is known of a candidate besides its text; `tokens` are None unless it is a result, `read` is `chunks_read` of the trace."""
    as_of = trace.evidence.as_of
    facts = [Fact("Id of the memory", memory.id, "id")]
    stale = staleness(trace, memory.id)
    if stale is not None:
        facts.append(Fact(capital(stale.words), stale.words, "stale" if stale.stale else "superseded"))
    if grade is not None:
        label = f"grade {grade}, {GRADES.get(grade, 'judged')}"
        facts.append(Fact("Grade by a person for this query", label, "grade"))
    if found is not None and found.count > 1:
        facts.append(Fact(found.meaning, found.words, "chunk"))
    found_by = None if found is None else found.chunk.seq
    if read.get(memory.id, found_by) != found_by and len(trace.evidence.chunks[memory.id]) > 1:
        which = chunk_words(trace.evidence, memory.id, read[memory.id]) or "whole memory"
        facts.append(Fact(READ_HELP[trace.config.rerank.text_source], f"reranker read the {which}"))
    named = (("Category", memory.category), ("Project", memory.project), ("Author", memory.author))
    facts += [Fact(meaning, text) for meaning, text in named if text]
    if memory.created_at is not None and as_of is not None:
        when = memory.created_at.date().isoformat()
        days = (as_of - memory.created_at).days
        age = f"{counted(days, 'days')} old" if days else "today"
        age = LATER if written_later(memory, as_of) else age
        facts.append(Fact(f"Created {when}", age))
    by = token_count_text(trace.config.assembly)
    for there, meaning, text in (
        (memory.pinned, "Adjust multiplies its score by the pinned factor", "pinned"),
        (memory.importance == "high", "High importance: Fusion can add a bonus", "important"),
        (memory.priority != 1.0, "Adjust multiplies its score by this", f"priority {memory.priority:g}"),
        (tokens is not None, f"Its share of the token budget. {by}", f"{tokens} tokens"),
    ):
        facts += [Fact(meaning, text)] if there else []
    return facts


KEY = "inspect:side_by_side"


@cache
def _component() -> ComponentRenderer:
    files = {suffix: asset(f"side_by_side.{suffix}") for suffix in ("css", "js")}
    return st.components.v2.component("cems_workbench.side_by_side", isolate_styles=False, **files)


def draw_grid() -> None:
    """Draw the `message` on the page as a grid; a click or Enter on a row follows its memory."""
    _component()(key=KEY, on_follow_change=_follow)


def message(
    trace: Trace,
    grades: Mapping[str, int],
    followed: str | None,
    against: RankComparison | None = None,
    by_graph: Mapping[str, GraphList] = MappingProxyType({}),
) -> dict[str, Any]:
    """What the grid draws, as plain values: the columns of `SideBySide.to_columns`, and what the page adds to them.

    `grades` are human judgments by id. The `followed` memory is marked and stays in view; `detail` has its facts and text, None unless it
    is a candidate. Moves are relative to what first ranked the candidates, or to the pinned baseline (`against`). `by_graph` are the
    vector lists as Chroma's graph gives them: a column each that misses memories. `colours` are those of the parts of fusion.
    """
    table = side_by_side(trace, grades, None if against is None else against.before)
    fused = next((column for column in table.columns if column.kind == "fusion"), None)
    data = table.to_columns()
    for at, column in reversed(list(enumerate(table.columns, 1))):
        found = by_graph.get(column.list or "")
        if found is not None and found.recall.missed:  # else it would repeat the list
            data["columns"].insert(at, _graph_column(column, table.memory_ids, found))
    return data | {
        "query": trace.evidence.query,
        "label": f"The ranking side by side: {len(table)} memories, a column for each stage",
        "compared": table.moved_from if against is None else f"in the baseline {against.name}",
        "followed": followed,
        "detail": _detail(trace, followed, grades.get(followed))
        if followed is not None and followed in trace.columns
        else None,
        "grades": {str(grade): words for grade, words in GRADES.items()},
        "stages": {stage.name: stage.title for stage in trace.run.stages},
        "help": HELP
        | {column.key: _help(trace, column) for column in table.columns}
        | {f"{name} graph": f"{found.line}. {tables.GRAPH_HELP}" for name, found in by_graph.items()},
        "colours": [] if fused is None else [part_colour(part.kind, part.list) for part in fused.parts],
    }


HELP = {
    "final": "Rank in the results, and places gained ▲ or lost ▼; ✕ and a stage: the stage that dropped the memory",
    "memory": "The memory, its id, and its grade for this query if people gave one. A click or Enter follows it and opens its text; arrow "
    "keys, Page up and down, Ctrl+Home and Ctrl+End move between rows, Home and End within one",
}


def _graph_column(of: Column, memory_ids: Sequence[str], found: GraphList) -> dict[str, Any]:
    """The ranks in the graph's answer beside a list; `missed` has the exact ranks of those that it lacks."""
    missed = {one.memory_id: one.rank for one in found.recall.missed}
    return {
        "key": f"{of.list} graph",
        "title": f"graph {(of.list or '').partition(':')[2]}".removesuffix(" 0"),
        **{"stage": of.stage, "kind": "list", "list": None, "parts": (), "values": ()},
        "rank": [found.ranks.get(memory_id) for memory_id in memory_ids],
        "score": [None] * len(memory_ids),
        "missed": [missed.get(memory_id) for memory_id in memory_ids],
    }


def _help(trace: Trace, column: Column) -> str:
    if column.kind == "list":
        if shown_only(trace.config.lists, (column.list or "").partition(":")[0]):
            return f"{column.title}: rank and score as answered by the source; only shown, as its weight is 0"
        return f"{column.title}: rank and {'' if trace.external else 'normalised '}score in this list"
    return f"{column.title}: rank and score after the stage. {trace.record(column.stage).description}"


def _detail(trace: Trace, memory_id: str, grade: int | None) -> dict[str, Any]:
    """Facts and whole text of a memory, as on its card."""
    memory = trace.evidence.memories[memory_id]
    found = found_chunk(trace, memory_id)
    tokens = next((result.tokens for result in trace.results if result.memory_id == memory_id), None)
    facts = facts_of(memory, trace, tokens, grade, found, chunks_read(trace))
    pieces = pieces_of(memory.content, found)
    kinds = ("wb-rest", "wb-chunk", "wb-rest")
    return {
        "id": memory_id,
        "title": shown_title(memory),
        "facts": [(fact.meaning, fact.text, FACT_CLASSES.get(fact.kind, "")) for fact in facts],
        "pieces": [("", memory.content)] if pieces is None else list(zip(kinds, pieces, strict=True)),
    }


def _follow() -> None:
    memory_id = st.session_state[KEY].get("follow")
    if isinstance(memory_id, str):
        state.follow(memory_id)
