"""Methods from recent papers, each as a library, a command and a study.

Importing this package imports no method: ``from assay.mst import MetricMST`` loads that method and nothing else.
"""

__version__ = "0.1.0"
