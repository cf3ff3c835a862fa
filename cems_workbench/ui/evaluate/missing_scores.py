"""Banner on missing evidence, with a button that adds missing reranker scores; used by Evaluate and Tune."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.scoring import Lacking, score_lacking, why_not_scored
from cems_workbench.models.servers import Answers, ask_all
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.settings import Settings
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import offer_job

ICON = ":material/warning:"
MAX_BANNER_LINES = 3
"""Maximum lines in the banner; if there are more, all are listed below it."""
SERVER_CACHE_S = 30
"""Cache time of the servers' availability."""


def of_evaluated(measured: Sequence[EvaluatedConfig]) -> list[Lacking]:
    """The missing scores of each config that has any."""
    return [
        Lacking(
            row.evaluation.config.name,
            row.evaluation.config,
            row.labelled.evidence,
            row.evaluation.rankings.needs,
            row.evaluation.qids,
        )
        for row in measured
        if row.evaluation.rankings.needs
    ]


def banner_lines(lacking: Sequence[Lacking]) -> list[str]:
    """The lines of the banner, as plain text."""
    return missing_score_lines((one.name, one.needs) for one in lacking)


def draw(
    key: str, lacking: Sequence[Lacking], resources: Resources, *, label: str = "Score them", locked: str | None = None
) -> bool:
    """Draw the banner if anything is missing; True once the missing pairs have been scored.

    `locked`: why the evidence must not change. If nothing can be scored, the reason replaces the button.
    """
    lines = banner_lines(lacking)
    if not lines:
        return False
    scorable = [one for one in lacking if one.scorable]
    why_not = (locked or why_not_scored(scorable, resources, Settings(), server_answers)) if scorable else None
    parts = [
        "The evidence is incomplete. The numbers use the available part.",
        _listed(lines[:MAX_BANNER_LINES]),
    ]
    if len(lines) > MAX_BANNER_LINES + 1:
        parts[-1] += f"\n- and {len(lines) - MAX_BANNER_LINES} more, below"
    else:
        parts[-1] = _listed(lines)
    if why_not:
        parts.append(f"The scores cannot be added here: {plain(why_not)}.")
    if any(len(one.needs) > one.scorable for one in lacking):
        parts.append("Evidence gathered with other values must be gathered again for that config.")
    message = "\n\n".join(parts)
    done = False
    if scorable and not why_not:
        done = offer_job(
            f"{key}:score",
            message,
            label,
            lambda progress: _score(scorable, resources, progress),
            icon=ICON,
            warn=True,
            kept="Computed scores are kept; scoring can be resumed.",
            help="The reranker scores only these pairs. Their scores are added to the evidence, and everything is measured again.",
        )
    else:
        st.warning(message, icon=ICON)
    if len(lines) > MAX_BANNER_LINES + 1:
        with st.expander(f"All {len(lines)} gaps in the evidence"):
            st.markdown(_listed(lines))
    return done


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {plain(line)}" for line in lines)


def _score(lacking: Sequence[Lacking], resources: Resources, progress: Progress) -> None:
    for report in score_lacking(lacking, resources, progress):
        for why, count in report.failed.items():
            st.toast(plain(f"{count} pairs have no score: {why}"), icon=ICON)


@st.cache_resource(ttl=SERVER_CACHE_S, show_spinner=False)
def server_answers() -> Answers:
    """Which servers are reachable."""
    settings = Settings()
    return ask_all(settings.llama_server_url, settings.ollama_url, settings.llm_url, settings.llm_key, None)()
