"""Assertions as JUnit XML, which CI systems of any make show as tests.

Source: the schema that Jenkins' xUnit plugin and GitLab document; only `testsuite`, `testcase`, `failure` and
`skipped` of it are used: a verdict that cannot tell has neither passed nor failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as XML

from cems_workbench.evaluation.assertions import Outcome

SUITE = "cems-workbench"


def junit_xml(outcomes: Sequence[Outcome], of: str) -> str:
    """A test a line of what was asserted; `of` is what it was measured on, such as the name of the evidence file."""
    failed, undecided = sum(outcome.failed for outcome in outcomes), sum(outcome.undecided for outcome in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": str(undecided)}
    suite = XML.Element("testsuite", {"name": SUITE} | counts)
    for outcome in outcomes:
        line = _writable(outcome.line)
        case = XML.SubElement(suite, "testcase", classname=_writable(of), name=_writable(outcome.name or outcome.line))
        if outcome.holds:
            XML.SubElement(case, "system-out").text = line
        elif outcome.undecided:
            XML.SubElement(case, "skipped", message=line)
        else:
            XML.SubElement(case, "failure", message=line).text = line
    XML.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + XML.tostring(suite, encoding="unicode") + "\n"


def _writable(text: str) -> str:
    """Without the characters that XML 1.0 has no way to write."""
    return "".join(character if character.isprintable() else " " for character in text)
