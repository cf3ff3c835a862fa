"""What is there and what will be used: the account that `doctor` gives."""

from cems_workbench.diagnosis.check import Check
from cems_workbench.diagnosis.checks import diagnose

__all__ = ["Check", "diagnose"]
