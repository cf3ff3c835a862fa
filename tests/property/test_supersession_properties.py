"""What each mode of supersession holds to, for every evidence under every config."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.stages import ASSEMBLY, SUPERSESSION

MODES = st.sampled_from(["demote", "drop", "follow"])


def under(config: PipelineConfig, mode: str, expired: str = "keep") -> PipelineConfig:
    return with_values(config, {"supersession.mode": mode, "supersession.expired": expired})


def order(evidence: Evidence, config: PipelineConfig) -> list[str]:
    return [row.memory_id for row in replay(evidence, config).stage(SUPERSESSION).rows if row.kept]


@given(evidences(), configs(), MODES)
def test_superseded_is_below_a_successor_if_one_is_there(evidence: Evidence, config: PipelineConfig, mode: str) -> None:
    kept = order(evidence, under(config, mode))
    for older, successors in evidence.superseded.items():
        there = [kept.index(one.memory_id) for one in successors if one.memory_id in kept]
        if older in kept and there:
            assert mode == "demote" or (mode == "follow" and all_expired(evidence, older))
            assert mode != "demote" or kept.index(older) > min(there)


@given(
    evidences(), configs(), st.sampled_from(["greedy", "mmr"]), st.sampled_from(["guide", "cems", "plain", "one_pass"])
)
def test_assembly_keeps_the_demoted_below_or_warns_of_it(evidence, config, strategy, procedure):
    chosen = {"assembly.strategy": strategy, "assembly.mmr_procedure": procedure, "supersession.mode": "demote"}
    trace = replay(evidence, with_values(config, chosen))
    before = [row.memory_id for row in trace.stage(ASSEMBLY).rows if row.rank_in is not None]
    before.sort(key=lambda key: trace.stage(ASSEMBLY).by_id[key].rank_in or 0)
    results = [row.memory_id for row in trace.results]
    without = trace.stage(ASSEMBLY).warnings
    for older, successors in evidence.superseded.items():
        newer = [one.memory_id for one in successors]
        there = [results.index(key) for key in newer if key in results]
        if older in results:
            assert not there or results.index(older) > min(there)
            ahead = any(before.index(key) < before.index(older) for key in newer if key in before)
            assert (ahead and not there) == any(line.startswith(f"{older} is chosen without ") for line in without)


def all_expired(evidence: Evidence, older: str) -> bool:
    moment = evidence.as_of
    return moment is not None and all(
        evidence.memories[one.memory_id].expired(moment) for one in evidence.superseded[older]
    )


@given(evidences(), configs(), MODES)
def test_others_keep_their_order_and_off_keeps_everything(evidence, config, mode):
    off = order(evidence, under(config, "off"))
    assert off == order(replace(evidence, notes={}), under(config, "off"))
    touched = {*evidence.superseded, *(one.memory_id for own in evidence.superseded.values() for one in own)}
    found = order(evidence, under(config, mode))
    assert [key for key in found if key not in touched] == [key for key in off if key not in touched]
    if mode == "demote":
        assert sorted(found) == sorted(off)
    elif mode == "drop":
        assert found == [key for key in off if key in found]
        assert {key for key in off if key not in evidence.superseded} <= set(found)
    else:
        assert len(found) <= len(off)
        assert {*found} - {*off} <= touched


@given(evidences(), configs(), st.sampled_from(["off", "demote", "drop", "follow"]))
def test_nothing_expired_is_ranked_if_it_is_to_be_dropped(evidence, config, mode):
    kept = order(evidence, under(config, mode, "drop"))
    if evidence.as_of is not None:
        assert not [key for key in kept if evidence.memories[key].expired(evidence.as_of)]
