"""The figures of the sample set that come with the project, which Evaluate and Tune show before anything was measured.

    python -m benchmarks.sample_figures [--work .workbench/figures]

Imports the sample set into a store in the work folder and gathers the evidence of three presets that need no model server. Compares
them as the Evaluate page does, searches for better weights from `cems` as the Tune page does with nothing changed, and replaces
`cems_workbench/jobs/sample_figures.json`. The sealed queries stay sealed: who searches on the sample set can still look at them once.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import SAMPLE
from cems_workbench import __version__, formats
from cems_workbench.config import EvidenceCard, PipelineConfig, dump_config, preset
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.evaluation.report import experiment_card
from cems_workbench.jobs.catalogue import FILE, Measured, SampleFigures, corpus_digest, write_figures
from cems_workbench.jobs.evaluation import agreed, evaluate_configs, labelled_selection
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, judged_selection
from cems_workbench.jobs.tuning import card_of, planned_search, run_search, tuning_data
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform import start_up
from cems_workbench.settings import Settings
from cems_workbench.store import ConfigRecord, ImportOptions
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.scorer import config_digest
from cems_workbench.ui.evaluate.setup import DEFAULT_MEASURES

COMPARED = ("workbench", "cems", "recollection")
"""The preset that the app opens with, and others that need no model server either."""
TUNED = "cems"
QUERY_SET = "sample_data"


def measured_figures(resources: Resources) -> SampleFigures:
    """Everything measured on the open store, which holds the sample set."""
    store, now = resources.store, datetime.now(UTC)
    judgments = store.judgments.read()
    selection = judged_selection(QUERY_SET, resources, judgments)
    configs = [(name, preset(name).config) for name in COMPARED]
    for name, config in configs:
        print(f"{name}: {len(ensure_evidence(config, selection, judgments, resources).evidences)} queries", flush=True)
    grades = agreed(judgments, None)
    query_set = store.query_sets.get(QUERY_SET)
    evaluated, _ = evaluate_configs(
        configs,
        lambda config: labelled_selection(config, selection, grades, resources),
        parse_measures(" ".join(DEFAULT_MEASURES), query_set.scale.relevant_from),
    )
    card = experiment_card(compare([row.evaluation for row in evaluated]), QUERY_SET, evaluated[-1].content_hash)
    experiment = ConfigRecord(
        1, " and ".join((", ".join(COMPARED[:-1]), COMPARED[-1])), dump_config(configs[-1][1]), None, "", now, "", card
    )
    tuned, found = _tuned(resources, selection)
    print(found.text)
    measured = Measured(
        store.memories.count(),
        corpus_digest(store),
        query_set.digest,
        resources.embedder.model_id,
        {name: config_digest(config) for name, config in configs},
        {row.name: row.content_hash for row in evaluated},
    )
    kept = ConfigRecord(1, tuned.name, dump_config(tuned), TUNED, "", now, "", found.model_dump(mode="json"))
    return SampleFigures(__version__, now.date(), measured, experiment, kept)


def _tuned(resources: Resources, selection: QuerySelection) -> tuple[PipelineConfig, EvidenceCard]:
    """What a search with the usual space, goal and folds proposes, and the evidence for it."""
    grades = agreed(resources.store.judgments.read(), None)
    data = tuning_data(preset(TUNED).config, selection, grades, resources)
    assert data is not None, "its evidence was gathered above"
    goal = parse_goal(["nDCG@10"], (), data.relevant_from)
    start_up.freeze()
    result = run_search(planned_search(data, goal))
    return result.tuned.config, card_of(result, datetime.now(UTC).date().isoformat())


def main() -> None:
    """Import where nothing was imported, measure, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(".workbench/figures"))
    resources = open_resources(Settings(store=parser.parse_args().work / "store"))
    try:
        if not resources.store.memories.count():
            when = datetime.now(UTC)
            for parsed in formats.read_path(SAMPLE):
                resources.store.add(parsed, options=ImportOptions(when=when))
        resources.refresh()
        write_figures(measured_figures(resources))
    finally:
        resources.close()
    print(f"{FILE.name}: {FILE.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
