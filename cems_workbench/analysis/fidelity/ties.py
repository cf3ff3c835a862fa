"""Order up to ties: a recorded order, where results with equal recorded scores may come in any order.

    groups     neighbours of the recorded order with equal recorded scores; a result without a score is a group alone
    at the cut a result of ours that the recording lacks counts as one that it has, if the two have equal scores before the last cut:
               which of them got in was chance; their places among results of other scores do not count

Engines leave equal scores in the order of a heap, a hash map or a hash seed, which may differ from call to call. The scores before the
last cut are those of the recording, where it has them for both, else ours for both: a score of ours that equals a recorded one is no
tie, since every list gives its tenth the same share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence


def equal(one: float, other: float, tolerance: float) -> bool:
    """Do two scores differ by no more than the tolerance?"""
    return abs(one - other) <= tolerance


def tied_groups(order: Sequence[str], scores: Mapping[str, float], tolerance: float = 0.0) -> Iterator[list[str]]:
    """The order as runs of neighbours whose scores are equal to within the tolerance."""
    group: list[str] = []
    for key in order:
        if group and key in scores and group[0] in scores and equal(scores[key], scores[group[0]], tolerance):
            group.append(key)
            continue
        if group:
            yield group
        group = [key]
    if group:
        yield group


def tied_pairs(order: Sequence[str], scores: Mapping[str, float], tolerance: float = 0.0) -> int:
    """How many neighbours of the order have equal scores."""
    return sum(len(group) - 1 for group in tied_groups(order, scores, tolerance))


def same_up_to_ties(
    recorded: Sequence[str],
    ours: Sequence[str],
    scores: Mapping[str, float],
    before_cut: Mapping[str, float],
    our_scores: Mapping[str, float],
    tolerance: float,
) -> bool:
    """Is ours the recorded order, if results with equal scores may be exchanged?

    `scores` are those of the recorded results, `before_cut` and `our_scores` those of memories before the last cut, recorded and ours.
    """
    missing = [key for key in recorded if key not in set(ours)]
    extra = [key for key in ours if key not in set(recorded)]
    known = dict(scores) | dict(before_cut)
    if not all(key in known for key in extra):
        known = dict(our_scores)
    lost, gained = ([known.get(key, math.nan) for key in keys] for keys in (missing, extra))
    pairs = zip(sorted(lost), sorted(gained), strict=False)
    if len(lost) != len(gained) or not all(equal(one, other, tolerance) for one, other in pairs):
        return False
    kept = [key for key in recorded if key not in set(missing)]
    own = iter(key for key in ours if key not in set(extra))
    groups = tied_groups(kept, scores, tolerance)
    return all(Counter(group) == Counter(next(own, None) for _ in group) for group in groups)
