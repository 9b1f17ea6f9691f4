"""What `make gpu-check` found, for people and for machines, and the verdict."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import machine_line

__all__ = ["Finding", "Report"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked for: `holds` is None where it could not be measured, and `measured` says why."""

    name: str
    goal: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found."""

    device: str
    machine: dict[str, Any]
    gpu: dict[str, str]
    remarks: tuple[str, ...]
    findings: tuple[Finding, ...]
    throughput: tuple[dict[str, float], ...] = field(default=())

    @property
    def accepted(self) -> bool:
        return bool(self.findings) and all(finding.holds is not False for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.device != "cpu" and not self.gpu:
            return "NO GPU: nvidia-smi does not answer on this machine, so nothing was run and nothing is known."
        if broken := [finding.name for finding in self.findings if finding.holds is False]:
            return f"NOT ACCEPTED: {len(broken)} of {len(self.findings)} do not hold: {'; '.join(broken)}."
        unknown = [finding.name for finding in self.findings if finding.holds is None]
        missing = f" Not measured: {'; '.join(unknown)}." if unknown else ""
        return f"ACCEPTED: everything that was measured holds ({len(self.findings) - len(unknown)}).{missing}"

    def to_markdown(self) -> str:
        gpu = ", ".join(f"{name} {value}" for name, value in self.gpu.items()) or "none"
        signs = {True: "yes", False: "**no**", None: "not measured"}
        lines = [
            f"# dragoman on {self.device}",
            "",
            f"**{self.verdict}**",
            "",
            machine_line(self.machine),
            "",
            f"GPU: {gpu}.",
        ]
        if self.findings:
            lines += ["", "| what | goal | found | holds |", "|---|---|---|---|"]
            lines += [f"| {one.name} | {one.goal} | {one.measured} | {signs[one.holds]} |" for one in self.findings]
        if self.throughput:
            names = {"ours": "tokens/s", "without_graphs": "without CUDA graphs", "ctranslate2": "CTranslate2"}
            names["hugging_face"] = "Hugging Face"
            lines += ["", f"| batch | beam | {' | '.join(names.values())} |", "|---|---|---|---|---|---|"]
            for one in self.throughput:
                figures = " | ".join(f"{one[name]:,.0f}" if name in one else "–" for name in names)
                lines.append(f"| {one['batch']:.0f} | {one['beam']:.0f} | {figures} |")
        return "\n".join([*lines, *(f"\n! {remark}" for remark in self.remarks), ""])

    def write(self, output: Path) -> None:
        """Both files, and the verdict as the last line."""
        page, figures = output.with_suffix(".md"), output.with_suffix(".json")
        figures.write_text(json.dumps({"verdict": self.verdict, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        page.write_text(self.to_markdown(), encoding="utf-8")
        print(self.to_markdown())
        print(f"written: {page}, {figures}", file=sys.stderr)
        print(f"verdict: {self.verdict}", flush=True)
