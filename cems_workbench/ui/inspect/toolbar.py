"""Popovers of the toolbar: query picker, expansion dictionary, typo corrections, and export and import of the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.config import FORM_TITLES, PipelineConfig, difference, field_spec, file_name, import_config
from cems_workbench.config.forms.files import offered_forms
from cems_workbench.errors import InputError, counted
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.baseline import differences
from cems_workbench.ui.kit.html import capital, plain, render, uploaded_text
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import download, errors_shown, opened_popover

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.store import LearnedPair


def draw_picker(resources: Resources) -> None:
    """Draw a popover with all judged and recorded queries; selecting a row searches it. While closed, they are only counted."""
    judged = resources.store.judgments.count_queries("human")
    traced = traced_sets(resources.store)
    recorded = {name: count for name, count in resources.store.recorded_answers.sets().items() if name not in traced}
    if not judged and not recorded and not traced:
        return
    counts = (("judged", judged), ("recorded", sum(recorded.values())), ("traced", sum(traced.values())))
    shown = [(count, kind) for kind, count in counts if count]
    first = (f"{count:,} {kind}" for count, kind in shown[:-1])
    label = " · ".join((*first, counted(shown[-1][0], f"{shown[-1][1]} queries")))
    help = "Queries of this store that people judged, that a live system received, or that another pipeline recorded."
    box = opened_popover(label, state.PICKER, ":material/checklist:", help, type="tertiary")
    if box is not None:
        from cems_workbench.ui.inspect.picker_tables import draw_queries

        with box, errors_shown():
            draw_queries(judged, recorded, traced, resources)


def draw_dictionary(resources: Resources) -> None:
    """Draw a popover with the entries; saving gathers the query again."""
    help = "Replacements of query words; each adds a query variant."
    title, key = "Expansion dictionary", "inspect:dictionary"
    box = opened_popover(title, key, ":material/menu_book:", help, type="tertiary")
    if box is None:
        return
    from cems_workbench.pipeline.understanding import read_dictionary

    with box:
        try:
            entries = read_dictionary(resources.dictionary_path)
        except InputError as error:
            st.error(plain(str(error)))
            return
        st.caption("If the word occurs in the query, the text with the replacement is searched as well.")
        rows = [{"word": word, "replacement": text} for word, text in sorted(entries.items())]
        columns: Any = {
            "word": st.column_config.TextColumn("Word of the query", width=150),
            "replacement": st.column_config.TextColumn("Replaced by", width="large"),
        }
        edited: Any = st.data_editor(
            rows or [{"word": "", "replacement": ""}],
            key="inspect:dictionary_table",
            num_rows="dynamic",
            hide_index=True,
            width=620,
            column_config=columns,
        )
        wanted = entries_of(edited)
        save: Any = {"disabled": wanted == entries, "on_click": _save, "args": (resources, wanted), "type": "primary"}
        st.button("Save", key="inspect:dictionary_save", **save)


def entries_of(rows: Sequence[Mapping[str, str | None]]) -> dict[str, str]:
    """The complete rows as word -> replacement; the last of duplicate words wins."""
    pairs = (((row.get("word") or "").strip(), (row.get("replacement") or "").strip()) for row in rows)
    return {word: text for word, text in pairs if word and text}


def _save(resources: Resources, entries: dict[str, str]) -> None:
    from cems_workbench.pipeline.understanding import write_dictionary

    try:
        write_dictionary(resources.dictionary_path, entries)
    except InputError as error:
        st.toast(plain(str(error)), icon=":material/block:")
        return
    st.session_state.pop("inspect:dictionary_table", None)
    state.forget_evidence()


MAX_ROWS = 40


def draw_typos(resources: Resources) -> None:
    """Draw a popover with the pairs and buttons to forget one or all, which search the query again."""
    help = "Corrections used in searches; they are tried first when the same typo occurs again."
    box = opened_popover("Typos", "inspect:typos", ":material/spellcheck:", help, type="tertiary")
    if box is None:
        return
    corrections = resources.store.corrections

    def forget(pair: LearnedPair | None) -> None:
        """Forget a pair, or all that are learned."""
        if pair is None:
            corrections.forget_learned()
        else:
            corrections.forget(pair.typo, pair.correction)
        state.forget_evidence()

    with box:
        pairs = corrections.read()
        if not pairs:
            st.caption("Nothing is learned yet. A typo that a search corrects is listed here.")
            return
        learned = sum(not pair.refused for pair in pairs)
        help = (
            "Learned: used first. Refused: rejected by the LLM, so never used. A forgotten pair can be learned again."
        )
        st.caption(f"{learned} learned, {len(pairs) - learned} refused. Latest first.", help=help)
        with st.container(height=320 if len(pairs) > 7 else "content", border=False):
            for pair in pairs[:MAX_ROWS]:
                text, button = st.columns([4, 2], vertical_alignment="center")
                text.html(pair_html(pair))
                key = f"inspect:typo:{pair.typo}:{pair.correction}"
                button.button("Forget", key=key, on_click=forget, width="stretch", args=(pair,))
        if len(pairs) > MAX_ROWS:
            st.caption(f"and {len(pairs) - MAX_ROWS} older ones")
        every: Any = {"icon": ":material/delete_sweep:", "on_click": forget, "args": (None,), "disabled": not learned}
        st.button("Forget all learned", key="inspect:typos_forget_all", help="Refused pairs stay refused.", **every)


def pair_html(pair: LearnedPair) -> Markup:
    """Typo → correction, and how often it was accepted."""
    return render("inspect/pair.html", pair=pair, day=f"{pair.last_at:%Y-%m-%d}")


CARD_SUFFIX = ".card.json"


def draw_transfer(resources: Resources) -> None:
    """Draw a popover with downloads and the import of a config."""
    box = opened_popover("Config", "inspect:transfer", ":material/swap_vert:", "Export or import", type="tertiary")
    if box is None:
        return
    from cems_workbench.jobs.exporting import exported

    with box:
        help = "The file contains all parameters. A form of another system lists those it cannot express as comments."
        st.caption("Export", help=help)
        buttons = st.container(horizontal=True)
        lost: list[str] = []
        instead: list[str] = []
        config = state.present_config()
        if config.name == state.present().preset and state.changed_parameters():
            config = named(f"{config.name}-changed", config)
        for form in offered_forms(config):
            export, name = exported(config, form), file_name(config, form)
            download(FORM_TITLES[form], export.text, name, f"inspect:export:{form}", box=buttons)
            if export.lost:
                lost.append(f"{counted(len(export.lost), 'parameters')} for {export.reader}")
            instead += [export.instead] if export.instead else []
        if lost:
            st.caption(
                f"Not expressible: {', '.join(lost)}.",
                help="Their effect on the ranking is measured on Tune → Export, and by `export CONFIG --format env --evidence FILE`.",
            )
        for line in instead:
            st.caption(plain(capital(f"{line}.")))
        draw_import(resources)


def draw_import(resources: Resources, place: str = "inspect:") -> None:
    """Draw the upload of a config in any format, its differences and measurements, and a button to use it. `place` is the key prefix."""
    uploads = st.file_uploader(
        "Import a config",
        ["yaml", "yml", "json", "toml", "env", "py", "txt"],
        key=f"{place}config_file",
        accept_multiple_files=True,
        help="Any export format, optionally with its evidence card (NAME.card.json). A form of another system overrides only the "
        "parameters it names.",
    )
    configs = [upload for upload in uploads if not upload.name.endswith(CARD_SUFFIX)]
    cards = [upload for upload in uploads if upload.name.endswith(CARD_SUFFIX)]
    if len(configs) > 1:
        st.caption("Several configs were uploaded; the last is shown.")
    if configs:
        _offer(configs[-1], cards[-1] if cards else None, resources, place)
    elif cards:
        st.caption("This is an evidence card. Add the config it belongs to.")


def _offer(upload: UploadedFile, card: UploadedFile | None, resources: Resources, place: str) -> None:
    from cems_workbench.config.evidence_card import card_reference, cited_card, parse_card

    try:
        text = uploaded_text(upload)
        result = import_config(text, state.present_config(), source=upload.name)
        origin = card_reference(parse_card(uploaded_text(card), card.name)) if card else cited_card(text)
    except InputError as error:
        st.error(plain(str(error)))
        return
    for warning in result.warnings:
        st.warning(plain(warning))
    stale = "" if origin is None else origin.mismatch(resources.store.identity, resources.store.content_version)
    if origin is None:
        st.caption("It has no evidence card, so its measured gain is unknown.")
    elif stale:
        st.warning(plain(stale), icon=":material/history:")
    elif not result.whole:
        st.caption(
            "Its evidence card is for this store, but the file is incomplete, so this config differs from the measured one."
        )
    else:
        st.caption(f":material/verified: Measured on the current content of this store ({plain(origin.date)}).")
    if not difference(state.present_config(), result.config):
        st.caption("The file has the same values as the current config.")
        return
    diff_table(state.present_config(), result.config, f"{place}diff")
    st.button("Use this config", key=f"{place}take", type="primary", on_click=state.use_config, args=(result.config,))


def diff_table(old: PipelineConfig, new: PipelineConfig, key: str) -> None:
    """Draw the parameters in which two configs differ, with the cost of each change."""
    rows = difference(old, new)
    st.caption(f"This would change {counted(len(rows), 'parameters')}.")
    draw_table(rows, [*differences("now", "then"), EFFECT], key=key, most=9, width=600)


COST = "instant: replayed from the current evidence. gathers: evidence is gathered again"
EFFECT = Column[tuple[str, Any, Any]](
    "effect", lambda row: "instant" if field_spec(row[0]).cost == "replay" else "gathers", 80, help=COST
)
