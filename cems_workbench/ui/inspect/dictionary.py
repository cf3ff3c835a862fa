"""Editor of the store's expansion dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import read_dictionary, write_dictionary
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import plain


def draw_dictionary(resources: Resources) -> None:
    """Draw a popover with the entries; saving gathers the query again."""
    popover = st.popover(
        "Expansion dictionary",
        icon=":material/menu_book:",
        key="inspect:dictionary",
        type="tertiary",
        on_change="rerun",
        help="Replacements of query words; each adds a query variant.",
    )
    if not popover.open:
        return
    with popover:
        path = resources.dictionary_path
        try:
            entries = read_dictionary(path)
        except InputError as error:
            st.error(plain(str(error)))
            return
        st.caption(
            "If the word occurs in the query, the text with the replacement is searched as well. Type into the empty row, then save."
        )
        edited = st.data_editor(
            [{"word": word, "replacement": text} for word, text in sorted(entries.items())]
            or [{"word": "", "replacement": ""}],
            key="inspect:dictionary_table",
            num_rows="dynamic",
            hide_index=True,
            width=620,
            column_config={
                "word": st.column_config.TextColumn("Word of the query", width=150),
                "replacement": st.column_config.TextColumn("Replaced by", width="large"),
            },
        )
        wanted = entries_of(edited)
        st.button(
            "Save",
            key="inspect:dictionary_save",
            disabled=wanted == entries,
            on_click=_save,
            args=(resources, wanted),
            type="primary",
        )


def entries_of(rows: Sequence[Mapping[str, str | None]]) -> dict[str, str]:
    """The complete rows as word -> replacement; the last of duplicate words wins."""
    pairs = (((row.get("word") or "").strip(), (row.get("replacement") or "").strip()) for row in rows)
    return {word: text for word, text in pairs if word and text}


def _save(resources: Resources, entries: dict[str, str]) -> None:
    try:
        write_dictionary(resources.dictionary_path, entries)
    except InputError as error:
        st.toast(plain(str(error)), icon=":material/block:")
        return
    st.session_state.pop("inspect:dictionary_table", None)
    state.forget_evidence()
