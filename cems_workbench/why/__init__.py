"""Why is it missing? The path of one memory, the stage that lost it, and the smallest changes that bring it back."""

from cems_workbench.why.labelled import LabelledSet
from cems_workbench.why.path import ListPlace, MemoryPath, Step, memory_path
from cems_workbench.why.regather import gathered
from cems_workbench.why.report import Why, explain, require_known
from cems_workbench.why.rescue import Change, Rescue
from cems_workbench.why.sentence import cause
from cems_workbench.why.single import Breakpoint

__all__ = [
    "Breakpoint",
    "Change",
    "LabelledSet",
    "ListPlace",
    "MemoryPath",
    "Rescue",
    "Step",
    "Why",
    "cause",
    "explain",
    "gathered",
    "memory_path",
    "require_known",
]
