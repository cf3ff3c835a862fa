"""What each part of a pipeline is worth: the documented tables, and each stage of a config switched off in turn.

`cems` are the phases of the CEMS retrieval improvements plan, each with all before it, in the values of the preset `cems`:

    phase 0  before the plan: vector search and expansions, unweighted, not clamped
    phase 1  + no expansion where a lexical probe finds a strong signal
    phase 2  + the lexical list, normalised
    phase 3  + weight 2 for the original query, and the top-rank bonus
    phase 4  + the reranker of the given config, or else the plan's
    phase 5  + scores clamped to 0..1
    phase 6  the given config: the plan's last phase is tuning

`ace` are rows A to D of ACE's A/B test, the shipped presets. The documents' figures cannot be reproduced: their data is not public.
Expansions and their probe are gathered: where the evidence was gathered otherwise, that is among what the evaluation lacks.

Source: CEMS plan, "Results Tracking"; ACE retrieval precision document, "A/B Test Results".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cems_workbench.config import PipelineConfig, nested, preset, with_values
from cems_workbench.config.fields import packaged
from cems_workbench.errors import InputError
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import RERANK, candidate_stages

ACE = ("ace_a", "ace_b", "ace_c", "ace_d")

CEMS: Mapping[str, Mapping[str, Any]] = packaged("evaluation/cems_phases.json")
"""What the plan's phases add, taken away (`before`), and of each phase the parameters that it sets to their value in the plan."""

NAMES = ("stages", "cems", "ace")


def ablations(name: str, config: PipelineConfig) -> list[PipelineConfig]:
    """The configs of an ablation table, each named after what it leaves out or adds. Raises InputError for another name."""
    if name == "stages":
        return [config, *without_each_stage(config)]
    if name == "cems":
        return cems_phases(config)
    if name == "ace":
        return [preset(row).config for row in ACE]
    raise InputError(f"--ablate {name}: expected one of {', '.join(NAMES)}")


def without_each_stage(config: PipelineConfig) -> list[PipelineConfig]:
    """The config without each of its parts that is on, one at a time; what would leave no list is not tried."""
    found = []
    for switch in (switch for stage in candidate_stages(config) for switch in stage.switches):
        if switch.is_off(config):
            continue
        without = with_values(config, {**switch.off, "name": f"{config.name} without {switch.name}"})
        if any(getattr(without.lists, source.name).enabled for source in LIST_SOURCES if source.finds):
            found.append(without)
    return found


def cems_phases(config: PipelineConfig) -> list[PipelineConfig]:
    """The phases of the CEMS plan, ending in `config`."""
    reranker = config if not RERANK.is_off(config) else preset("cems_qwen").config
    plan = with_values(preset("cems").config, {"rerank": nested(reranker)["rerank"]})
    present = dict(CEMS["before"])
    found = []
    for name, adds in CEMS["phases"].items():
        present.update({path: plan.get(path) for path in adds})
        found.append(with_values(plan, {**present, "name": name}))
    return [*found, with_values(config, {"name": f"phase 6 ({config.name})"})]
