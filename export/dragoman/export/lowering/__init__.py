"""Lowerings: ways of writing the Transformer as ONNX graphs, one package each."""

from collections.abc import Iterable

from dragoman import native as operators
from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Target
from dragoman.errors import UsageError
from dragoman.export.lowering.native import NativeLowering
from dragoman.export.lowering.portable import MAX_CANDIDATES, PortableLowering
from dragoman.export.lowering.protocol import Calibration, Lowering
from dragoman.export.lowering.tracing import trace

__all__ = ["Calibration", "Lowering", "NativeLowering", "PortableLowering", "lowering_named", "lowerings_for", "trace"]


def lowering_named(name: LoweringName, choices: int) -> Lowering:
    """The lowering that the manifest calls `name`, for a model that chooses among `choices` tokens."""
    return NativeLowering() if name == "native" else PortableLowering(min(MAX_CANDIDATES, choices))


def lowerings_for(targets: Iterable[Target], cpu: LoweringName | None = None) -> tuple[LoweringName, ...]:
    """Those that the targets need, each once. The CPU runs `cpu`: native by default, where the operators are built."""
    is_built = operators.ops_library() is not None
    if cpu == "native" and not is_built:
        raise UsageError("--lowering native needs the custom operators, which are not built here (`make native`)")
    chosen: LoweringName = cpu or ("native" if is_built else "portable")
    return tuple(dict.fromkeys(chosen if target == "cpu" else "portable" for target in targets))
