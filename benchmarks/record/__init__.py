"""Recorders: what a memory system answers to the queries of a folder, written in the form that `fidelity` reads (docs/use/recording.md).

Each runs as a module from the root of the checkout (`python -m benchmarks.record.mem0 --help`), with a Python that has the system
installed: these modules need nothing but the standard library. A system is run unchanged; what it returns is written down, and where its
searches can be watched from outside, their lists too.
"""
