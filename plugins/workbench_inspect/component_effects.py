"""Effective weights and Expansion: what each component of the pipeline, and each variant of the query, does to this ranking.

Both leave one out and replay; a component is next to its nominal weight, and a variant can be typed.

Component effects: how much each part of the pipeline, and each variant of the query, moved the ranking of one query.

Leave-one-out: one part is switched off, the query is replayed, and the results are compared with the present ones.

    tau     Kendall's tau of the two result lists (Fagin et al. 2003, p = 1/2): a memory that only one list has ranks below all
            that the other one has; a pair that only one list knows, and in no order in the other, counts half
    turned  (1 - tau) / 2: the share of pairs that change their order, 0 for the same results, 1 for the reverse
    share   of a list: its turned over the sum over all lists; nominal: list weight * variant weight over their sum
            of a variant: the sum over the results of its terms of the fused raw score / sum of those raw scores

A variant that is switched off is switched on instead. Overlapping parts (two lists that agree) each have a small effect: without one, the
other still finds the same memories.

Source: leave-one-out ablation; docs/internals/specification.md, "fusion" to "assembly".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from cems_workbench.analysis.fusion_shares import variant_contributions
from cems_workbench.analysis.ranks import kendall, rbo, target_rank
from cems_workbench.config import PipelineConfig
from cems_workbench.config.model import changed
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import LIST_SOURCES, list_label
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.variants import draw_switches
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View


@dataclass(frozen=True)
class Part:
    """One part of the pipeline and its switch: values of the config, or lists that are left out. `lists` is one list of
    one query variant; of a source whose lists belong to no variant, such as relations, it is all of them, because no
    single one is a part. Lists derived from it are unchanged."""

    name: str
    stage: str
    off: Mapping[str, Any] = field(default_factory=dict)
    lists: tuple[str, ...] = ()
    weight: float | None = None


@dataclass(frozen=True)
class Effect:
    """The effect of switching one part off on the first k results. `nominal` and `share` are of the lists' weights and
    of their effects, None for what is no list. `entered` come in without the part and `left` go. Ranks are those of the
    first memory judged relevant, None if it is not in the results."""

    part: Part
    tau: float
    entered: tuple[str, ...]
    left: tuple[str, ...]
    moved: int
    nominal: float | None
    share: float | None
    rank_now: int | None
    rank_without: int | None

    @property
    def turned(self) -> float:
        """The share of pairs that change their order, 0..1."""
        return (1 - self.tau) / 2


def component_effects(
    evidence: Evidence, config: PipelineConfig, relevant: Collection[str] = (), switched_off: Collection[int] = ()
) -> list[Effect]:
    """The effect of each part that is on, in the order of the pipeline. `relevant` are the ids judged relevant."""
    trace, k = replay(evidence, config, switched_off=switched_off), target_rank(config)
    now = [row.memory_id for row in trace.results[:k]]
    found = []
    for part in parts(trace):
        other = config
        for path, value in part.off.items():
            other = changed(other, path, value)
        left_out = replay(evidence, other, switched_off=switched_off, lists_off=part.lists)
        found.append(_effect(part, now, [row.memory_id for row in left_out.results[:k]], relevant))
    weights = sum(effect.part.weight or 0.0 for effect in found)
    turned = sum(effect.turned for effect in found if effect.part.lists)
    for i, effect in enumerate(found):
        if effect.part.lists:
            nominal = (effect.part.weight or 0.0) / weights if weights > 0 else None
            found[i] = replace(effect, nominal=nominal, share=effect.turned / turned if turned > 0 else None)
    return found


def _effect(part: Part, now: Sequence[str], without: Sequence[str], relevant: Collection[str]) -> Effect:
    ranks = {key: rank for rank, key in enumerate(now)}
    first = [next((rank for rank, key in enumerate(ids, 1) if key in relevant), None) for ids in (now, without)]
    return Effect(
        part,
        tau=kendall(now, without),
        entered=tuple(key for key in without if key not in ranks),
        left=tuple(key for key in now if key not in without),
        moved=sum(ranks[key] != rank for rank, key in enumerate(without) if key in ranks),
        nominal=None,
        share=None,
        rank_now=first[0],
        rank_without=first[1],
    )


def parts(trace: Trace) -> list[Part]:
    """The parts that are on under the trace's config: its lists with a hit, then the switches that are not off already."""
    weights = {entry.list: entry.weight for row in trace.stage(FUSION).rows for entry in row.contributions}
    listed = {entry.name: entry for entry in trace.stage(LISTS).fields.lists if entry.active and entry.used}
    together: dict[str, list[str]] = {}
    for name, entry in listed.items():
        together.setdefault(entry.source if entry.variant is None else name, []).append(name)
    lists = []
    for source, names in together.items():
        name, weight = names[0] if len(names) == 1 else source, sum(weights.get(name, 0.0) for name in names)
        lists.append(Part(name, LISTS.name, lists=tuple(names), weight=weight))
    switches = [
        Part(switch.words, stage.name, switch.off)
        for stage in candidate_stages(trace.config)
        if stage is not LISTS  # whose lists are left out one by one
        for switch in stage.switches
        if not switch.is_off(trace.config) and not switch.idle(trace.stage(stage).fields)
    ]
    return lists + switches


LIST_ORDER = tuple(source.name for source in LIST_SOURCES if source.finds)
"""Sources whose lists find candidates."""


@dataclass(frozen=True, slots=True)
class VariantPart:
    """One variant: candidates in its lists, candidates that only it found, its share (0..1) of the results' fused score."""

    index: int
    text: str
    on: bool
    found: int
    alone: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class VariantToggle:
    """The results with one variant switched the other way, the memories that leave and enter, and the overlap with the
    present results. `unscored`: candidates that the reranker would have to score first; the results may change then."""

    results: tuple[str, ...]
    left: tuple[str, ...]
    entered: tuple[str, ...]
    rbo: float
    unscored: int


def variant_parts(trace: Trace, switched_off: Collection[int] = ()) -> list[VariantPart]:
    """Every variant in order. `switched_off` as the trace was replayed with."""
    source = {listed.name: (listed.source, listed.variant) for listed in trace.stage(LISTS).fields.lists}
    finders: dict[str, set[int | None]] = {}
    for row in trace.stage(LISTS).rows:
        kept = {source[entry.list] for entry in row.lists if entry.kept}
        finders[row.memory_id] = {variant for name, variant in kept if name in LIST_ORDER}
    shares, parts = _variant_shares(trace), []
    for i, variant in enumerate(trace.evidence.variants):
        alone = tuple(memory_id for memory_id, found in finders.items() if found == {i})
        count = sum(i in found for found in finders.values())
        parts.append(VariantPart(i, variant.text, i not in switched_off, count, alone, shares.get(i, 0.0)))
    return parts


def _variant_shares(trace: Trace) -> dict[int, float]:
    """Share by variant of the fused raw scores of all results; empty if these are not positive."""
    shown = {row.memory_id for row in trace.results}
    every = [shares for shares in variant_contributions(trace) if shares.memory_id in shown]
    total = sum(shares.raw for shares in every)
    given: dict[int, float] = {}
    for shares in every if total > 0 else ():
        # If fusion takes the largest term, the decisive one alone makes the score.
        terms = [shares.decisive] if shares.decisive is not None else list(shares.by_variant)
        for variant in terms:
            given[variant] = given.get(variant, 0.0) + shares.by_variant[variant] * shares.boost / total
    return given


def leave_one_variant_out(trace: Trace, switched_off: Collection[int] = ()) -> list[VariantToggle]:
    """One replay per variant: without it, or, if it is switched off, with it."""
    off, before = frozenset(switched_off), [row.memory_id for row in trace.results]
    found = []
    for i in range(len(trace.evidence.variants)):
        other = replay(trace.evidence, trace.config, switched_off=off ^ {i})
        after = [row.memory_id for row in other.results]
        left = tuple(key for key in before if key not in after)
        entered = tuple(key for key in after if key not in before)
        unscored = sum(len(need.memory_ids) for need in other.stage_needs)
        found.append(VariantToggle(tuple(after), left, entered, rbo(before, after), unscored))
    return found


HELP = (
    "Each component is disabled alone and the query is replayed. Reversed is the share of result pairs that change their order, "
    "(1 − Kendall’s tau) / 2: a memory in only one of the two result lists counts as below all results of the other, and a pair in only "
    "one of them counts half. Lists that agree each have a small effect alone: the other one still finds the same memories."
)


def changes(entered: Sequence[str], left: Sequence[str]) -> str:
    """Results that come in and go: "+ m1  − m2"."""
    return "  ".join([*(f"+ {short_id(key)}" for key in entered), *(f"− {short_id(key)}" for key in left)])


def draw_effects(context: InspectContext) -> None:
    """Draw a row for each component."""
    trace, relevant = context.trace, context.relevant
    effects = context.remembered(
        "effective_weights",
        lambda _: component_effects(trace.evidence, trace.config, relevant, context.variants_off),
        tuple(sorted(relevant)),
    )
    if not trace.results or not effects:
        st.info("There are no results, so no component has an effect. Rank flow shows where candidates were lost.")
        return
    most = max(effects, key=lambda effect: effect.turned)
    text = "No single component changes these results."
    if most.turned > 0:
        text = f"**{list_label(most.part.name)}** has the largest effect on this ranking: {most.turned:.0%} of pairs."
    st.markdown(text, help=HELP)
    judged = any(effect.rank_now or effect.rank_without for effect in effects)
    draw_table(effects, [column for column in COLUMNS if judged or column.name != "relevant"], most=len(effects))
    st.caption(f"For the first {target_rank(trace.config)} results, with each component disabled alone.")


def _relevant(effect: Effect) -> str:
    now, without = (str(rank) if rank else "–" for rank in (effect.rank_now, effect.rank_without))
    return now if now == without else f"{now} → {without}"


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 2)


EFFECTIVE = "A list's pairs reversed, as a share of all lists"
NOMINAL = "A list's weight × its variant's weight, as a share of all lists"
COLUMNS: list[Column[Effect]] = [
    Column("part", lambda effect: list_label(effect.part.name), 116),
    Column("stage", lambda effect: effect.part.stage, 72, help="Stage of the component"),
    Column("nominal", lambda effect: _rounded(effect.nominal), 96, "percent", NOMINAL, bar=1, colour="#7B848D"),
    Column("effective", lambda effect: _rounded(effect.share), 96, "percent", EFFECTIVE, bar=1),
    Column("reversed", lambda effect: _rounded(effect.turned), 76, "percent", "Pairs of results reversed without it"),
    Column("new", lambda effect: len(effect.entered), 50, help="Results added without it"),
    Column("moved", lambda effect: effect.moved, 58, help="Results with another rank without it"),
    Column("relevant", _relevant, 76, help="Rank of the first memory judged relevant: now → without it"),
    Column("without it", lambda effect: changes(effect.entered, effect.left), 220, help="+ added, − removed"),
]

TYPED, MESSAGE = "inspect:expansion:typed", "inspect:expansion:message"
MAX_EXPANSIONS = 20
"""Maximum number of expansions."""
VARIANT_HELP = (
    "Each row is one replay without that variant’s lists (with them, if it is disabled), compared with the results above. Contributions "
    "has what each gave each candidate."
)
Ablation = tuple[VariantPart, VariantToggle]
SHARE = "Its part of the results’ fused scores, before rerank and adjust; the rest is bonuses and other lists"
RBO = "Rank-biased overlap with the present results, p 0.9: 1 identical; changes at the top weigh more"
VARIANTS: list[Column[Ablation]] = [
    Column("variant", lambda row: f"{row[0].index}{'' if row[0].on else ' off'}  {excerpt(row[0].text, 60)}", 240),
    Column("found", lambda row: row[0].found, 56, help="Candidates in its lists"),
    Column("only it", lambda row: len(row[0].alone), 60, help="Candidates found by no other variant"),
    Column("share", lambda row: round(row[0].share, 3), 96, "percent", SHARE, bar=1),
    Column("RBO", lambda row: row[1].rbo, 56, "%.2f", RBO),
    Column("without it", lambda row: changes(row[1].entered, row[1].left), 300, help="+ added, − removed"),
    Column("unscored", lambda row: row[1].unscored, 70, help="Candidates that the reranker would have to score first"),
]


def draw_expansion(context: InspectContext) -> None:
    """Draw the switches, a box to type another variant, and a row for each variant."""
    trace, off = context.trace, context.variants_off
    draw_switches(context)
    _draw_typing(context)
    if len(trace.evidence.variants) < 2:
        return
    st.markdown("## Without each of them", help=VARIANT_HELP)
    rows = list(
        zip(variant_parts(trace, off), leave_one_variant_out(trace, off), strict=True)
    )
    draw_table(rows, VARIANTS, most=len(rows), key="inspect:expansion:ablation")


def _draw_typing(context: InspectContext) -> None:
    with st.form("inspect:expansion:form", border=False, clear_on_submit=True):
        box, button = st.columns([3, 1], vertical_alignment="bottom")
        hint = "Type the query in other words"
        help = "Searched as a typed expansion (Expansion → manual). Generated expansions become typed ones, so none is lost."
        box.text_input("Another variant of the query", key=TYPED, placeholder=hint, help=help)
        act: Any = {"on_click": _add, "args": (context.trace, context.request), "width": "stretch"}
        button.form_submit_button("Search this too", **act)
    if message := st.session_state.pop(MESSAGE, None):
        st.caption(message)


def _add(trace: Trace, request: Request) -> None:
    """Search the typed line too; current expansions are kept as typed ones."""
    line = " ".join(str(st.session_state[TYPED]).split())
    variants = trace.evidence.variants
    if not line:
        return
    if line.casefold() in {variant.text.casefold() for variant in variants}:
        st.session_state[MESSAGE] = f"“{plain(excerpt(line, 80))}” is already searched."
        return
    section = state.present_config().expansion
    there = [variant.text for variant in variants if variant.kind == "expansion"]
    lines = [*(request.variants if section.backend == "manual" else there), line]
    if len(lines) > MAX_EXPANSIONS:
        st.session_state[MESSAGE] = f"{MAX_EXPANSIONS} expansions are already searched, the maximum."
        return
    most = max(section.max_expansions, len(lines))
    state.apply({"expansion.backend": "manual", "expansion.max_expansions": most})
    if state.present().config_error:
        return
    off, longer = state.variants_off(request), replace(request, variants=tuple(lines))
    state.write_request(longer)
    if all(variant.kind in ("original", "expansion") for variant in variants):  # the others keep their numbers
        state.switch_variants(longer, off)


_MOVED = "How much did each list, bonus, factor and cut move this ranking?"
WEIGHTS = View("Effective weights", 90, draw_effects, _MOVED)
_WITHOUT = "What did each query variant contribute, and what are the results without it?"
EXPANSION = View("Expansion", 50, draw_expansion, _WITHOUT)
