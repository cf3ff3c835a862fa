"""What the pages use of Streamlit's inside is there, and means what they take it to mean."""

from __future__ import annotations

from dataclasses import fields

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from cems_workbench.ui.kit import html


def test_a_run_says_whether_it_goes_back() -> None:
    assert {"is_history_navigation"} <= {field.name for field in fields(ScriptRunContext)}


def test_the_icon_and_the_logo_are_sent_as_streamlit_would(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[ForwardMsg] = []
    monkeypatch.setattr(html, "enqueue_message", sent.append)
    html.draw_identity()
    icon, logo = sent
    assert (icon.WhichOneof("type"), logo.WhichOneof("type")) == ("page_config_changed", "logo")
    assert icon.page_config_changed.favicon.startswith("data:image/png;base64,iVBOR")
    assert not icon.page_config_changed.title, "each page has its own"
    assert logo.logo.image.startswith("data:image/svg+xml;base64,")
