"""The workbook's figures. Each takes plain rows and returns a closed Figure, ready to show or to save.

Colours differ in greyscale too (Okabe & Ito, 2008, ordered by lightness), and never carry a meaning alone:
a marker, a hatch or a label says the same.
"""

from edgekit.report.plots.by_class import confusion, lost
from edgekit.report.plots.candidates import candidates
from edgekit.report.plots.compression import learning_curves, pruning, sensitivity
from edgekit.report.plots.costs import break_even
from edgekit.report.plots.delivery import boundaries, bundle_members
from edgekit.report.plots.diagnosis import latency_parts, operators, predicted, roofline, ways
from edgekit.report.plots.distribution import ecdf
from edgekit.report.plots.examples import examples
from edgekit.report.plots.field import field_drift, field_history, field_latency
from edgekit.report.plots.loads import loads
from edgekit.report.plots.pipeline import pipeline
from edgekit.report.plots.pruned import accuracy_by_cost, predicted_and_measured, zero_patterns
from edgekit.report.plots.quantization import calibration, histograms
from edgekit.report.plots.samples import samples
from edgekit.report.plots.search_front import search_front
from edgekit.report.plots.search_growth import search_cost, search_growth
from edgekit.report.plots.search_options import search_importances, search_parallel
from edgekit.report.plots.verdict import pareto, waterfall

__all__ = [
    "accuracy_by_cost",
    "boundaries",
    "break_even",
    "bundle_members",
    "calibration",
    "candidates",
    "confusion",
    "ecdf",
    "examples",
    "field_drift",
    "field_history",
    "field_latency",
    "histograms",
    "latency_parts",
    "learning_curves",
    "loads",
    "lost",
    "operators",
    "pareto",
    "pipeline",
    "predicted",
    "predicted_and_measured",
    "pruning",
    "roofline",
    "samples",
    "search_cost",
    "search_front",
    "search_growth",
    "search_importances",
    "search_parallel",
    "sensitivity",
    "waterfall",
    "ways",
    "zero_patterns",
]
