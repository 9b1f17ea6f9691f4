"""The report of an export."""

from __future__ import annotations

from rich.console import Console

from dragoman.bundle.summary import human_bytes, manifest_tables
from dragoman.export.pipeline import ExportReport

__all__ = ["print_report"]


def print_report(report: ExportReport, console: Console) -> None:
    """Files, sizes, verification, time and memory for people."""
    for table in manifest_tables(report.manifest):
        console.print(table)
    size = sum(record.bytes for record in report.manifest.files.values())
    console.print(
        f"[bold green]✓[/] {report.bundle}: {human_bytes(size)} in {sum(report.seconds.values()):.1f} s, "
        f"peak memory {human_bytes(report.peak_memory_bytes)}"
    )
    if report.manifest.engines and report.manifest.kept_in_fp32:
        console.print(
            "  layers that fp16 can't hold stay in fp32, and leave compute capability 7.5 out; --precision bf16 holds all"
        )
    device = " --device tensorrt" if report.manifest.engines else ""
    console.print(f"  serve it:  dragoman serve --bundle {report.bundle}{device}", highlight=False)
