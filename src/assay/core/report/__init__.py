"""The report: static pages, charts and fragments of pages made from what was measured."""

from assay.core.report.charts import Point as Point
from assay.core.report.charts import Series as Series
from assay.core.report.charts import chart_css as chart_css
from assay.core.report.charts import curve_plot as curve_plot
from assay.core.report.charts import dot_plot as dot_plot
from assay.core.report.charts import growth_plot as growth_plot
from assay.core.report.charts import interval_plot as interval_plot
from assay.core.report.results import Results as Results
from assay.core.report.results import export_results as export_results
from assay.core.report.results import gather_results as gather_results
from assay.core.report.results import read_results as read_results
from assay.core.report.sections import MethodSections as MethodSections
from assay.core.report.sections import fragment_css as fragment_css
from assay.core.report.sections import method_sections as method_sections
from assay.core.report.site import write_report as write_report

__all__ = [
    "MethodSections",
    "Point",
    "Results",
    "Series",
    "chart_css",
    "curve_plot",
    "dot_plot",
    "export_results",
    "fragment_css",
    "gather_results",
    "growth_plot",
    "interval_plot",
    "method_sections",
    "read_results",
    "write_report",
]
