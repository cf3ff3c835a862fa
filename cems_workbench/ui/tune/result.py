"""What a search found: the verdict, what the proposal is worth on each part of the queries, and what it changes."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import numpy as np
import streamlit as st

from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.holdout import Gain, gain, mean_of
from cems_workbench.tuning.tune import open_holdout
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.tune import pareto as tune_pareto
from cems_workbench.ui.tune.html import GainRow, axes_html, gains_html
from cems_workbench.ui.tune.run import start
from cems_workbench.ui.tune.space import label
from cems_workbench.ui.tune.state import FOUND, Found


def draw(found: Found, resources: Resources) -> None:
    """The whole result."""
    st.html(verdict_html(found))
    if found.tuned.found.cancelled:
        _go_on(found)
    measure = str(found.order.plan.goal.objectives[0])
    st.html(gains_html(gain_rows(found), measure))
    st.caption(
        gap_line(found),
        help="Train, folds and hold-out far apart are a sign that the search learned its queries by heart.",
    )
    _holdout(found, resources)
    for line in guard_lines(found):
        st.caption(line)
    for need in found.needs:
        st.caption(f":orange[⚠] {plain(need)}: the proposal was measured on what is there.")
    if len(found.order.plan.goal.names) > 1:
        tune_pareto.draw(found)
    st.markdown("###### What the proposal changes")
    space, proposal = found.order.plan.space, found.tuned.proposal
    names = [label(axis.path, space.baseline) for axis in space.axes]
    own = space.values_of(space.baseline)
    st.html(axes_html(space.axes, names, own, proposal.values, found.regions))


def headline(found: Found) -> str:
    """The verdict in one line, and nothing better than it is."""
    tuned, measure = found.tuned, found.order.plan.goal.objectives[0]
    base = found.order.plan.space.baseline.name
    if not found.better:
        return f"Nothing significantly better than {base}: the baseline is proposed"
    gained = tuned.holdout or tuned.validation
    if gained is None:
        return f"{measure}: a candidate better than {base}, not yet cross-validated"
    if gained.difference <= 0:
        return f"No gain over {base} on queries that the search did not see"
    where = "the sealed queries" if tuned.holdout is not None else "queries that the search did not see"
    sure = "" if gained.p < 0.05 else ", which may be chance"
    return f"{measure} {gained.baseline:.3f} → {gained.tuned:.3f} on {where}{sure}"


def verdict_html(found: Found) -> str:
    """The verdict, and under it what was searched."""
    order, trials = found.order, found.tuned.found.trials
    given_up = sum(trial.pruned for trial in trials)
    broken = sum(bool(trial.broken) for trial in trials)
    parts = [
        f"“{order.ground.selection.query_set}”, baseline {order.plan.space.baseline.name}",
        f"{len(trials) - 1} configs of {len(order.plan.space.axes)} parameters",
        *([f"{given_up} given up early"] if given_up else []),
        *([f"{broken} broke a guard"] if broken else []),
        f"seed {order.plan.seed}",
    ]
    about = escape(" · ".join(parts))
    if not found.better:
        best = found.tuned.found.best
        about += (
            f"<br>The best of them reached {best.reached[0]:.4f} where the baseline has {found.tuned.found.baseline.reached[0]:.4f}: "
            "within what chance gives the best of many."
        )
    return f'<div class="wb-verdict"><h3>{escape(headline(found))}</h3><p>{about}</p></div>'


def _go_on(found: Found) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.info("Stopped before its end. What was tried is kept; going on skips it.", icon=":material/pause:")
    right.button("Go on", key="tn:go_on", icon=":material/play_arrow:", type="primary", width="stretch",
                 on_click=start, args=(found.order,))  # fmt: skip


def gain_rows(found: Found) -> list[GainRow]:
    """Where the search looked, the folds, and the hold-out."""
    tuned, order = found.tuned, found.order
    folds = len(order.plan.split.folds)
    sealed = len(order.plan.split.holdout)
    stopped = "stopped before" if tuned.found.cancelled else ""
    unseen = f"{sealed} queries, sealed" if sealed else "no query was sealed"
    return [
        GainRow("Searched on", "flatters: the best of many", searched_gain(found), fair=False),
        GainRow("Cross-validated", f"chosen on {folds - 1} folds, scored on the other", tuned.validation, stopped),
        GainRow("Hold-out", "seen by no search", tuned.holdout, unseen),
    ]


def searched_gain(found: Found) -> Gain:
    """The proposal against the baseline on the queries that were searched on."""
    base, best = found.tuned.found.baseline.scores[:, 0], found.tuned.proposal.scores[:, 0]
    return gain(base, best, found.order.plan.seed)


def gap_line(found: Found) -> str:
    """How much of what the search saw is left where it did not look."""
    tuned = found.tuned
    parts = [f"searched on {mean_of(tuned.proposal.scores[:, 0]):.3f}"]
    if tuned.validation is not None:
        parts = [f"folds: chosen on {tuned.train:.3f}, scored on the other {tuned.validation.tuned:.3f}"]
        parts.append(f"gap {tuned.train - tuned.validation.tuned:+.3f}")
    if tuned.holdout is not None:
        parts.append(f"hold-out {tuned.holdout.tuned:.3f}")
        if tuned.validation is not None:
            parts.append(f"gap to the folds {tuned.validation.tuned - tuned.holdout.tuned:+.3f}")
    return " · ".join(parts)


def guard_lines(found: Found) -> list[str]:
    """Each guard with what baseline and proposal reach on the queries searched on."""
    order, tuned = found.order, found.tuned
    types = np.array([order.plan.types[row] for row in order.plan.split.open.tolist()], dtype=object)
    lines = []
    for guard in order.plan.goal.guards:
        column = order.plan.goal.measures.index(guard.measure)
        asked = np.full(len(types), True) if guard.query_type is None else types == guard.query_type
        if asked.any():
            was, now = (mean_of(one.scores[asked, column]) for one in (tuned.found.baseline, tuned.proposal))
            lines.append(
                f":material/shield: Guarded: {plain(str(guard))} ({was:.3f} → {now:.3f}, {int(asked.sum())} queries)"
            )
    return lines


def _holdout(found: Found, resources: Resources) -> None:
    """The seal: how often it was broken, and the button that breaks it."""
    order, tuned = found.order, found.tuned
    if not len(order.plan.split.holdout) or tuned.found.cancelled:
        return
    if tuned.holdout is not None:
        st.caption(f"Look {tuned.looks} at these sealed queries.")
        return
    looks = resources.store.holdouts.count(order.ground.selection.query_set, order.sealed)
    box = st.popover(
        f"Open the sealed hold-out (look {looks + 1})", key=f"tn:seal:{looks}", icon=":material/lock_open:"
    )
    with box:
        before = (
            f"Some of these queries were looked at {looks} time{'s' if looks > 1 else ''} before. " if looks else ""
        )
        st.markdown(
            f"{before}Each look makes it worth less: what is chosen after looking has been fitted to it. Open it once, when you "
            "have decided for this proposal. Looks are counted with the query set and stand on the evidence card."
        )
        st.button(
            "Open it",
            key="tn:open",
            type="primary",
            icon=":material/lock_open:",
            on_click=_open,
            args=(found, resources),
        )


def _open(found: Found, resources: Resources) -> None:
    order = found.order
    tuned = open_holdout(
        found.tuned, order.score, resources.store.holdouts, order.ground.selection.query_set, order.sealed
    )
    st.session_state[FOUND] = replace(found, tuned=tuned)
