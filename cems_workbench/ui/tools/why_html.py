"""An answer of `why` as HTML: the cause, the path, the places in the lists, and a row per rescue. Every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cems_workbench.config import field_spec
from cems_workbench.ui.changed import shown
from cems_workbench.ui.controls import GROUPS
from cems_workbench.ui.glossary import about
from cems_workbench.ui.memories_escape import excerpt
from cems_workbench.why import Change, ListPlace, MemoryPath, Rescue, Why

STYLESHEET = """
<style>
.wb-cause {border-left:3px solid light-dark(#0072B2, #56B4E9); padding:.1rem 0 .1rem .9rem; overflow-wrap:anywhere;}
.wb-cause p {margin:0;}
.wb-cause .wb-about {font-size:.84rem; opacity:.8; padding-bottom:.25rem;}
.wb-cause .wb-sentence {font-size:1.08rem; font-weight:600; line-height:1.45;}
.wb-cause .wb-verdict {padding-top:.25rem; opacity:.86;}
.wb-cause code, .wb-way code {background:none; padding:0; color:inherit;}
.wb-way {font-size:.84rem; overflow-x:auto;}
.wb-way table {border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums;}
.wb-way :is(th, td) {border:0; border-top:1px solid color-mix(in srgb, currentColor 10%, transparent); padding:.24rem .9rem .24rem 0;
  text-align:left; font-weight:400; vertical-align:top; overflow-wrap:anywhere;}
.wb-way thead :is(th, td) {border-top:0; opacity:.74; font-size:.76rem; white-space:nowrap; cursor:help;}
.wb-way tbody th {font-weight:600; white-space:nowrap;}
.wb-way .wb-n {white-space:nowrap; overflow-wrap:normal;}
.wb-way tr.wb-here :is(th, td) {background:color-mix(in srgb, #D55E00 13%, transparent);}
.wb-way tr.wb-here th::before {content:"✕ ";}
.wb-way .wb-tag {display:inline-block; font-size:.72rem; font-weight:650; padding:0 .4rem; border-radius:.25rem; white-space:nowrap;
  border:1px solid color-mix(in srgb, currentColor 34%, transparent);}
.wb-change {display:grid; grid-template-columns:minmax(0,1fr) 2.6rem 8.8rem 9.4rem; gap:.1rem 1rem; font-size:.86rem; align-items:baseline;
  font-variant-numeric:tabular-nums; overflow-wrap:anywhere;}
.wb-change > * {min-width:0;}
.wb-change [title] {cursor:help;}
.wb-change small {display:block; font-size:.76rem; opacity:.76;}
.wb-change b {font-weight:650;}
.wb-change.wb-head {font-size:.76rem; opacity:.74; padding-left:5.4rem;}
.wb-change .wb-tag {font-size:.72rem; opacity:.8; white-space:nowrap;}
@media (max-width:1130px) {.wb-change {grid-template-columns:minmax(0,1fr) 2rem 5.4rem 6.2rem; gap:.1rem .6rem;}}
</style>
"""


def cause_html(found: Why, content: str) -> str:
    """The memory, why it is where it is, and whether something would bring it in."""
    return (
        f'<div class="wb-cause"><p class="wb-about"><span class="wb-mark">◆</span> <code>{escape(found.path.memory_id)}</code> '
        f"{escape(excerpt(content))}</p>"
        f'<p class="wb-sentence">{escape(found.cause)}</p><p class="wb-verdict">{escape(found.verdict)}</p></div>'
    )


def path_html(path: MemoryPath) -> str:
    """The memory's way through the stages; the one that lost it is marked by a cross, a word and a tint."""
    rows = []
    for step in path.steps:
        lost = step.stage == path.lost_at
        fate = '<span class="wb-tag">lost here</span>' if lost else "kept" if step.kept else "dropped"
        rows.append(
            f'<tr{" class=wb-here" if lost else ""}><th title="{escape(about(step.stage))}">{escape(step.stage)}</th>'
            f'<td class="wb-n">{_ranks(step.rank_in, step.rank)}</td>'
            f'<td class="wb-n" title="{escape(_moved(step.score_in, step.score))}">{_score(step.score)}</td>'
            f'<td class="wb-n">{fate}</td><td>{escape(step.words)}</td></tr>'
        )
    head = (
        '<th title="In the order of the pipeline">stage</th><td title="Rank before and after the stage; – where it has none">rank</td>'
        '<td title="Score after the stage">score</td><td title="What became of it">fate</td><td title="What the stage did to it">'
        "what was done</td>"
    )
    return f'<div class="wb-way"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def places_html(places: Sequence[ListPlace]) -> str:
    """Where a search of the whole store ranks the memory in each list."""
    rows = []
    for place in places:
        depth = "all" if place.depth is None else str(place.depth)
        inside = "✓ yes" if place.returned else "✕ no"
        rows.append(
            f'<tr><th title="{escape(about(place.list))}">{escape(place.list)}</th><td class="wb-n">{_rank(place.rank)}</td>'
            f'<td class="wb-n">{_score(place.score)}</td><td class="wb-n">{depth}</td><td class="wb-n">{inside}</td>'
            f"<td>{escape(place.words)}</td></tr>"
        )
    head = (
        '<th title="Source and query variant">list</th><td title="Its rank were the list as long as the store">rank</td>'
        '<td title="Cosine in a vector list, BM25 in a lexical one">score</td><td title="How many hits the list keeps">depth</td>'
        '<td title="Is it among the hits that the list returned?">returned</td><td>in words</td>'
    )
    return f'<div class="wb-way"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def rescue_head() -> str:
    """The columns of the rescues."""
    return (
        '<div class="wb-change wb-head"><span>change</span><span title="Rank of the memory among the results afterwards">rank</span>'
        '<span title="How far the other results stay as they are. RBO: overlap of the two result lists, the top counting more. '
        'τ: Kendall’s tau of their orders. 1 = nothing else moves.">others stay</span>'
        '<span title="Judged queries whose nDCG@10 gets better and worse, and those that gain or lose their only hit within the first '
        'results">judged queries</span></div>'
    )


def rescue_html(rescue: Rescue) -> str:
    """One rescue: what is changed, where the memory lands, what else moves."""
    moved = rescue.disturbance
    gone = f"{moved.gone} gone" if moved.gone else "none gone"
    rank = "–" if rescue.rank is None else str(rescue.rank)
    others = (
        f'<span title="RBO {moved.rbo:.4f}, Kendall’s tau {moved.tau:.4f}; results that no longer come, beyond the one that makes '
        f'room: {moved.gone}"><b>{moved.rbo:.2f}</b> <small>τ {moved.tau:.2f}, {gone}</small></span>'
    )
    notes = "".join(f"<small>{escape(note)}</small>" for note in _notes(rescue))
    return (
        f'<div class="wb-change"><span title="{escape(_explained(rescue))}">{escape(what(rescue))}{notes}</span>'
        f"<span><b>{rank}</b></span>{others}{_judged(rescue)}</div>"
    )


def what(rescue: Rescue) -> str:
    """What is changed, in the words of the controls: "Fusion: Score blend 0.3 → 0.55"."""
    parts = [_change(change) for change in rescue.changes if not (rescue.terms and change.path == "expansion.backend")]
    parts += [f"search for “{term}” too" for term in rescue.terms]
    parts += ["search every project"] if rescue.everywhere else []
    return " and ".join(parts)


def _change(change: Change) -> str:
    spec = field_spec(change.path)
    return f"{GROUPS.get(spec.section, spec.section)}: {spec.label} {shown(change.was)} → {shown(change.now)}"


def _notes(rescue: Rescue) -> list[str]:
    notes = []
    for change in rescue.changes:
        point = change.breakpoint
        if point is not None and point.succeeds != change.now:
            side = "from" if point.succeeds > point.fails else "up to"
            notes.append(f"{side} {point.succeeds:.6g}{' (solved)' if change.solved else ''}")
    notes += ["searches again"] if rescue.gathers else []
    notes += [f"{rescue.needs} scores of the reranker are still missing"] if rescue.needs else []
    return notes


def _explained(rescue: Rescue) -> str:
    lines = []
    for change in rescue.changes:
        lines.append(f"{change.path}: {field_spec(change.path).help}")
        if change.breakpoint is not None:
            point = change.breakpoint
            how = "solved from the formula and checked by replay" if change.solved else "found by replays"
            lines.append(f"At {point.fails:.10g} it is still missing, at {point.succeeds:.10g} it is in; {how}.")
    lines += ["A further query variant, typed by hand."] if rescue.terms else []
    return "\n".join([*lines, f"Distance {rescue.distance:.3f} in slider ranges."])


def _judged(rescue: Rescue) -> str:
    effect = rescue.labelled
    if effect is None:
        why = "It searches again, so the judged queries were not measured" if rescue.gathers else "Not measured"
        return f'<span title="{why}">–</span>'
    hits = f"hits +{len(effect.gained)} −{len(effect.lost)}"
    told = (
        f"Of {effect.queries} judged queries: nDCG@10 better in {effect.better}, worse in {effect.worse}, mean {effect.before:.4f} → "
        f"{effect.after:.4f}. Gained a hit: {', '.join(effect.gained[:12]) or 'none'}. Lost it: {', '.join(effect.lost[:12]) or 'none'}."
    )
    return f'<span title="{escape(told)}"><b>▲ {effect.better} ▼ {effect.worse}</b> <small>{hits}</small></span>'


def _ranks(before: int | None, after: int | None) -> str:
    return "–" if before is None and after is None else f"{_rank(before)} → {_rank(after)}"


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"


def _moved(before: float | None, after: float | None) -> str:
    return f"{'–' if before is None else repr(before)} before, {'–' if after is None else repr(after)} after"
