"""What a replay leaves behind: tables, plots and a page, as files."""

from __future__ import annotations

from stellwerk.simulation.report.files import write_comparison, write_report

__all__ = ["write_comparison", "write_report"]
