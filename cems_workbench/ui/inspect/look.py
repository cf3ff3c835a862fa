"""What a view or tool of the Inspect page is given to draw from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.inspect import gathering


@dataclass(frozen=True)
class Look:
    """The present trace, what was asked, the open store with its models, and the memory that is followed (None: none)."""

    trace: Trace
    request: Request
    resources: Resources
    followed: str | None

    @cached_property
    def grades(self) -> dict[str, int]:
        """Human grades by memory id of the present query; empty when it is not a judged one."""
        return gathering.grades(self.request, self.resources)
