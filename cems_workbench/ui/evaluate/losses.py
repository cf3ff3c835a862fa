"""Losses: where a config loses the relevant memories of all queries, as a sentence, a picture, and the queries behind each branch.

With several configs the first is shown beside another, with what the other saves and breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import streamlit as st

from cems_workbench.analysis.losses import Branch
from cems_workbench.analysis.losses_of_set import (
    DEFAULT_K,
    NO_PROJECT,
    Found,
    LossDifference,
    Losses,
    LostMemory,
    Rows,
    losses_of,
    with_words,
)
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.ui.evaluate.compare import draw_stale
from cems_workbench.ui.evaluate.loss_flow import Flow, flow_figure
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.inspect.state import TracedQuery, open_in_inspect, open_traced_in_inspect
from cems_workbench.ui.kit.charts import draw_chart
from cems_workbench.ui.kit.html import announce, plain
from cems_workbench.ui.kit.tables import draw_table, pick_row

K, TYPES, PROJECTS = "evaluate:losses:k", "evaluate:losses:types", "evaluate:losses:projects"
BESIDE, BRANCH, GROUPS = "evaluate:losses:beside", "evaluate:losses:branch", "evaluate:losses:groups"
NOTHING = "no other config"
MAX_SHOWN = 50
"""Queries of a branch that are listed: each is replayed for the words on what happened."""
MAX_TABLE_ROWS = 12
ALT = (
    "Flow chart of {name}: {sentence}. The band is the relevant memories still within reach, from the lists to the results; "
    "a branch leaves it at each stage that loses some."
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A branch and whose: lost by the first config or the other, or lost by one and returned by the other."""

    of: Literal["first", "other", "saved", "broken"]
    branch: Branch


def draw(measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    """Draw the sentence, the controls, the picture, and the queries of the chosen branch."""
    head = st.container()
    k, types, projects, configs = _controls(measured, choice)
    qids = _filtered(measured[0].batch, types, projects)
    if not qids:
        st.caption("No query matches these filters.")
        return
    try:
        losses = _losses(configs, k, types, projects, qids)
    except InputError as error:
        st.info(plain(f"{str(error)[:1].upper()}{str(error)[1:]}."), icon=":material/rule:")
        return
    with head:
        _draw_sentences(losses)
        if not (types or projects):  # it is counted over all queries
            draw_stale([one.evaluation.figures for one in configs])
    if not any(one.lost for one in losses.maps):
        return
    options = _options(losses)
    kept = st.session_state.get(BRANCH)
    chosen: Chosen = kept if kept in options else _largest(options)
    st.session_state[BRANCH] = chosen  # also if unchanged: the browser keeps showing its number of before otherwise
    _draw_figures(configs, losses, chosen)
    if losses.differences:
        _draw_table(losses)
    _draw_groups(losses)
    _draw_rows(configs, losses, options, choice)


def _controls(
    measured: Sequence[EvaluatedConfig], choice: Choice
) -> tuple[int, tuple[str, ...], tuple[str, ...], list[EvaluatedConfig]]:
    """Draw the rank, the filters and the config beside the first; the values of the first three, and the configs to show."""
    boxes = st.columns([1, 2, 2, 2], vertical_alignment="bottom")
    k = boxes[0].number_input(
        "Within the first",
        1,
        1000,
        DEFAULT_K,
        key=K,
        persist_state="session",
        help="A relevant memory is lost if it is not among this many first results.",
    )
    batch = measured[0].batch
    types = boxes[1].multiselect(
        "Types",
        sorted({kind or NO_TYPE for kind in batch.types}),
        key=TYPES,
        placeholder="all",
        persist_state="session",
    )
    projects = boxes[2].multiselect(
        "Projects",
        sorted({query.project or NO_PROJECT for query in batch.queries}),
        key=PROJECTS,
        placeholder="all",
        persist_state="session",
    )
    shown = [measured[0]]
    if len(measured) < 2:
        boxes[3].caption(choice.second("to see what it saves and breaks"))
    else:
        others = {one.name: one for one in measured[1:]}
        name = boxes[3].selectbox(
            f"Beside {plain(measured[0].name)}",
            [*others, NOTHING],
            key=BESIDE,
            persist_state="session",
            help="The config whose losses are shown next to those of the first.",
        )
        shown += [others[name]] if name in others else []
    return int(k), tuple(types), tuple(projects), shown


def _filtered(batch: LabelledBatch, types: Collection[str], projects: Collection[str]) -> frozenset[str]:
    """The qids of the queries of these types and projects; empty collections are all."""
    return frozenset(
        query.qid
        for query in batch.queries
        if (not types or (query.type or NO_TYPE) in types)
        and (not projects or (query.project or NO_PROJECT) in projects)
    )


def _losses(
    configs: Sequence[EvaluatedConfig],
    k: int,
    types: tuple[str, ...],
    projects: tuple[str, ...],
    qids: frozenset[str],
) -> Losses:
    """The losses, cached for the session. Raises InputError if no query has a relevant memory."""
    relevant_from = configs[0].evaluation.relevant_from

    def make() -> Losses:
        batches = [one.batch for one in configs]
        if types or projects:
            parts = {id(batch): batch.of_queries(qids) for batch in batches}  # configs often share a batch
            batches = [parts[id(batch)] for batch in batches]
        return losses_of(batches, [one.evaluation.config for one in configs], relevant_from, k)

    return cached_result(configs, ("losses", k, relevant_from, types, projects), make)


def _draw_sentences(losses: Losses) -> None:
    """Draw what each config loses, and what the other saves and breaks."""
    st.markdown(
        "  \n".join(
            f"**{plain(line[:1].upper() + line[1:] if len(losses.maps) == 1 else line)}.**" for line in losses.sentences
        )
    )
    announce(". ".join(losses.sentences))
    for line in losses.mistakes:
        st.caption(plain(line[:1].upper() + line[1:]))


def _options(losses: Losses) -> dict[Chosen, int]:
    """The branches with queries to list, and how many, in pipeline order."""
    first, *rest = losses.maps
    found = {Chosen("first", branch): count for branch, count in first.branches.items()}
    found |= {Chosen("other", branch): count for one in rest for branch, count in one.branches.items()}
    for difference in losses.differences:
        found |= {Chosen("saved", branch): count for branch, count in difference.saved.items()}
        found |= {Chosen("broken", branch): count for branch, count in difference.broken.items()}
    return found


def _largest(options: Mapping[Chosen, int]) -> Chosen:
    """The branch where the first config loses most; of the other, where the first loses nothing."""
    own = [option for option in options if option.of == "first"]
    return max(own or list(options), key=options.__getitem__)


def shown_stages(config: PipelineConfig, lost: Mapping[Branch, int]) -> list[str]:
    """The columns of a config's figure: the stages that are on, and those that lose a memory."""
    losing = {branch.stage for branch in lost}
    return [stage.name for stage in candidate_stages(config) if stage.name in losing or not stage.is_off(config)]


def _draw_figures(configs: Sequence[EvaluatedConfig], losses: Losses, chosen: Chosen) -> None:
    """Draw one figure over the whole width, or two side by side in the same scale."""
    narrow = len(configs) > 1
    widest = max(one.relevant for one in losses.maps)
    places = st.columns(len(configs), gap="medium") if narrow else [st.container()]
    whose: tuple[Literal["first", "other"], ...] = ("first", "other")
    for place, of, config, one in zip(places, whose, configs, losses.maps, strict=False):
        flow = Flow(
            shown_stages(config.evaluation.config, one.branches), one.relevant, one.returned, one.branches, one.k
        )
        branches = list(one.branches)
        same = chosen.of in ((of, "saved") if of == "first" else (of, "broken"))
        # A new key after each choice, since a selected point cannot be selected again.
        key = f"evaluate:losses:{of}:{chosen.of}:{chosen.branch.stage}:{chosen.branch.manner}:{one.k}"
        with place:
            if narrow:
                st.markdown(f"## {plain(config.name)}")
            draw_chart(
                flow_figure(flow, chosen.branch if same else None, widest=widest, narrow=narrow),
                key=key,
                on_select=partial(_choose_clicked, key, of, branches),
                selection_mode="points",
                alt=ALT.format(name=config.name, sentence=one.sentence()),
                table=None if narrow else partial(_records, losses.table()),
            )


def _choose_clicked(key: str, of: Literal["first", "other"], branches: Sequence[Branch]) -> None:
    """Choose the clicked branch; the figure's first curves are the branches."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[-1]["curve_number"] < len(branches):
        st.session_state[BRANCH] = Chosen(of, branches[points[-1]["curve_number"]])


def _draw_table(losses: Losses) -> None:
    """Draw how many end where; of two configs also what the other saves and breaks there."""
    (where, *names), _ = table = losses.table()
    rows = _records(table)
    draw_table(
        rows,
        key="evaluate:losses:table",
        placeholder="–",
        most=len(rows),
        columns={where: st.column_config.TextColumn(where, width=210, pinned=True)}
        | {name: st.column_config.NumberColumn(name, width=130, help=_table_help(name, losses)) for name in names},
    )


def _table_help(name: str, losses: Losses) -> str:
    """What a column of the table counts."""
    if name in {one.config_name for one in losses.maps}:
        return "Relevant memories that end there under this config"
    one = losses.differences[0]
    lost, returned = (one.before, one.after) if name.startswith("saved") else (one.after, one.before)
    return plain(f"Lost there by {lost}, and returned by {returned}")


def _records(table: Rows) -> list[dict[str, Any]]:
    return [dict(zip(table[0], row, strict=True)) for row in table[1]]


def _draw_groups(losses: Losses) -> None:
    """Draw the losses by query type and by project, when they are opened."""
    names = " and ".join(one.config_name for one in losses.maps)
    panel = st.expander(f"{plain(names)} by query type and project", key=GROUPS, type="compact", on_change="rerun")
    if not panel.open:
        return
    with panel:
        for one in losses.maps:
            if len(losses.maps) > 1:
                st.markdown(f"## {plain(one.config_name)}")
            kinds: tuple[Literal["type", "project"], ...] = ("type", "project")
            for by in kinds:
                draw_table(
                    _records(one.groups(by)),
                    key=f"{GROUPS}:{one.config_name}:{by}",
                    most=MAX_TABLE_ROWS,
                    columns={by: st.column_config.TextColumn(by, width=150, pinned=True)},
                )


def _draw_rows(
    configs: Sequence[EvaluatedConfig], losses: Losses, options: Mapping[Chosen, int], choice: Choice
) -> None:
    """Draw the choice of a branch and its queries; a ticked row opens in Inspect."""
    names = [one.config_name for one in losses.maps]
    chosen = st.selectbox(
        "Lost memories",
        list(options),
        key=BRANCH,
        format_func=lambda option: _option_text(option, options[option], names, losses.maps[0].k),
        help="Or click a branch of the picture.",
    )
    rows = _rows_in_words(configs, losses, chosen)
    at = 1 if chosen.of in ("other", "broken") else 0
    picked = pick_row(
        [
            {
                "query": row.query,
                "memory": row.memory_id,
                "grade": row.grade,
                "what happened": row.words,
                "qid": row.qid,
            }
            for row in rows
        ],
        key=f"evaluate:losses:rows:{chosen.of}:{chosen.branch.stage}:{chosen.branch.manner}",
        most=MAX_TABLE_ROWS,
        columns={
            "query": st.column_config.TextColumn("query", width=260),
            "memory": st.column_config.TextColumn("memory", width=84),
            "grade": st.column_config.NumberColumn("grade", width=58, format="%d"),
            "what happened": st.column_config.TextColumn("what happened", width=440),
            "qid": st.column_config.TextColumn("qid", width=64),
        },
    )
    if picked is not None:
        _open(rows[picked], configs, at, losses.maps[0].k)
    first = f"The first {len(rows)} of {options[chosen]:,}. " if len(rows) < options[chosen] else ""
    pinned = f", and {plain(names[1 - at])} pinned as the baseline" if len(configs) > 1 else ""
    read_only = choice.opened is not None and choice.opened.reason is not None
    elsewhere = " Inspect searches the open store, not the one this evidence was gathered from." if read_only else ""
    st.caption(
        f"{first}Tick the box of a row to open its query in Inspect under {plain(names[at])}, with this memory followed and explained"
        f"{pinned}.{elsewhere}"
    )


def _option_text(option: Chosen, count: int, names: Sequence[str], k: int) -> str:
    words = f"{count:,} {option.branch.words(k)}"
    if len(names) == 1:
        return words
    if option.of in ("first", "other"):
        return f"{names[option.of == 'other']}: {words}"
    return f"{option.of} by {names[1]}: {words}"


def _rows_in_words(configs: Sequence[EvaluatedConfig], losses: Losses, chosen: Chosen) -> tuple[LostMemory, ...]:
    """The first rows of the chosen branch with what happened, cached for the session."""
    rows = _rows_of(losses, chosen)[:MAX_SHOWN]
    config = configs[1 if chosen.of in ("other", "broken") else 0]

    def make() -> tuple[LostMemory, ...]:
        alone = Losses((replace(losses.maps[0], rows=rows),), ())
        return with_words(alone, [config.evaluation.config], [_found(config)], MAX_SHOWN).maps[0].rows

    return cached_result([config], ("loss words", losses.maps[0].k, rows), make)


def _rows_of(losses: Losses, chosen: Chosen) -> tuple[LostMemory, ...]:
    if chosen.of in ("first", "other"):
        return tuple(losses.maps[chosen.of == "other"].rows_of(chosen.branch))
    difference: LossDifference = losses.differences[0]
    rows = difference.saved_rows if chosen.of == "saved" else difference.broken_rows
    return tuple(row for row in rows if row.branch == chosen.branch)


def _found(config: EvaluatedConfig) -> Found:
    known = config.labelled.evidence.evidences
    return lambda qids: {qid: known[qid] for qid in qids}


def _open(row: LostMemory, configs: Sequence[EvaluatedConfig], at: int, k: int) -> None:
    """Open a query in Inspect as measured: the config that loses the memory on the sliders, the other one pinned."""
    config = configs[at]
    query = next(one for one in config.batch.queries if one.qid == row.qid)
    header = config.labelled.evidence.header
    if config.labelled.evidence.external:
        open_traced_in_inspect(TracedQuery(header.query_set, query.qid, query.query), why=(row.memory_id, k))
    request = request_for(query, header.moment, header.project_only)
    other = (configs[1 - at].name, configs[1 - at].evaluation.config) if len(configs) > 1 else None
    open_in_inspect(request, config.evaluation.config, other, why=(row.memory_id, k))
