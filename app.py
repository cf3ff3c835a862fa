"""CEMS Workbench: navigation. Run with `make run`, or `streamlit run app.py`."""

from pathlib import Path

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.ui.kit.escape import plain

ICON = (
    Path(__file__).parent / "cems_workbench" / "ui" / "icon.png"
)  # a file of ours: named icons are fetched from a server

st.set_page_config(page_icon=str(ICON), layout="wide")

page = st.navigation(
    [
        st.Page("pages/inspect.py", title="Inspect", icon=":material/search:", default=True),
        st.Page("pages/label.py", title="Label", icon=":material/rule:"),
        st.Page("pages/evaluate.py", title="Evaluate", icon=":material/bar_chart:"),
        st.Page("pages/tune.py", title="Tune", icon=":material/tune:"),
        st.Page("pages/memories.py", title="Memories", icon=":material/inventory_2:"),
    ],
    position="top",
)
st.set_page_config(page_title=f"{page.title} · CEMS Workbench")
try:
    page.run()
except WorkbenchError as error:  # such as a damaged block of the database that is met while a page is drawn
    st.error(plain(str(error)), icon=":material/error:")
