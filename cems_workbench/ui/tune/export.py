"""Export of the proposal (to the sliders, the history, or a file in all export formats), and the history of saved configs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import streamlit as st

from cems_workbench.config import (
    FORM_TITLES,
    EvidenceCard,
    PipelineConfig,
    difference,
    export_config,
    file_name,
)
from cems_workbench.config.fields import short_value
from cems_workbench.config.forms.files import offered_forms
from cems_workbench.config.forms.targets import preset_behind, unplaced
from cems_workbench.config.forms.yaml_form import dump_changes
from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.evaluation.comparison import interval_words
from cems_workbench.jobs.catalogue import evidence_warning, keep_config, kept_card, named, restored_config
from cems_workbench.jobs.diagnosis import cannot_rerank
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.jobs.exporting import (
    Export,
    ExportedRanking,
    exported,
    measured_proposal,
    of_selection,
    selection_of,
    with_figures,
)
from cems_workbench.jobs.scoring import Lacking
from cems_workbench.jobs.tuning import SearchResult, card_of
from cems_workbench.jobs.tuning_summary import headline
from cems_workbench.pipeline.resources import Resources
from cems_workbench.report.tuning import tuning_report
from cems_workbench.settings import Settings
from cems_workbench.store import ConfigRecord
from cems_workbench.store.search.stop_lists import stop_list
from cems_workbench.ui.evaluate import setup
from cems_workbench.ui.evaluate.compare import with_interval
from cems_workbench.ui.evaluate.setup import server_answers
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.toolbar import diff_table, draw_import
from cems_workbench.ui.kit import session, widgets
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.session import for_all_sessions, require, reviewer, sign_in_configured
from cems_workbench.ui.kit.tables import HELP, Column, draw_values, pick_row
from cems_workbench.ui.tune.state import learned, outdated, page

LANGUAGES = {"yaml": "yaml", "json": "json", "toml": "toml", "python": "python"}
"""Of the forms of a config, for highlighting; bash for the others."""
MAX_MISSING_LINES = 4


def draw(result: SearchResult, resources: Resources) -> None:
    """Draw name and reason, the buttons to apply the proposal, and the export."""
    st.markdown(f"## {plain(headline(result))}")
    if not result.better:
        st.info(
            "The baseline is proposed, so there is no new config. You can still export it with its card.",
            icon=":material/drag_handle:",
        )
    if result.tuned.validation is None:
        st.caption(
            ":orange[⚠] Stopped before it was cross-validated: its card has no result on queries unseen by the search."
        )
    card = card_of(result)
    name, why, author = _draw_name(result)
    config = named(name, result.tuned.config)
    _apply(config, why, author, card, result, resources)
    st.markdown("## Export")
    _export(config, card, result, resources)
    with st.expander("The evidence card"):
        st.code(card.text, language=None, wrap_lines=True)


def _draw_name(result: SearchResult) -> tuple[str, str, str]:
    by_name = not sign_in_configured()
    boxes = st.columns([2, 4, 2] if by_name else [2, 4], vertical_alignment="bottom")
    usual, author = result.tuned.config.name, reviewer() or ""
    key = widgets.remembered("tune:name", "Name in presets, files and the history.")
    typed = boxes[0].text_input("Name", placeholder=usual, max_chars=80, **key)
    key, hint = widgets.remembered("tune:why"), "the reason, shown in the history"
    why = boxes[1].text_input("Why", placeholder=hint, max_chars=500, **key)
    if by_name:
        st.session_state.setdefault("tune:author", author)
        author = boxes[2].text_input("Your name", max_chars=80, **widgets.remembered("tune:author"))
    return typed.strip() or usual, why.strip(), author.strip()


def _apply(
    config: PipelineConfig, why: str, author: str, card: EvidenceCard, result: SearchResult, resources: Resources
) -> None:
    take_help = "Sets all parameters in Inspect to the proposal; undo it there."
    with st.container(horizontal=True):
        if st.button("To the sliders", key="tune:take", type="primary", icon=":material/tune:", help=take_help):
            state.use_config(config)
            st.toast("Set on the sliders of Inspect.", icon=":material/check:")
        keep = st.button("Save to history", key="tune:keep", icon=":material/bookmark_add:", help=HELP["tune:keep"])
        widgets.download(
            "Preset file",
            preset_text(config, why, card),
            file_name(config, "yaml"),
            "tune:preset",
            help="YAML that starts with summary and card, like the built-in presets.",
            icon=":material/description:",
        )
        widgets.report_button(
            "tune:report",
            f"tuning-{config.name}",
            lambda _: tuning_report(result, datetime.now(UTC)),
            texts=False,
            what="the verdict, the gains, the changed parameters, and the card. No texts of queries or memories. ",
        )
    if keep and not author:
        st.error("Enter your name above, or sign in: the history shows who saved a config.")
    elif keep:
        with widgets.errors_shown():
            require("reviewer")
            base = result.planned.plan.space.baseline.name
            saved = keep_config(resources.store, config, author=author, why=why, base=base, card=card)
            page.update(saved_id=saved.id, next_view="History")
            st.rerun()


def preset_text(config: PipelineConfig, why: str, card: EvidenceCard) -> str:
    """A preset file: summary, origin, what differs from the preset it was tuned from."""
    changed = "proposed without labels from" if card.unlabelled else "tuned from"
    origin = f"{card.baseline} kept after a search" if card.kept else f"{changed} {card.baseline}"
    summary = why or f"{config.name}: {origin}."
    header = f"{summary}\nSource: {origin}, with CEMS Workbench.\n{card.text}"
    return dump_changes(config, preset_behind(config), header)


def _export(config: PipelineConfig, card: EvidenceCard, result: SearchResult, resources: Resources) -> None:
    forms = offered_forms(config)
    form = widgets.switch("Form", forms, "tune:form", forms[0], format_func=lambda form: FORM_TITLES[form])
    export, folder = exported(config, form, card), ""
    if export.refused:
        folder = _installation(export)
        export = exported(config, form, card, folder)
    own = _own_evidence(export, result, resources)
    export, rankings, card = with_figures(
        config, form, card, lambda export: _cached_rankings(result, export, own), folder
    )
    st.caption(_lost_text(export))
    _rankings(rankings)
    if export.lost:
        if rankings:
            _fill(export, rankings[0], own, result, resources)
        lost = [(path, short_value(here), short_value(there)) for path, here, there in export.lost]
        help = {"there": "The value in the target system after loading the file"}
        draw_values(("parameter", "here", "there"), lost, key="tune:lost", help=help, most=7, width="content")
    else:
        for line in result.lacking:
            st.caption(plain(f"Not complete: {line}; see Result."))
    text = export.text
    with st.container(horizontal=True):
        widgets.download(
            f"Download {FORM_TITLES[form]}", text, file_name(config, form), f"tune:export:{form}", type="primary"
        )
        widgets.download(
            "Evidence card (JSON)",
            card.to_json(),
            f"{file_name(config, 'card')}.json",
            "tune:card",
            help="The card as a separate file" + (": JSON has no comments." if form == "json" else "."),
        )
    with st.container(key="tune-code"):
        st.code(text, language=LANGUAGES.get(form, "bash"), height=380)


def _installation(export: Export) -> str:
    """Draw the question for the folder of the target's installation; empty until it has what the target reads from it."""
    places = unplaced(export.read)
    help = f"{export.reader} reads from it: {', '.join(f'`{place}`' for place in places.values())}"
    ask, hint = f"Folder of {export.reader} on this machine", "needed to measure its ranking; the file is the same"
    folder: str = st.text_input(ask, placeholder=hint, **widgets.remembered("tune:installation", help))
    folder = folder.strip().rstrip("/")
    with widgets.errors_shown():
        for place in places.values() if folder else ():
            stop_list(f"{folder}/{place}")
        return folder
    return ""


def _own_evidence(export: Export, result: SearchResult, resources: Resources) -> LabelledEvidence | None:
    """Evidence gathered for the exported config, if the search's evidence does not cover it; None if there is none."""
    if not export.lost or outdated(result, resources) is not None:
        return None
    if not any(ranking.lacking for ranking in _cached_rankings(result, export, None)):
        return None
    return of_selection(export, result.planned.data.labelled, resources, for_all_sessions)


def _cached_rankings(result: SearchResult, export: Export, own: LabelledEvidence | None) -> Sequence[ExportedRanking]:
    """The rankings by both configs, computed once per result, hold-out look and exported config."""
    there = None if own is None else own.batch
    key = ("export", result.tuned.looks, export.config, export.read, own and own.key)
    return learned(key, lambda: measured_proposal(result, export, there))


def _rankings(rankings: Sequence[ExportedRanking]) -> None:
    if not rankings:
        return
    rows = []
    for ranking in rankings:
        for row in ranking.differences:
            here, there = (
                next(one for one in found.summaries if one.measure == row.measure)
                for found in (ranking.here, ranking.there)
            )
            change = (row.difference, interval_words(row.low, row.high), row.p)
            for name, count, one, against in (
                ("in the workbench", len(ranking.here.qids), here, (None,) * 3),
                (ranking.export.as_read, len(ranking.there.qids), there, change),
            ):
                mean = with_interval(one.mean, one.low, one.high)
                rows.append((name, f"{ranking.queries} ({count})", str(row.measure), mean, *against))
    names = ("ranking", "queries", "measure", "mean", "difference", "95 % interval", "p")
    form = {"difference": "%+.3f", "p": "%.4f"}
    draw_values(names, rows, key="tune:as_read", format=form, most=8, width="content")


def _fill(
    export: Export, ranking: ExportedRanking, own: LabelledEvidence | None, result: SearchResult, resources: Resources
) -> None:
    """Draw the gaps in the evidence for the exported config, and the offer to gather them, or only the scores."""
    if not ranking.lacking:
        return
    if own is not None:
        needs = ranking.there.rankings.needs
        rows = [Lacking(export.as_read, export.read, own.evidence, needs, own.batch.qids)]
        if setup.draw_missing_scores("tune:export", rows, resources):
            st.rerun()
        return
    lines = "\n".join(f"- {plain(line)}" for line in ranking.lacking[:MAX_MISSING_LINES])
    more = len(ranking.lacking) - MAX_MISSING_LINES
    lines += f"\n- and {more} more" if more > 0 else ""
    head = f"The value as read by {export.reader} uses incomplete evidence and may be far off."
    selection = selection_of(result.planned.data.labelled)
    why_not = outdated(result, resources) or cannot_rerank(Settings(), export.read, server_answers)
    if why_not:
        st.warning(f"{head}\n\n{lines}\n\nIt cannot be gathered here: {plain(why_not)}", icon=":material/warning:")
        return

    message = f"{head} Gather the {len(selection.queries)} queries to measure its exact ranking.\n\n{lines}"
    kept = "Gathered evidence is kept; gathering can be resumed."
    gather = partial(widgets.gather_wanted, [(export.read.name, export.read, selection)], resources)
    if widgets.offer_job(
        "tune:export_gather", message, "Gather", gather, icon=":material/warning:", kept=kept, warn=True
    ):
        st.rerun()


def _lost_text(export: Export) -> str:
    """One line on the parameters that the target format cannot express."""
    if not export.lost:
        return "Loading this file gives the identical config and ranking; all values are within their ranges."
    return (
        f"{capital(export.reader)} may rank differently. Not exactly in its file, or not read: {counted(len(export.lost), 'parameters')} "
        "of this config. The file has them as comments or under a separate heading."
    )


def draw_history(resources: Resources) -> None:
    """Draw the saved configs, latest first, with restore, rename and download; below them, the import of config files."""
    records = resources.store.configs.history()
    if records:
        _table(records, resources)
    else:
        widgets.empty("No config is saved yet", render("tune/nothing_kept.html"))
    st.markdown("## From a file")
    draw_import(resources, "tune:")


def _table(records: list[ConfigRecord], resources: Resources) -> None:
    cards = {record.id: kept_card(record)[0] for record in records}

    def measured(record: ConfigRecord) -> str | None:
        card = cards[record.id]
        last = card.measured[-1] if card is not None and card.measured else None
        return None if last is None else f"{last.metric} {last.baseline:.3f} → {last.tuned:.3f}"

    def matches(record: ConfigRecord) -> str:
        card = cards[record.id]
        return "–" if card is None else "changed" if evidence_warning(card, resources.store) else "same"

    columns: list[Column[ConfigRecord]] = [
        Column("name", lambda record: record.name, 150),
        Column("when", lambda record: f"{record.saved_at:%Y-%m-%d %H:%M}", 116),
        Column("who", lambda record: record.author, 80),
        Column("from", lambda record: record.base, 80),
        Column("measured", measured, 160, help="The last measurement on the evidence card"),
        Column("store", matches, 66, help="Whether it was measured on the current content of this store"),
        Column("why", lambda record: record.why, 200),
    ]
    picked, saved = pick_row(records, columns, key="tune:history", placeholder="–", most=8), page.get().saved_id
    chosen = picked or next((record for record in records if record.id == saved), None)
    if chosen is None:
        st.caption("Select a row to restore a config.")
        return
    _opened(chosen, resources)


def _opened(record: ConfigRecord, resources: Resources) -> None:
    st.markdown(f"**{plain(record.name)}**" + (f"  \n:small[{plain(record.why)}]" if record.why else ""))
    try:
        restored = restored_config(record, resources.store)
    except WorkbenchError as error:
        st.error(plain(f"It cannot be read: {error}"))
        return
    config, card = restored.config, restored.card
    for warning in restored.warnings:
        st.warning(plain(warning), icon=":material/history:")
    changed = difference(state.present_config(), config)
    with st.container(horizontal=True):
        st.button(
            "Restore to the sliders",
            key="tune:restore",
            type="primary",
            icon=":material/settings_backup_restore:",
            on_click=state.use_config,
            args=(config,),
            disabled=not changed,
        )
        widgets.download("YAML", export_config(config, "yaml", card), file_name(config, "yaml"), "tune:kept_yaml")
        _reword(record, resources)
    if changed:
        diff_table(state.present_config(), config, "tune:kept_diff")
    else:
        st.caption("This is the config set in Inspect.")
    if card is not None:
        with st.expander("Its evidence card"):
            st.code(card.text, language=None, wrap_lines=True)


def _reword(record: ConfigRecord, resources: Resources) -> None:
    box = st.popover("Name and reason", key=f"tune:reword:{record.id}", icon=":material/edit:")
    with box, st.form(f"tune:reword_form:{record.id}", border=False):
        name = st.text_input("Name", record.name, max_chars=80)
        why = st.text_area("Why", record.why, max_chars=2000)
        if st.form_submit_button("Save", type="primary"):
            with widgets.errors_shown():
                session.require("reviewer")
                resources.store.configs.reword(record.id, name=name.strip(), why=why)
                st.rerun()
