"""Why a memory is missing: its path, the stage that lost it, and the smallest changes that bring it back."""

from typing import TYPE_CHECKING

from cems_workbench.platform.start_up import lazy_names

if TYPE_CHECKING:
    from cems_workbench.analysis.why.counterfactual import Breakpoint, Change, Counterfactual
    from cems_workbench.analysis.why.first_fix import FirstFix
    from cems_workbench.analysis.why.path import (
        ListEntry,
        MemoryPath,
        Step,
        cause,
        known_memory,
        memory_path,
        require_known,
        require_stored,
        stored_memory,
        taken,
    )
    from cems_workbench.analysis.why.regather import gathered
    from cems_workbench.analysis.why.report import Why, explain
    from cems_workbench.analysis.why.trial import LabelledSet
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "counterfactual": "Breakpoint Change Counterfactual",
            "first_fix": "FirstFix",
            "path": "ListEntry MemoryPath Step cause known_memory memory_path require_known require_stored stored_memory taken",
            "regather": "gathered",
            "report": "Why explain",
            "trial": "LabelledSet",
        },
    )
