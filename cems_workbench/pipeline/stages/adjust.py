"""adjust: factors from the memory's metadata, multiplied onto the score, then clamped to 0..1.

    priority    the memory's priority (1.0 to 2.0)
    time_decay  hyperbolic 1 / (1 + age / half_life);  exponential 0.5 ** (age / half_life);  linear max(0, 1 - age / (2 * half_life))
                decay = max(floor, that);  the factor is the decay, or with `alpha` 1 + alpha * (decay - 0.5), no date 1
                age in days from the query's `as_of` to the chosen clock, floored with `whole_days`; `tiers` give a
                half-life per category; a future date is age 0, or negative with `future: grows` (exponential); no date is factor 1; both
                warn. `accessed_or_created` takes the creation of what was never accessed
    pinned      `pinned_factor` for a pinned memory
    project     same | different | untagged; nothing when the query has no project; `prefix` is CEMS's mistake, `source_ref` the same on
                what CEMS compares, "project:" + project where a memory has no source reference
    feedback    base + span * relevant / (relevant + noise), from `min_signals` on
    count       1 + alpha * (signal - 0.5), signal = 0.5 + ln(max(count, 1)) / 10, of accesses or of relevant votes

With `metadata_of: version`, a candidate with its best score from relations is as old as its last update (its creation, if unknown)
and has no feedback, since CEMS then looks at another record of it.

Only factors that apply are recorded. Age is against the query, never against a clock.

Source: CEMS retrieval guide, scoring adjustments (retrieval.py:602-619); Hindsight 1.1.0 as read (linear, floor, alpha, count);
docs/internals/specification.md, "adjust".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Literal

import numpy as np

from cems_workbench.config.sections import AdjustConfig, CountFactor, Feedback, ProjectFactors, TimeDecay
from cems_workbench.pipeline.list_sources import DAY, MOST_DOUBLINGS, ordinal
from cems_workbench.pipeline.stages.fusion import by_relations
from cems_workbench.pipeline.stages.result import PartColumn, StageArrays, StageFields, StageRow, StageTrace, rows_of
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, Ranking, memoized, ranked
from cems_workbench.records import PROJECT_REFERENCE, source_reference

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FactorText:
    """A factor's name in a sentence, and its description."""

    words: str
    description: str


FACTORS: Mapping[str, FactorText] = {
    "priority": FactorText("priority", "The memory's own priority."),
    "time_decay": FactorText("time decay", "Below 1 the older the memory is."),
    "pinned": FactorText("the pin", "For pinned memories only."),
    "project": FactorText("the project factor", "Same, other or no project, against the project of the query."),
    "feedback": FactorText("feedback", "Share of relevant among the votes it was given, once there are enough."),
    "count": FactorText("the count", "Above 1 the more often it was used, or judged relevant."),
}
"""Every factor by name, in the order they apply."""


COUNTED: Mapping[str, str] = {"accesses": "accesses", "relevant": "relevant votes"}
"""What `adjust.count.of` counts, in words."""

AgeFrom = Literal["creation", "last access", "last update"]


@dataclass(frozen=True, slots=True)
class AdjustRow(StageRow):
    """The factors that apply, by name; the age in days (None when a date is unknown); the product before the clamp; what the age is
    counted from."""

    factors: Mapping[str, float]
    age_days: float | None
    unclamped: float
    age_from: AgeFrom


@dataclass(eq=False, kw_only=True, slots=True)
class AdjustArrays(StageArrays[AdjustRow, StageFields]):
    """The arrays of every stage, and (Q, C) scores before the clamp and the product of each candidate's factors."""

    unclamped: Floats
    product: Callable[[], Floats]


def apply_adjust(given: StageInput) -> AdjustArrays:
    """Multiply the factors onto the score and rank again."""
    table, before, config = given.table, given.ranking, given.config.adjust
    by_relation = None  # (Q, C) whether a candidate has its best score from relations; None if that has no effect
    if config.metadata_of == "version":
        by_relation = by_relations(table, given.lists, given.config.fusion.blend_with)
    factors = {name: memoized(table.memo, name, key, make) for name, (key, make) in _factors(table, config).items()}
    if by_relation is not None:
        factors = _of_versions(table, factors, config, by_relation)
    score = before.score
    for factor in factors.values():
        if factor.changes:
            score = score * factor.multiplier
    unclamped = score
    if config.clamp:
        score = np.clip(score, 0.0, 1.0)
    age = cache(lambda: _ages(table, config.time_decay, by_relation))  # only the trace reads it

    def applied(q: int) -> list[dict[str, float]]:
        columns = [(name, one.multiplier[q].tolist(), one.applies[q].tolist()) for name, one in factors.items()]
        return [{name: values[c] for name, values, applies in columns if applies[c]} for c in range(len(table.ids[q]))]

    def age_from(q: int) -> list[AgeFrom]:
        return [_age_from(table, config.time_decay, by_relation, q, c) for c in range(len(table.ids[q]))]

    def product() -> Floats:
        multiplied = np.ones(table.shape)
        for factor in factors.values():
            multiplied = multiplied * factor.multiplier
        return multiplied

    return AdjustArrays(
        entered=before.alive,
        before=before,
        after=ranked(score, before.alive, (lambda: before.key) if before.stable else None),
        row=lambda q: rows_of(AdjustRow, applied, age(), unclamped, age_from)(q),
        parts=lambda q: [
            PartColumn(name, None, np.where(factor.applies[q], factor.multiplier[q], np.nan))
            for name, factor in factors.items()
        ],
        warnings=partial(_warnings, table, before, age, unclamped, config),
        unclamped=unclamped,
        product=product,
    )


@dataclass(frozen=True, eq=False)
class _Factor:
    """One factor of every candidate (Q, C), 1 if it does not apply; `changes` is false if it is 1 for all."""

    multiplier: Floats
    applies: Bools
    changes: bool


def _factor(value: Floats | float, applies: Bools) -> _Factor:
    multiplier = np.where(applies, value, 1.0)
    return _Factor(multiplier, applies, bool((multiplier != 1.0).any()))


def _factors(table: CandidateTable, config: AdjustConfig) -> dict[str, tuple[Hashable, Callable[[], _Factor]]]:
    """The function of each factor that is on, in the order they apply, and the part of the config it depends on."""
    everyone = np.ones(table.shape, dtype=bool)
    decay, project, feedback, pinned = config.time_decay, config.project, config.feedback, config.pinned_factor
    made: dict[str, tuple[Hashable, Callable[[], _Factor]]] = {}
    if config.priority:
        made["priority"] = (True, lambda: _factor(table.priority, everyone))
    if decay.mode != "none":
        made["time_decay"] = (decay, lambda: _factor(_decay(table, _age_days(table, decay), decay), everyone))
    made["pinned"] = (pinned, lambda: _factor(pinned, table.pinned))
    if project.enabled:
        asked = np.array([bool(name) for name in table.projects], dtype=bool)[:, None]
        made["project"] = (project, lambda: _factor(_project(table, project), np.broadcast_to(asked, table.shape)))
    if feedback.enabled:
        made["feedback"] = (feedback, lambda: _feedback(table, feedback))
    if config.count.of != "none":
        made["count"] = (config.count, lambda: _factor(_count_factor(table, config.count), everyone))
    return made


def _of_versions(
    table: CandidateTable, factors: Mapping[str, _Factor], config: AdjustConfig, by_relation: Bools
) -> dict[str, _Factor]:
    """The factors, if candidates of the relation list are dated by their last update and have no feedback."""
    changed = dict(factors)
    if "time_decay" in factors:
        decay = config.time_decay
        updated = memoized(
            table.memo, "updated_decay", decay, lambda: _decay(table, _updated_days(table, decay), decay)
        )
        value = np.where(by_relation, updated, factors["time_decay"].multiplier)
        changed["time_decay"] = _factor(value, factors["time_decay"].applies)
    if "feedback" in factors:
        changed["feedback"] = _factor(factors["feedback"].multiplier, factors["feedback"].applies & ~by_relation)
    return changed


def _feedback(table: CandidateTable, config: Feedback) -> _Factor:
    signals = table.relevant + table.noise
    share = np.divide(table.relevant, signals, out=np.zeros_like(signals), where=signals > 0)
    return _factor(config.base + config.span * share, signals >= config.min_signals)


def _counts(table: CandidateTable, config: CountFactor) -> Floats:
    return table.relevant if config.of == "relevant" else table.of_memories("accesses", lambda one: one.access_count)


def _count_factor(table: CandidateTable, config: CountFactor) -> Floats:
    # The signal is 0.5 + ln(count) / 10; a memory without a count is one that was used once.
    factor: Floats = 1 + config.alpha * np.log(np.maximum(_counts(table, config), 1.0)) / 10
    return factor


def _ages(table: CandidateTable, decay: TimeDecay, by_relation: Bools | None) -> Floats:
    age = _age_days(table, decay)
    return age if by_relation is None else np.where(by_relation, _updated_days(table, decay), age)


def _age_from(table: CandidateTable, decay: TimeDecay, by_relation: Bools | None, q: int, c: int) -> AgeFrom:
    """Which date of a candidate its age is counted from."""
    if by_relation is not None and by_relation[q, c]:
        return "last update" if table.memories[q][c].updated_at is not None else "creation"
    created = decay.clock == "created_at" or (decay.clock == "accessed_or_created" and np.isnan(table.accessed[q, c]))
    return "creation" if created else "last access"


def _age_days(table: CandidateTable, decay: TimeDecay) -> Floats:
    """(Q, C) days from the clock to the query's as_of; negative for the future, NaN when either is unknown."""
    clock = table.created if decay.clock == "created_at" else table.accessed
    if decay.clock == "accessed_or_created":
        clock = np.where(np.isnan(table.accessed), table.created, table.accessed)
    return _days(table, clock, decay)


def _updated_days(table: CandidateTable, decay: TimeDecay) -> Floats:
    """(Q, C) the same from the last update, or the creation if that is unknown."""
    updated = table.of_memories(
        "updated", lambda memory: (memory.updated_at or memory.created_at or _NEVER).timestamp()
    )
    return _days(table, np.where(updated == _NEVER.timestamp(), np.nan, updated), decay)


def _days(table: CandidateTable, clock: Floats, decay: TimeDecay) -> Floats:
    age: Floats = (table.as_of[:, None] - clock) / DAY
    return np.floor(age) if decay.whole_days else age


def _decay(table: CandidateTable, age: Floats, decay: TimeDecay) -> Floats:
    tiers = dict(decay.tiers)
    by_category = np.array([tiers.get(name or "", decay.half_life_days) for name in table.categories] or [1.0])
    share = np.maximum(
        np.nan_to_num(age, nan=0.0) / by_category[table.category], -MOST_DOUBLINGS if _grows(decay) else 0.0
    )
    signal: Floats = _DECAYS[decay.mode](share)
    if decay.floor > 0:
        signal = np.maximum(decay.floor, signal)
    if decay.alpha is None:
        return signal
    return 1 + decay.alpha * (np.where(np.isnan(age), 0.5, signal) - 0.5)


def _grows(decay: TimeDecay) -> bool:
    return decay.future == "grows" and decay.mode == "exponential"


_DECAYS: Mapping[str, Callable[[Floats], Floats]] = {
    "hyperbolic": lambda share: 1 / (1 + share),
    "exponential": lambda share: 0.5**share,
    "linear": lambda share: np.maximum(0.0, 1 - share / 2),
}


def _project(table: CandidateTable, config: ProjectFactors) -> Floats:
    begins = config.different if config.match == "exact" else config.same
    by_kinship = np.array([config.untagged, config.different, begins, config.same], dtype=np.float64)
    return by_kinship[_by_reference(table) if config.match == "source_ref" else table.kinship]


def _by_reference(table: CandidateTable) -> Ints:
    """(Q, C) kinship by source reference: 0 of no project, 1 of another, 3 begins with the query's."""
    kin = np.zeros(table.shape, dtype=np.int64)
    for q, (project, row) in enumerate(zip(table.projects, table.memories, strict=True)):
        for c, memory in enumerate(row):
            reference = source_reference(memory)
            if reference and reference.startswith(PROJECT_REFERENCE):
                kin[q, c] = 3 if project and reference.startswith(PROJECT_REFERENCE + project) else 1
    return kin


def _warnings(
    table: CandidateTable, before: Ranking, age: Callable[[], Floats], unclamped: Floats, config: AdjustConfig, q: int
) -> list[str]:
    found = []
    alive = before.alive[q]
    if config.time_decay.mode != "none":
        undated = int((np.isnan(age()[q]) & alive).sum())
        future = int(((age()[q] < 0) & alive).sum())
        if undated and np.isnan(table.as_of[q]):
            found.append("the evidence has no as_of, so ages are unknown and time decay is 1")
        elif undated:
            found.append(f"no {config.time_decay.clock} date for {undated} of the candidates: time decay 1")
        if future:
            effect = "the score grows" if _grows(config.time_decay) else "age 0"
            found.append(f"a date after as_of for {future} of the candidates: {effect}")
    if config.feedback.enabled and alive.any():
        least = config.feedback.min_signals
        if (table.relevant + table.noise)[q, alive].max() < least:
            votes = f"{least} vote{'' if least == 1 else 's'}"
            found.append(f"no candidate has {votes}: the feedback factor does nothing")
    if config.project.enabled and table.projects[q] and alive.any():
        kin = _by_reference(table) if config.project.match == "source_ref" else table.kinship
        if not kin[q, alive].any():
            found.append(f"no candidate belongs to a project: every one has the factor {config.project.untagged:g}")
    if config.count.of != "none" and alive.any() and not _counts(table, config.count)[q, alive].any():
        found.append(f"no candidate has a count of {COUNTED[config.count.of]}: the count factor is 1 for all")
    clamped = int(((unclamped[q] > 1) & alive).sum())
    if config.clamp and clamped > 1:
        found.append(f"{clamped} candidates were clamped to 1.0 and are now tied, in the order of their ids")
    return found


def factor_words(row: AdjustRow) -> str:
    """ "× 0.36: time decay over 151 days 0.28, project 1.30": the factors that are not 1."""
    product = 1.0
    named = []
    for name, factor in row.factors.items():
        product *= factor
        if factor != 1:
            named.append(f"{FACTORS[name].words}{_over(name, row)} {factor:.2f}")
    return f"× {product:.2f}" + (f": {', '.join(named)}" if named else "")


def largest_cut(row: AdjustRow) -> str | None:
    """ "time decay over 151 days multiplied it by 0.28": the smallest factor below 1, None without one."""
    name = min(row.factors, key=lambda key: row.factors[key], default=None)
    if name is None or row.factors[name] >= 1:
        return None
    return f"{FACTORS[name].words}{_over(name, row)} multiplied it by {row.factors[name]:.2f}"


def _over(name: str, row: AdjustRow) -> str:
    if name != "time_decay" or row.age_days is None:
        return ""
    days = max(0, round(row.age_days))
    since = (
        "" if row.age_from == "creation" else f" since {row.age_from}"
    )  # a memory's age elsewhere is that since its creation
    return f" over {days} day{'' if days == 1 else 's'}{since}"


def _words(row: AdjustRow, stage: StageTrace[AdjustRow, StageFields]) -> str:
    return f"{factor_words(row)}, {ordinal(row.rank_out or 0)}"


ADJUST = Stage(
    name="adjust",
    title="Adjust",
    description="Factors for priority, age, pin, project, feedback and counts.",
    reads=("adjust", "fusion.blend_with"),
    apply=apply_adjust,
    row=AdjustRow,
    fields=StageFields,
    parts=(
        Switch("priority", {"adjust.priority": False}),
        Switch("time decay", {"adjust.time_decay.mode": "none"}),
        Switch("pinned", {"adjust.pinned_factor": 1.0}, title="pinned factor"),
        Switch("project", {"adjust.project.enabled": False}, title="project factors"),
        Switch("feedback", {"adjust.feedback.enabled": False}, title="feedback factor"),
        Switch("count", {"adjust.count.of": "none"}, title="count factor"),
        Switch("clamp", {"adjust.clamp": False}, title="clamp to 0–1"),
    ),
    words=_words,
    detail=lambda row, config: " × ".join(
        f"{name.replace('_', ' ')} {value:.3f}" for name, value in row.factors.items()
    ),
)
