"""The report of a tuning: the verdict, what the proposal is worth where it was not chosen, what it changes, and its evidence card.

Figures come from `jobs.tuning_summary`, as on the Tune page, and from the card. The report contains no text of a query or a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain

from cems_workbench.config import config_hash, field_spec
from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.jobs import tuning_summary
from cems_workbench.jobs.tuning import SearchResult, card_of, guard_lines
from cems_workbench.pipeline.table import Floats
from cems_workbench.report import page

MAX_FRONT = 40
"""Configs of the Pareto front that are listed."""
FIGURE_HEIGHT_PX = 240
"""Pixels of the chart of the front."""
FIGURE_MARGIN_PX = 8
"""Pixels above and below its marks."""


def tuning_report(result: SearchResult, moment: datetime) -> str:
    """A finished or stopped search as one HTML page; `moment` is when the report is made."""
    planned, tuned = result.planned, result.tuned
    space, found = planned.plan.space, result.by_judgments
    measure = str(planned.plan.goal.objectives[0])
    card = card_of(result, moment.date().isoformat())
    return page.render(
        "tune.html",
        title=f"Tuning of {space.baseline.name} on {planned.data.query_set}",
        headline=tuning_summary.headline(result),
        about=tuning_summary.about_lines(result),
        doubt=tuning_summary.doubt_line(result),
        unlabelled=planned.data.stands_in,
        stopped=tuned.search.cancelled,
        measure=measure,
        worth=_worth(tuning_summary.gain_rows(result)),
        gap=tuning_summary.gap_line(result),
        holdout=_holdout_line(result),
        judged=_worth(tuning_summary.judged_rows(found)) if found else None,
        judged_lines=tuning_summary.judged_lines(found) if found else (),
        guards=guard_lines(result),
        front=_front(result) if len(planned.plan.goal.names) > 1 else None,
        tall=FIGURE_HEIGHT_PX,
        axes=_axes(result),
        measured_stability=bool(result.regions),
        lacking=result.lacking,
        card=card.text,
        config=tuned.config.name,
        origin=_origin(result) + page.made(moment),
        redact=False,
    )


def _worth(rows: Sequence[tuning_summary.GainRow]) -> page.Row:
    """The gains on one scale, as the figure of differences takes them."""
    gains = [row.gain for row in rows if row.gain]
    scale = page.scale_of([edge for one in gains for edge in (one.low, one.high, one.difference)], around_zero=True)
    drawn = tuple(_gain(row, scale) for row in rows)
    measured = tuple(one for one in drawn if one["row"].gain)
    return {"name": "the proposal", "scale": scale, "every": drawn, "rows": measured}


def _gain(row: tuning_summary.GainRow, scale: page.Scale) -> page.Row:
    found = row.gain
    if found is None:
        return {"row": row, "tone": "same", "verdict": ""}
    said, ends = (
        tuning_summary.verdict(found) if row.fair else page.DASH,
        f"{page.signed(found.low)} to {page.signed(found.high)}",
    )
    words = f"{page.signed(found.difference)} ({ends}), {said if row.fair else row.about}"
    mark = page.mark_at(row.name, "bar", found.difference, found.low, found.high, scale, words)
    return {"row": row, "tone": page.tone(said), "verdict": said, "ends": ends, "mark": mark}


def _holdout_line(result: SearchResult) -> str:
    """Whether there are sealed queries, and how often they were looked at."""
    sealed, looks = len(result.planned.plan.split.holdout), result.tuned.looks
    if not sealed:
        return "No query was sealed: the folds are the only queries that did not choose."
    if not looks:
        return f"{counted(sealed, 'queries')} sealed and not looked at."
    this = f"this was look {looks}, and each look makes the sealed result worth less"
    return f"{counted(sealed, 'queries')} sealed; {this}."


def _axes(result: SearchResult) -> tuple[page.Row, ...]:
    """The searched parameters; places are percent of the range, None where there is none."""
    space = result.planned.plan.space
    regions = {region.path: region for region in result.regions}
    before, after = space.values_of(space.baseline), result.tuned.proposal.values
    rows = []
    for axis, was, now in zip(space.axes, before, after, strict=True):
        region = regions.get(axis.path)
        row: page.Row = {
            "path": axis.path,
            "label": field_spec(axis.path).label,
            "baseline": short_value(was),
            "proposal": short_value(now),
            "same": was == now,
            "stable": tuning_summary.stable_words(region),
            "range": ", ".join(map(short_value, axis.choices)),
            **dict.fromkeys(("was", "now")),
            **dict.fromkeys(("low", "width"), 0.0),
        }
        if not axis.choices:
            scale = page.Scale(axis.low, axis.high if axis.high > axis.low else axis.low + 1)
            row["range"] = f"{axis.low:g} to {axis.high:g} in steps of {axis.step:g}"
            places = (("was", was), ("now", now))
            row |= {name: scale.share(float(value)) for name, value in places if isinstance(value, int | float)}
            if region is not None and region.low is not None:
                low = scale.share(region.low)
                row |= {"low": low, "width": round(max(scale.share(region.high) - low, 0.8), 2)}
        rows.append(row)
    return tuple(rows)


def _front(result: SearchResult) -> page.Row:
    """The first objective up against the second across."""
    names, reached, search = (
        tuning_summary.objective_names(result),
        tuning_summary.all_reached(result),
        result.tuned.search,
    )
    x, y = _close_around(reached[:, 1]), _close_around(reached[:, 0])
    rows, front = tuning_summary.front_of(result), set(search.front)
    paths = tuple(axis.path for axis in result.planned.plan.space.axes)
    proposal = next(i for i, trial in enumerate(search.trials) if trial is result.tuned.proposal)
    places = {i: row for row, i in enumerate(rows[:MAX_FRONT])}

    def down(share: float) -> float:
        return round(FIGURE_MARGIN_PX + (100 - share) / 100 * (FIGURE_HEIGHT_PX - 2 * FIGURE_MARGIN_PX), 1)

    def cells(i: int) -> tuple[list[str], list[str]]:
        found = zip(names, reached[i].tolist(), strict=True)
        values = [f"{value:.0f}" if name == tuning_summary.COST else page.number(value) for name, value in found]
        return values, list(map(short_value, search.trials[i].values))

    def named(i: int) -> str:
        return ", ".join(f"{name} {value}" for name, value in zip((*names, *paths), chain(*cells(i)), strict=True))

    def point(i: int, shape: str, colour: str, what: str) -> page.Row:
        at = {"x": x.share(float(reached[i, 1])), "y": down(y.share(float(reached[i, 0])))}
        words, row = f"{what}: {named(i)}", None if shape == "dot" else places.get(i)
        return at | {"shape": shape, "colour": colour, "words": words, "row": row}

    usable = [i for i, trial in enumerate(search.trials) if trial.usable and i not in front]
    tried = [point(i, "dot", "same", "tried") for i in usable]
    tried += [point(i, "circle", "s1", "on the front") for i in rows]
    tried += [point(0, "diamond", "s0", "baseline"), point(proposal, "ring", "s2", "proposal")]
    listed = tuple(cells(i) for i in rows[:MAX_FRONT])
    best = ", ".join(f"{name} {value}" for name, value in zip(names, listed[0][0] if listed else (), strict=False))
    return {
        "names": tuple(names),
        "tried": tuple(tried),
        "across": x.ticks,
        "up": tuple((down(share), words) for share, words in y.ticks),
        "paths": paths,
        "rows": listed,
        "more": max(0, len(rows) - MAX_FRONT),
        "words": f"On the front: {len(rows)} configs; the best by {names[0]} has {best}",
    }


def _close_around(values: Floats) -> page.Scale:
    """A scale no wider than what was reached, with a little room: configs that were tried are often much alike."""
    low, high = float(values.min()), float(values.max())
    room = max((high - low) * 0.08, 0.005)
    return page.Scale(low - room, high + room)


def _origin(result: SearchResult) -> page.Facts:
    planned, base, proposal = result.planned, result.planned.plan.space.baseline, result.tuned.config
    return (
        *page.evidence_facts(planned.data.labelled),
        ("queries that count", str(len(planned.batch.queries))),
        ("seed", str(planned.plan.seed)),
        (f"baseline {base.name}", f"SHA-256 {config_hash(base)}"),
        (f"proposal {proposal.name}", f"SHA-256 {config_hash(proposal)}"),
    )
