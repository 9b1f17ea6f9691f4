"""Finds the installed TensorRT, and the GPUs that it can build for."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.device import present_compute_capability
from dragoman.export.tensorrt.options import BuildOptions, Flavour

__all__ = ["WIDE_PRODUCTS_NEED", "Toolchain", "choose_flavour", "chosen_capabilities", "find_toolchain", "import_flavour"]

WIDE_PRODUCTS_NEED = "8.0"
"""With TensorRT-RTX, Turing (7.5) multiplies matrices in fp16 and int8 only; it has no bfloat16 at all."""

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


def find_toolchain(options: BuildOptions) -> Toolchain:
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


def chosen_capabilities(
    toolchain: Toolchain, options: BuildOptions, *, wide_products: Sequence[str] = ()
) -> tuple[str, ...]:
    """The GPUs an engine is built for: the ones asked for, else all that can run its matrix products.

    `wide_products`: the types wider than float16 in range that the graphs multiply in, such as fp32.
    """
    wanted = options.compute_capabilities or toolchain.supported
    old = [capability for capability in wanted if _older(capability)] if wide_products else []
    if toolchain.flavour == "tensorrt" and "bfloat16" not in wide_products:
        old = []  # the standard package has fp32 products for the GPU that it finds
    fitting = tuple(capability for capability in wanted if capability not in old)
    if old and (options.compute_capabilities is not None or not fitting):
        raise EngineBuildError(
            f"compute capability {', '.join(old)} can't multiply matrices in {' and '.join(wide_products)} with "
            f"{toolchain.flavour} (it needs {WIDE_PRODUCTS_NEED}); choose --precision fp16 or int8 and a model without "
            "layers kept in fp32, or leave it out"
        )
    return fitting


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
    return _number(capability) < _number(WIDE_PRODUCTS_NEED)


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def _installed(flavour: Flavour) -> bool:
    return importlib.util.find_spec(_MODULES[flavour]) is not None
