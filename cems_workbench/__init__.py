"""CEMS Workbench: inspect and tune memory retrieval, stage by stage.

What this package exports is its Python API (docs/start/python.md). A name is imported when it is first asked for, so that
`import cems_workbench` loads nothing but this file.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

PLUGINS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugins")
"""The folder of our plugins in a checkout; empty in an installation, where they are beside this package."""
if not os.path.isfile(os.path.join(PLUGINS, "cems_trace", "__init__.py")):
    PLUGINS = ""
elif PLUGINS not in sys.path:
    sys.path.insert(0, PLUGINS)

for _switch in ("HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"):  # read once, when the library of each is loaded
    os.environ.setdefault(_switch, "1")

_HOMES = {
    "analysis.drift": "DriftReport",
    "analysis.losses_of_set": "Losses",
    "api.single_query": "Answer Explanation replay search why",
    "api.evidence": "LoadedEvidence SearchTransformer as_transformer drift gather load_evidence",
    "api.measures": "ComparisonReport EvaluationReport check compare evaluate",
    "api.memories": "BlameReport MemoryReport WhatIfReport blame memory_use what_if",
    "api.open_store": "OpenStore WorkbenchWarning load_config open_store presets save_config",
    "api.tuning": "TuningReport tune",
    "config": "PipelineConfig",
    "errors": "EmbedderMismatchError InputError ModelError StoreError StoreLockedError WorkbenchError",
    "progress": "Cancelled",
    "results": "Result Table",
    "workbench_supersession.proposals": "SupersessionReport supersessions",
}
"""Where each exported name is defined: in a module of this package, or of one of `plugins/`."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if TYPE_CHECKING:
    import cems_trace as trace
    from cems_workbench.analysis.drift import DriftReport
    from cems_workbench.analysis.losses_of_set import Losses
    from cems_workbench.api.evidence import (
        LoadedEvidence,
        SearchTransformer,
        as_transformer,
        drift,
        gather,
        load_evidence,
    )
    from cems_workbench.api.measures import ComparisonReport, EvaluationReport, check, compare, evaluate
    from cems_workbench.api.memories import (
        BlameReport,
        MemoryReport,
        WhatIfReport,
        blame,
        memory_use,
        what_if,
    )
    from cems_workbench.api.open_store import (
        OpenStore,
        WorkbenchWarning,
        load_config,
        open_store,
        presets,
        save_config,
    )
    from cems_workbench.api.single_query import Answer, Explanation, replay, search, why
    from cems_workbench.api.tuning import TuningReport, tune
    from cems_workbench.config import PipelineConfig
    from cems_workbench.errors import (
        EmbedderMismatchError,
        InputError,
        ModelError,
        StoreError,
        StoreLockedError,
        WorkbenchError,
    )
    from cems_workbench.progress import Cancelled
    from cems_workbench.results import Result, Table
    from workbench_supersession.proposals import SupersessionReport, supersessions

__all__ = [
    "Answer",
    "BlameReport",
    "Cancelled",
    "ComparisonReport",
    "DriftReport",
    "EmbedderMismatchError",
    "EvaluationReport",
    "Explanation",
    "InputError",
    "LoadedEvidence",
    "Losses",
    "MemoryReport",
    "ModelError",
    "OpenStore",
    "PipelineConfig",
    "Result",
    "SearchTransformer",
    "StoreError",
    "StoreLockedError",
    "SupersessionReport",
    "Table",
    "TuningReport",
    "WhatIfReport",
    "WorkbenchError",
    "WorkbenchWarning",
    "as_transformer",
    "blame",
    "check",
    "compare",
    "drift",
    "evaluate",
    "gather",
    "load_config",
    "load_evidence",
    "memory_use",
    "open_store",
    "presets",
    "replay",
    "save_config",
    "search",
    "supersessions",
    "trace",
    "tune",
    "what_if",
    "why",
]


def __getattr__(name: str) -> Any:
    """An exported name, imported now (PEP 562)."""
    if name == "trace":
        return import_module("cems_trace")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    value = getattr(import_module(home if home.startswith("workbench_") else f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is exported, beside what is loaded."""
    return sorted({*globals(), *__all__})
