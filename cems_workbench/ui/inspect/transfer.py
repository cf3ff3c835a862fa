"""Taking a config away, and bringing one in with its differences shown first."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from cems_workbench.config import (
    FORM_TITLES,
    FORMS,
    PipelineConfig,
    difference,
    field_spec,
    file_name,
    import_config,
)
from cems_workbench.config.evidence_card import CardReference, cited, parse_card, reference
from cems_workbench.config.value_text import shown
from cems_workbench.errors import InputError
from cems_workbench.jobs.exporting import exported
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.tables import draw_table

CARD = ".card.json"


def draw_transfer(resources: Resources) -> None:
    """A popover with downloads and the import of a config."""
    popover = st.popover(
        "Config", icon=":material/swap_vert:", key="inspect:transfer", on_change="rerun", help="Export or import"
    )
    if not popover.open:
        return
    with popover:
        st.caption(
            "Export", help="The file states every parameter. An .env lists what its target cannot express, as comments."
        )
        buttons = st.container(horizontal=True)
        lost: list[str] = []
        for form in FORMS:
            export = exported(state.present_config(), form)
            name = file_name(state.present_config(), form)
            buttons.download_button(
                FORM_TITLES[form], export.text, name, key=f"inspect:export:{form}", on_click="ignore"
            )
            if export.lost:
                lost.append(f"{len(export.lost)} parameters to {export.reader}")
        if lost:
            st.caption(
                f"Lost on the way: {', '.join(lost)}.",
                help="What they do to the ranking is measured on Tune, Take it away, and by `export CONFIG --format env --evidence FILE`.",
            )
        draw_import(resources)


def draw_import(resources: Resources, place: str = "inspect:") -> None:
    """Upload a config of any form, see what it would change and what it was measured on, and use it. `place` begins the keys."""
    uploads = st.file_uploader(
        "Import a config",
        ["yaml", "yml", "json", "toml", "env", "py"],
        key=f"{place}config_file",
        accept_multiple_files=True,
        help="Any form of the export; its evidence card (NAME.card.json) may come with it. An .env is laid over the config that is "
        "set, and changes what it names.",
    )
    configs = [upload for upload in uploads if not upload.name.endswith(CARD)]
    cards = [upload for upload in uploads if upload.name.endswith(CARD)]
    if len(configs) > 1:
        st.caption("Several configs are here; the last is shown.")
    if configs:
        _offer(configs[-1], cards[-1] if cards else None, resources, place)
    elif cards:
        st.caption("That is an evidence card. Add the config it belongs to.")


def _offer(upload: UploadedFile, card: UploadedFile | None, resources: Resources, place: str) -> None:
    name = upload.name
    try:
        text = upload.getvalue().decode("utf-8-sig")
        result = import_config(text, state.present_config(), source=name)
        origin = reference(parse_card(card.getvalue().decode("utf-8-sig"), card.name)) if card else cited(text)
    except UnicodeDecodeError:
        st.error(plain(f"{name}: not UTF-8 text"))
        return
    except InputError as error:
        st.error(plain(str(error)))
        return
    for warning in result.warnings:
        st.warning(plain(warning))
    if result.renamed:
        st.caption(plain(result.renamed))
    _evidence_line(origin, resources, whole=result.whole)
    if not diff_rows(state.present_config(), result.config):
        st.caption("The file has the same values as the present config.")
        return
    diff_table(state.present_config(), result.config, f"{place}diff")
    st.button("Use this config", key=f"{place}take", type="primary", on_click=state.use_config, args=(result.config,))


def _evidence_line(origin: CardReference | None, resources: Resources, *, whole: bool) -> None:
    """Whether the store at hand is what the config was measured on; `whole`: the file states all of it, and all of it was read."""
    if origin is None:
        st.caption("It has no evidence card, so its measured gain is unknown.")
        return
    warning = origin.mismatch(resources.store.identity, resources.store.content_version)
    if warning:
        st.warning(plain(warning), icon=":material/history:")
    elif not whole:
        st.caption(
            "Its evidence card is of this store, but the file does not hold the whole config: what is here is not what was measured."
        )
    else:
        st.caption(f":material/verified: Measured on this store as it is now ({plain(origin.date)}).")


def diff_table(old: PipelineConfig, new: PipelineConfig, key: str) -> None:
    """The parameters in which two configs differ, with what a change of each costs."""
    rows = diff_rows(old, new)
    text = st.column_config.TextColumn
    st.caption(f"{len(rows)} parameter{'s' if len(rows) != 1 else ''} would change:")
    draw_table(
        rows,
        key=key,
        most=9,
        width=600,
        columns={
            "parameter": text("parameter", width=230),
            "now": text("now", width=130, help="The value that is set"),
            "file": text("then", width=130, help="The value it would have"),
            "effect": text(
                "effect",
                width=80,
                help="instant: replayed from the evidence at hand. gathers: evidence is fetched again",
            ),
        },
    )


def diff_rows(old: PipelineConfig, new: PipelineConfig) -> list[dict[str, str]]:
    """One row per parameter in which two configs differ."""
    return [
        {
            "parameter": path,
            "now": shown(was),
            "file": shown(will),
            "effect": "instant" if field_spec(path).cost == "replay" else "gathers",
        }
        for path, was, will in difference(old, new)
    ]
