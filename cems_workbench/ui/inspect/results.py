"""The results: rank, score, what is known of the memory and its text, shown literally."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from html import escape

from cems_workbench.analysis.ranks import Against, ranks_in
from cems_workbench.pipeline import Trace
from cems_workbench.records import Memory
from cems_workbench.ui.inspect.baseline import gone_html, sign, words
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import short_id

GRADES = {0: "not relevant", 1: "related", 2: "helps", 3: "answers it"}
LONG = 330
"""Characters from which a text is folded."""


def results_html(
    trace: Trace, grades: Mapping[str, int], followed: str | None = None, against: Against | None = None
) -> str:
    """The results as HTML, best first; contents are escaped and never rendered.

    `grades` are human judgments by id; the `followed` memory is marked. A rank's move is that since fusion, or `against` the
    pinned baseline, whose results that are gone follow at the end.
    """
    top = max((row.score for row in trace.results), default=0.0)
    fused = ranks_in(trace, "fusion") if against is None else {}
    cards = []
    for row in trace.results:
        memory = trace.evidence.memories[row.memory_id]
        width = 100 * row.score / top if top > 0 else 0
        classes = "wb-result wb-followed" if memory.id == followed else "wb-result"
        since = fused[memory.id][0] if memory.id in fused else None
        move = _move(since, row.rank) if against is None else _delta(against, memory.id)
        cards.append(
            f'<div class="{classes}"><div class="wb-rank">{row.rank}{move}</div>'
            f'<div class="wb-score" title="Score after the last stage: {row.score!r}">{row.score:.4f}'
            f'<div class="wb-bar"><i style="width:{max(0.0, min(width, 100.0)):.1f}%"></i></div></div>'
            f"<div>{_facts(memory, trace.evidence.as_of, row.tokens, grades.get(memory.id))}{_text(memory)}</div></div>"
        )
    gone = "" if against is None else gone_html(against)
    return f'<div class="wb-results">{"".join(cards)}</div>{gone}'


def context_text(trace: Trace) -> str:
    """The context as an agent would get it: the results' texts in order, a blank line between."""
    return "\n\n".join(f"[{row.rank}] {row.content}" for row in trace.results)


def judged_summary(trace: Trace, grades: Mapping[str, int]) -> str:
    """One line of Markdown on how the judged memories fared; empty when the query has no judgments."""
    relevant = {memory_id for memory_id, grade in grades.items() if grade > 0}
    if not grades:
        return ""
    if not relevant:
        return (
            f"{len(grades)} memories were judged for this query, none of them relevant: it has no answer in the store."
        )
    shown = {row.memory_id for row in trace.results}
    missing = sorted(relevant - shown, key=lambda memory_id: (-grades[memory_id], memory_id))
    text = f"{len(relevant & shown)} of {len(relevant)} memories judged relevant are in the results"
    if not missing:
        return text + "."
    listed = ", ".join(f"{plain(short_id(memory_id))} (grade {grades[memory_id]})" for memory_id in missing[:6])
    return f"{text}; missing: {listed}{' …' if len(missing) > 6 else ''}"


def _delta(against: Against, memory_id: str) -> str:
    delta = against.delta(memory_id)
    return f'<span class="wb-move wb-delta" title="{escape(words(delta, against.name))}">{sign(delta)}</span>'


def _move(before: int | None, now: int) -> str:
    if before is None or before == now:
        return '<span class="wb-move" title="Same rank as after fusion">=</span>'
    sign, word = ("▲", "up") if now < before else ("▼", "down")
    return f'<span class="wb-move" title="{word} from rank {before} after fusion">{sign} {abs(before - now)}</span>'


def _facts(memory: Memory, as_of: datetime | None, tokens: int, grade: int | None) -> str:
    facts = [f'<span title="Id of the memory"><code>{escape(memory.id)}</code></span>']
    if grade is not None:
        label = f"grade {grade}, {GRADES.get(grade, 'judged')}"
        facts.append(f'<span class="wb-grade" title="Human judgment for this query">{escape(label)}</span>')
    named = (("Category", memory.category), ("Project", memory.project), ("Author", memory.author))
    facts += [_fact(title, text) for title, text in named if text]
    if memory.created_at is not None and as_of is not None:
        when = memory.created_at.date().isoformat()
        facts.append(_fact(f"Created {when}", _age((as_of - memory.created_at).days)))
    if memory.pinned:
        facts.append(_fact("Adjust multiplies its score by the pinned factor", "pinned"))
    if memory.importance == "high":
        facts.append(_fact("Of high importance: Fusion can give it a bonus", "important"))
    if memory.priority != 1.0:
        facts.append(_fact("Adjust multiplies its score by this", f"priority {memory.priority:g}"))
    facts.append(_fact("What it takes of the token budget; a token is counted as 4 characters", f"{tokens} tokens"))
    return f'<div class="wb-facts">{"".join(facts)}</div>'


def _fact(title: str, text: str) -> str:
    return f'<span title="{escape(title)}">{escape(text)}</span>'


def _age(days: int) -> str:
    if days < 0:
        return "in the future"
    if days == 0:
        return "today"
    return f"{days} day{'s' if days != 1 else ''} old"


def _text(memory: Memory) -> str:
    content, title = memory.content, ""
    if memory.title and not content.startswith(memory.title):
        title = f"<b>{escape(memory.title)}</b>\n"
    body = f'<div class="wb-text">{title}{escape(content)}</div>'
    if len(content) <= LONG and content.count("\n") < 3:
        return body
    return (
        f'<details><summary>{body}<span class="wb-more">Show all {len(content):,} characters</span></summary></details>'
    )
