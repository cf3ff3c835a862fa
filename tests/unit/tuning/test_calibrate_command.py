"""The words of `calibrate` for a signal with a threshold and one without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cems_workbench.cli.calibrate import print_calibrations
from cems_workbench.tuning.calibration import calibrate
from tests.unit.tuning.test_calibration import GROUPS, table


def test_a_threshold_is_printed_as_config_and_its_absence_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrate(table(), GROUPS, "vector")
    print_calibrations([found, replace(found, signal="margin", threshold=None)], "session")
    printed = capsys.readouterr().out
    assert f"--set abstain.vector={found.threshold:.6g}" in printed
    assert "abstain.margin: no threshold: no score reaches a probability of 0.5" in printed
