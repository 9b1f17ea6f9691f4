"""A manifest as tables for a terminal: used after an export and by `dragoman inspect`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from dragoman.bundle.languages import language_resolver
from dragoman.bundle.manifest import Manifest, Verification

__all__ = ["engines_table", "human_bytes", "manifest_tables", "verification_table"]


def manifest_tables(manifest: Manifest) -> Iterator[Table]:
    """The model, its files and its verification, a table each."""
    yield _model_table(manifest)
    yield _files_table(manifest)
    if manifest.engines:
        yield engines_table(manifest)
    if manifest.verification is not None:
        yield verification_table(manifest.verification)


def human_bytes(count: float) -> str:
    """1234567 -> '1.2 MB'."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _model_table(manifest: Manifest) -> Table:
    model, sizes, generation = manifest.model, manifest.dimensions, manifest.generation
    table = Table(title=model.name, show_header=False, title_justify="left", title_style="bold")
    languages = language_resolver(manifest)
    rows = {
        "architecture": f"{model.architecture}, {model.parameters / 1e6:.1f} M parameters",
        "languages": _pairs(languages.source.codes, languages.target.codes),
        "shape": f"d {sizes.d_model}, {sizes.heads} heads, {sizes.encoder_layers}+{sizes.decoder_layers} layers, "
        f"vocabulary {sizes.target_vocabulary:,}",
        "limits": f"{sizes.max_source_tokens} source tokens, {sizes.max_target_tokens} target tokens",
        "search": f"beam {generation.beam_size}, length penalty {generation.length_penalty:g}, "
        f"at most {generation.max_length} tokens",
        "precision": manifest.precision,
        "targets": ", ".join(manifest.targets),
        "made by": f"dragoman {manifest.dragoman_version}, schema {manifest.schema_version}",
    }
    if manifest.tasks.default_prefix:
        rows["task prefix"] = repr(manifest.tasks.default_prefix)
    if manifest.tasks.named:
        rows["tasks"] = ", ".join(sorted(manifest.tasks.named))
    if sizes.shortlist is not None:
        rows["shortlist"] = f"{sizes.shortlist:,} tokens can be generated"
    if manifest.shortlists:
        listed = ", ".join(f"{code} {count:,}" for code, count in manifest.shortlists.items())
        rows["shortlists"] = f"{listed} tokens; all {sizes.target_vocabulary:,} into other languages"
    if (alignment := manifest.alignment) is not None:
        found = "" if alignment.agreement is None else f", {alignment.agreement:.0%} of {alignment.links} links found"
        rows["alignment"] = f"{len(alignment.heads)} heads{found}"
    if manifest.kept_in_fp32:
        rows["kept in fp32"] = ", ".join(manifest.kept_in_fp32)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _pairs(sources: tuple[str, ...], targets: tuple[str, ...]) -> str:
    if sources == targets and len(sources) > 1:
        return f"{len(sources)}, each into each: {_named(sources)}"
    return f"{_named(sources)} → {_named(targets)}"


def _named(languages: tuple[str, ...]) -> str:
    return ", ".join(languages) or "not named"


def _files_table(manifest: Manifest) -> Table:
    table = Table("file", "size", "sha256", title="Files", title_justify="left")
    for name, record in sorted(manifest.files.items()):
        table.add_row(name, human_bytes(record.bytes), record.sha256[:16] + "…")
    total = sum(record.bytes for record in manifest.files.values())
    table.add_row("total", human_bytes(total), "", style="bold")
    return table


def engines_table(manifest: Manifest) -> Table:
    """The TensorRT engines and what they were built for."""
    table = Table("engine", "built by", "precision", "GPUs", "profiles", "build", title="TensorRT", title_justify="left")
    for engine in manifest.engines:
        table.add_row(
            engine.file,
            f"{engine.flavour} {engine.version}",
            engine.precision,
            "SM " + ", ".join(engine.compute_capabilities),
            ", ".join(profile.name for profile in engine.profiles),
            f"{engine.build_seconds:.1f} s",
        )
    return table


def verification_table(verification: Verification) -> Table:
    """What was compared with the original, and the result."""
    table = Table(title=f"Verified against {verification.reference}", title_justify="left")
    for name in ("graphs", "case", "same", "tokens", "Δ log p", "BLEU", "chrF"):
        table.add_column(name, no_wrap=True)
    for case in verification.cases:
        table.add_row(
            case.lowering,
            case.name,
            f"{case.identical}/{case.sentences}" + (f" +{case.ties} tied" if case.ties else ""),
            str(case.tokens),
            f"{case.worst_log_prob_difference:.1e}",
            "" if case.bleu is None else f"{case.bleu:.1f}",
            "" if case.chrf is None else f"{case.chrf:.1f}",
        )
    table.caption = (
        f"BLEU and chrF against the {verification.scored_against}; "
        f"loss {verification.quality_loss:.2f}, allowed {verification.max_quality_loss:g}"
    )
    return table
