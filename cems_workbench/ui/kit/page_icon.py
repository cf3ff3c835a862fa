"""The icon of the browser's tab: a bundled file, since Streamlit fetches named icons from a server."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from pathlib import Path

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.PageConfig_pb2 import PageConfig
from streamlit.runtime.scriptrunner_utils.script_run_context import enqueue_message

ICON = Path(__file__).resolve().parents[1] / "icon.png"


def draw_page_icon() -> None:
    """Set the icon as `st.set_page_config(page_icon=ICON)` does, which imports an imaging library to look at the file."""
    message = ForwardMsg()
    config = message.page_config_changed
    config.favicon = _data_url()
    # What is not set here would go back to its default.
    config.layout, config.initial_sidebar_state = PageConfig.LAYOUT_UNSET, PageConfig.SIDEBAR_UNSET
    enqueue_message(message)


@cache
def _data_url() -> str:
    return f"data:image/png;base64,{b64encode(ICON.read_bytes()).decode()}"
