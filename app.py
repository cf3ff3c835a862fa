"""CEMS Workbench: navigation. Run with `make run`, or `streamlit run app.py`."""

import streamlit as st

from cems_workbench.platform import start_up
from cems_workbench.ui.kit.html import draw_identity

st.set_page_config(layout="wide")
draw_identity()

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
start_up.watch()
page.run()
