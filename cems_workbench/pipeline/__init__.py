"""The pipeline: gather evidence once, replay it under any config."""

from cems_workbench.pipeline.bundle import bundle_from, evidence_from, read_bundle, write_bundle
from cems_workbench.pipeline.evidence import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.replay import Result, Trace, replay
