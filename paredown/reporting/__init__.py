"""One HTML file about a bundle: what it scores and costs under every exit rule, to look at and to move a slider in."""

from paredown.reporting.report import HtmlReport, report

__all__ = ["HtmlReport", "report"]
