"""The HTML report: one file, its plots drawn here as SVG, nothing fetched from anywhere."""

from dragoman.loadtest.report.page import render_page

__all__ = ["render_page"]
