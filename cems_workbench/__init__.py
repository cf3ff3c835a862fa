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
    "analysis.vector_change": "VectorChange",
    "api.single_query": "Answer Explanation replay search why",
    "api.explained": "explanations",
    "api.evidence": "LoadedEvidence SearchTransformer as_transformer drift gather load_evidence",
    "api.measures": "ComparisonReport check compare compare_stores evaluate",
    "api.memories": "BlameReport WhatIfReport blame memory_use what_if what_if_vectors",
    "api.open_store": "OpenStore WorkbenchWarning load_config open_store presets save_config",
    "api.tuning": "TuningReport tune",
    "config": "PipelineConfig",
    "errors": "EmbedderMismatchError InputError ModelError StoreError StoreLockedError WorkbenchError",
    "jobs.compare_stores": "StoresCompared",
    "jobs.evaluation": "EvaluationReport",
    "jobs.memory_use": "MemoryReport",
    "progress": "Cancelled",
    "results": "Result Table",
    "workbench_audit.audit": "Audit audit",
    "workbench_audit.forgotten": "Receipt forgotten",
    "workbench_audit.leaks": "Leaks leak",
    "workbench_supersession.proposals": "SupersessionReport supersessions",
    "workbench_transcripts.whole": "TranscriptCoverage coverage",
}
"""Where each exported name is defined: in a module of this package, or of one of `plugins/`."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if TYPE_CHECKING:
    import cems_trace
    from cems_workbench.analysis.drift import DriftReport as DriftReport
    from cems_workbench.analysis.losses_of_set import Losses as Losses
    from cems_workbench.analysis.vector_change import VectorChange as VectorChange
    from cems_workbench.api.evidence import LoadedEvidence as LoadedEvidence
    from cems_workbench.api.evidence import SearchTransformer as SearchTransformer
    from cems_workbench.api.evidence import as_transformer as as_transformer
    from cems_workbench.api.evidence import drift as drift
    from cems_workbench.api.evidence import gather as gather
    from cems_workbench.api.evidence import load_evidence as load_evidence
    from cems_workbench.api.explained import explanations as explanations
    from cems_workbench.api.measures import ComparisonReport as ComparisonReport
    from cems_workbench.api.measures import check as check
    from cems_workbench.api.measures import compare as compare
    from cems_workbench.api.measures import compare_stores as compare_stores
    from cems_workbench.api.measures import evaluate as evaluate
    from cems_workbench.api.memories import BlameReport as BlameReport
    from cems_workbench.api.memories import WhatIfReport as WhatIfReport
    from cems_workbench.api.memories import blame as blame
    from cems_workbench.api.memories import memory_use as memory_use
    from cems_workbench.api.memories import what_if as what_if
    from cems_workbench.api.memories import what_if_vectors as what_if_vectors
    from cems_workbench.api.open_store import OpenStore as OpenStore
    from cems_workbench.api.open_store import WorkbenchWarning as WorkbenchWarning
    from cems_workbench.api.open_store import load_config as load_config
    from cems_workbench.api.open_store import open_store as open_store
    from cems_workbench.api.open_store import presets as presets
    from cems_workbench.api.open_store import save_config as save_config
    from cems_workbench.api.single_query import Answer as Answer
    from cems_workbench.api.single_query import Explanation as Explanation
    from cems_workbench.api.single_query import replay as replay
    from cems_workbench.api.single_query import search as search
    from cems_workbench.api.single_query import why as why
    from cems_workbench.api.tuning import TuningReport as TuningReport
    from cems_workbench.api.tuning import tune as tune
    from cems_workbench.config import PipelineConfig as PipelineConfig
    from cems_workbench.errors import EmbedderMismatchError as EmbedderMismatchError
    from cems_workbench.errors import InputError as InputError
    from cems_workbench.errors import ModelError as ModelError
    from cems_workbench.errors import StoreError as StoreError
    from cems_workbench.errors import StoreLockedError as StoreLockedError
    from cems_workbench.errors import WorkbenchError as WorkbenchError
    from cems_workbench.jobs.compare_stores import StoresCompared as StoresCompared
    from cems_workbench.jobs.evaluation import EvaluationReport as EvaluationReport
    from cems_workbench.jobs.memory_use import MemoryReport as MemoryReport
    from cems_workbench.progress import Cancelled as Cancelled
    from cems_workbench.results import Result as Result
    from cems_workbench.results import Table as Table
    from workbench_audit.audit import Audit as Audit
    from workbench_audit.audit import audit as audit
    from workbench_audit.forgotten import Receipt as Receipt
    from workbench_audit.forgotten import forgotten as forgotten
    from workbench_audit.leaks import Leaks as Leaks
    from workbench_audit.leaks import leak as leak
    from workbench_supersession.proposals import SupersessionReport as SupersessionReport
    from workbench_supersession.proposals import supersessions as supersessions
    from workbench_transcripts.whole import TranscriptCoverage as TranscriptCoverage
    from workbench_transcripts.whole import coverage as coverage

    trace = cems_trace


def __getattr__(name: str) -> Any:
    """An exported name, imported now (PEP 562)."""
    if name == "__all__":
        return sorted(["trace", *_HOME])
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
    return sorted({*globals(), "trace", *_HOME})
