"""Which TensorRT is here, and for which GPUs can it build?"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.device import present_compute_capability
from dragoman.export.tensorrt.options import EngineOptions, Flavour

__all__ = ["FP32_PRODUCTS_NEED", "Toolchain", "choose_flavour", "chosen_capabilities", "find_toolchain", "import_flavour"]

FP32_PRODUCTS_NEED = "8.0"
"""Turing (7.5) multiplies matrices in fp16 and int8 only."""

_MODULES: dict[Flavour, str] = {"tensorrt": "tensorrt", "tensorrt_rtx": "tensorrt_rtx_bindings"}
_INSTALL: dict[Flavour, str] = {
    "tensorrt": "pip install 'dragoman[tensorrt-standard]'",
    "tensorrt_rtx": "pip install 'dragoman[tensorrt]'",
}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """An installed TensorRT and the compute capabilities it can build for here."""

    flavour: Flavour
    version: str
    supported: tuple[str, ...]


def find_toolchain(options: EngineOptions) -> Toolchain:
    """The TensorRT that `options` asks for; EngineBuildError when it is not here or can't build for the chosen GPUs.

    Cheap: an export asks it before the long work starts.
    """
    flavour = choose_flavour(options.flavour or "tensorrt_rtx", installed=_installed, gpu=present_compute_capability)
    module = import_flavour(flavour)
    toolchain = Toolchain(flavour, module.__version__, _supported(flavour, module))
    if options.compute_capabilities is not None:
        _refuse_unsupported(options.compute_capabilities, toolchain)
    return toolchain


def choose_flavour(wanted: Flavour, installed: Callable[[Flavour], bool], gpu: Callable[[], str | None]) -> Flavour:
    """The flavour that is wanted, if it can build here."""
    if not installed(wanted):
        raise EngineBuildError(
            f"engines need the Python package {_MODULES[wanted]}, which is not installed: {_INSTALL[wanted]}"
        )
    if wanted == "tensorrt" and gpu() is None:
        raise EngineBuildError(
            "standard TensorRT builds on the GPU it builds for, and this machine has none; "
            "use the flavour tensorrt_rtx, which builds ahead of time on any machine"
        )
    return wanted


def chosen_capabilities(toolchain: Toolchain, options: EngineOptions, *, fp32_products: bool) -> tuple[str, ...]:
    """The GPUs an engine is built for: the ones asked for, else all that can run its matrix products."""
    if options.compute_capabilities is not None:
        old = [capability for capability in options.compute_capabilities if _older(capability)]
        if fp32_products and old:
            raise EngineBuildError(
                f"compute capability {', '.join(old)} can't multiply matrices in fp32 with TensorRT (it needs "
                f"{FP32_PRODUCTS_NEED}); choose --precision fp16 without layers kept in fp32, or leave it out"
            )
        return options.compute_capabilities
    return tuple(capability for capability in toolchain.supported if not (fp32_products and _older(capability)))


def import_flavour(flavour: Flavour) -> Any:  # noqa: ANN401 - both packages have the same interface and no common type
    """The package of the flavour; its native library can fail to load, which is a build error and not a traceback."""
    try:
        return importlib.import_module(_MODULES[flavour])
    except (ImportError, OSError) as error:
        raise EngineBuildError(f"the Python package {_MODULES[flavour]} can't be loaded: {error}") from error


def _supported(flavour: Flavour, module: Any) -> tuple[str, ...]:  # noqa: ANN401
    if flavour == "tensorrt":
        return tuple(filter(None, [present_compute_capability()]))
    members = (name.removeprefix("SM") for name in module.ComputeCapability.__members__ if name.startswith("SM"))
    return tuple(f"{digits[:-1]}.{digits[-1]}" for digits in members)


def _refuse_unsupported(capabilities: tuple[str, ...], toolchain: Toolchain) -> None:
    if unsupported := [capability for capability in capabilities if capability not in toolchain.supported]:
        raise EngineBuildError(
            f"{toolchain.flavour} {toolchain.version} can't build for compute capability {', '.join(unsupported)} here "
            f"(it can: {', '.join(toolchain.supported)})"
        )


def _older(capability: str) -> bool:
    return _number(capability) < _number(FP32_PRODUCTS_NEED)


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def _installed(flavour: Flavour) -> bool:
    return importlib.util.find_spec(_MODULES[flavour]) is not None
