"""The tables of a tuning result: what it is worth on each part of the queries, and where each parameter stands in its range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cems_workbench.tuning.holdout import Gain
from cems_workbench.tuning.space import Axis
from cems_workbench.tuning.stability import Region
from cems_workbench.ui.inspect.controls import shown

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class GainRow:
    """One part of the queries: its name, what it is, and the gain there; None while it is sealed or was not reached."""

    name: str
    about: str
    gain: Gain | None
    absent: str = ""
    fair: bool = True
    """Were these queries kept from the choice? Of the best of many, p says nothing."""


def verdict(gain: Gain) -> str:
    """In a word what a gain says, with its sign."""
    if abs(gain.difference) < 1e-9 and gain.low == gain.high:
        return "= same"
    if gain.p >= LEVEL:
        return "not certain"
    return "▲ better" if gain.difference > 0 else "▼ worse"


def gains_html(rows: Sequence[GainRow], measure: str) -> str:
    """A row a part: baseline, proposal, difference, its 95 % interval as text and on one scale for all, p, and what that says."""
    reach = max(
        [abs(edge) for row in rows if row.gain for edge in (row.gain.low, row.gain.high, row.gain.difference)] or [0]
    )
    head = [
        ("queries", "wb-n", "How many queries the means are of"), (f"baseline {measure}", "wb-n", ""), ("proposal", "wb-n", ""),
        ("difference", "wb-n", "Proposal less baseline, mean over the queries"),
        ("95 % interval", "", "Of the difference, by a paired bootstrap over queries; the line is 0"),
        ("p", "wb-n", "Two-sided paired randomisation test: how often chance alone would give so large a difference"), ("", "", ""),
    ]  # fmt: skip
    cells = "".join(f'<span class="{kind}" title="{about}">{escape(text)}</span>' for text, kind, about in head)
    body = "".join(_gain_row(row, reach * 1.08 or 1.0) for row in rows)
    return f'<div class="wb-tune wb-tune-gains"><div class="wb-tune-head"><span></span>{cells}</div>{body}</div>'


def _gain_row(row: GainRow, reach: float) -> str:
    name = f"<span><b>{escape(row.name)}</b><small>{escape(row.about)}</small></span>"
    one = row.gain
    if one is None:
        return f'<div>{name}<span></span><span class="wb-tune-sealed">{escape(row.absent)}</span></div>'
    place = [50 + 50 * value / reach for value in (one.low, one.high, one.difference)]
    track = (
        f'<span class="wb-track"><i class="wb-rail"></i><i class="wb-zero" style="left:50%"></i>'
        f'<i class="wb-span" style="left:{place[0]:.2f}%;width:{place[1] - place[0]:.2f}%"></i>'
        f'<i class="wb-dot" style="left:{place[2]:.2f}%"></i></span>'
    )
    interval = f"{one.low:+.3f} to {one.high:+.3f}"
    return (
        f'<div>{name}<span class="wb-n">{one.queries}</span><span class="wb-n">{one.baseline:.3f}</span>'
        f'<span class="wb-n"><b>{one.tuned:.3f}</b></span><span class="wb-n">{one.difference:+.3f}</span>'
        f'<span title="{interval}">{track}<small>{interval}</small></span>{_p(row, one)}</div>'
    )


def _p(row: GainRow, one: Gain) -> str:
    if not row.fair:
        return '<span class="wb-n" title="Of the best of many, p says nothing">–</span><span></span>'
    return f'<span class="wb-n">{one.p:.4f}</span><span><b>{verdict(one)}</b></span>'


def axes_html(
    axes: Sequence[Axis], names: Sequence[str], before: Sequence[Any], after: Sequence[Any], regions: Sequence[Region]
) -> str:
    """A row a searched parameter: baseline, proposal, and both in the range with how far the value can move."""
    by_path = {region.path: region for region in regions}
    head = "".join(
        f'<span class="{kind}" title="{about}">{text}</span>'
        for text, kind, about in (
            ("parameter", "", ""), ("baseline", "wb-n", ""), ("proposal", "wb-n", ""), ("range searched", "", ""),
            ("stable", "", "How far this value can move alone before the first objective falls by more than one standard error"),
        )
    )  # fmt: skip
    rows = zip(axes, names, before, after, strict=True)
    body = "".join(_axis_row(axis, name, was, now, by_path.get(axis.path)) for axis, name, was, now in rows)
    return f'<div class="wb-tune wb-tune-axes"><div class="wb-tune-head">{head}</div>{body}</div>{_KEY}'


_KEY = (
    '<div class="wb-tune-key"><span><span class="wb-track"><i class="wb-was" style="left:50%"></i></span>baseline</span>'
    '<span><span class="wb-track"><i class="wb-dot" style="left:50%"></i></span>proposal</span>'
    '<span><span class="wb-track"><i class="wb-span" style="left:0;right:0"></i></span>no worse, within one standard error</span></div>'
)


def _axis_row(axis: Axis, name: str, was: Any, now: Any, region: Region | None) -> str:
    same = was == now
    value = escape(shown(now)) if same else f"<b>{escape(shown(now))}</b>"
    return (
        f"<div{' class=wb-tune-same' if same else ''}><span>{escape(name)}<small>{escape(axis.path)}</small></span>"
        f'<span class="wb-n">{escape(shown(was))}</span><span class="wb-n">{value}</span>'
        f"{_place(axis, was, now, region)}<span>{escape(stable_words(region))}</span></div>"
    )


def _place(axis: Axis, was: Any, now: Any, region: Region | None) -> str:
    if axis.choices:
        return f"<span><small>{escape(' · '.join(shown(choice) for choice in axis.choices))}</small></span>"

    def at(value: Any) -> float:
        share = (float(value) - axis.low) / ((axis.high - axis.low) or 1.0)
        return 100 * min(1.0, max(0.0, share))

    span = ""
    if region is not None and region.low is not None:
        left, right = at(region.low), at(region.high)
        span = f'<i class="wb-span" style="left:{left:.2f}%;width:{max(right - left, 0.8):.2f}%"></i>'
    marks = "".join(
        f'<i class="{kind}" style="left:{at(value):.2f}%"></i>'
        for kind, value in (("wb-was", was), ("wb-dot", now)) if value is not None
    )  # fmt: skip
    title = f"{axis.low:g} to {axis.high:g} in steps of {axis.step:g}"
    return f'<span class="wb-track" title="{title}"><i class="wb-rail"></i>{span}{marks}</span>'


def stable_words(region: Region | None) -> str:
    """The region in words: `0.4 to 1.2`; with ≤ or ≥ where it ends only because the range does."""
    if region is None:
        return "–"
    if region.kept:
        return ", ".join(shown(value) for value in region.kept)
    if region.low is None:
        return "–"
    if region.at_low_edge and region.at_high_edge:
        return "any value"
    if region.at_low_edge:
        return f"up to {shown(region.high)}"
    if region.at_high_edge:
        return f"from {shown(region.low)} on"
    return f"{shown(region.low)} to {shown(region.high)}"
