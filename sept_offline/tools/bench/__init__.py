"""The paper's evaluation in one call: plan the cells, run the missing ones, write tables."""

from sept_offline.tools.bench.plan import Cell, Plan, Variant, make_plan
from sept_offline.tools.bench.run import Failure, Report, gather_finished, run_bench, write_tables

__all__ = [
    "Cell",
    "Failure",
    "Plan",
    "Report",
    "Variant",
    "gather_finished",
    "make_plan",
    "run_bench",
    "write_tables",
]
