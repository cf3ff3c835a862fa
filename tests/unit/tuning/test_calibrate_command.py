"""What a calibration says of a signal with a threshold and one without."""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.tuning.calibration import calibrate, calibration_table
from tests.unit.tuning.test_calibration import GROUPS, table


def test_a_threshold_is_an_assignment_and_its_absence_is_said() -> None:
    found = calibrate(table(), GROUPS, "vector")
    assert found.setting == f"abstain.vector={found.threshold:.6g}"
    assert replace(found, threshold=None).without.startswith("no threshold: no score reaches a probability of 0.5")
    assert [row[0] for row in calibration_table([found], "session").rows] == ["vector"]
