"""The configs of the history, to be chosen where configs are chosen."""

from __future__ import annotations

from cems_workbench.config import PipelineConfig, parse_config
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources


def kept_configs(resources: Resources) -> dict[str, PipelineConfig]:
    """The configs of the history that can be read, the latest first, by a name that tells them apart."""
    found = {}
    for one in resources.store.history.list():
        try:
            found[f"{one.name} (history {one.id})"] = parse_config(one.config_yaml, one.name)
        except WorkbenchError:
            continue  # the History of the Tune page says why
    return found
