"""Ways of writing one Transformer as ONNX graphs, each a package of its own."""

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.export.lowering.native import NativeLowering
from dragoman.export.lowering.portable import MAX_CANDIDATES, PortableLowering
from dragoman.export.lowering.protocol import Calibration, Lowering
from dragoman.export.lowering.tracing import trace

__all__ = ["Calibration", "Lowering", "NativeLowering", "PortableLowering", "lowering_named", "trace"]


def lowering_named(name: LoweringName, choices: int) -> Lowering:
    """The lowering that the manifest calls `name`, for a model that chooses among `choices` tokens."""
    return NativeLowering() if name == "native" else PortableLowering(min(MAX_CANDIDATES, choices))
