"""The names and parameters that the standard package must have, looked up in its bindings.

Its libraries are not on the package index: the bindings are loaded over empty ones, in a process of their own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from compiled import can_compile, shared_library
from gpu_double.engines import ContextDouble, EngineDouble, StandardRuntimeConfigDouble
from gpu_double.tensorrt import STANDARD_VERSION, StandardDouble, StandardRuntimeDouble
from gpu_surface import documented, methods, parameters

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_bindings") is None, reason="the bindings are not installed"),
    can_compile,
]

LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
ENTRIES = (
    *(f"create{name}_INTERNAL" for name in ("InferBuilder", "InferRefitter", "InferRuntime", "NvOnnxParser")),
    *("createNvOnnxParserRefitter_INTERNAL", "getBuilderPluginRegistry", "getNvOnnxParserVersion", "getPluginRegistry"),
    "initLibNvInferPlugins",
)
DESCRIBE = """
import json, sys, tensorrt_bindings as trt
members = lambda kind: {name: getattr(getattr(trt, kind), name).__doc__ for name in dir(getattr(trt, kind))}
print(json.dumps({"version": trt.__version__, "kinds": {kind: members(kind) for kind in dir(trt) if kind[0].isupper()}}))
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | None]]:
    """The docstring of every member of every class."""
    directory = tmp_path_factory.mktemp("libraries")
    functions = "".join(f'extern "C" void* {name}() {{ return nullptr; }}\n' for name in ENTRIES)
    major = STANDARD_VERSION.split(".", maxsplit=1)[0]
    for name in LIBRARIES:
        shared_library(directory / f"lib{name}.so.{major}", functions)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
    described = subprocess.run(
        [sys.executable, "-c", DESCRIBE], check=True, capture_output=True, env=environment, timeout=600
    )
    found = json.loads(described.stdout)
    assert found["version"] == STANDARD_VERSION
    return found["kinds"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("double", "real"),
    [
        (ContextDouble, "IExecutionContext"),
        (EngineDouble, "ICudaEngine"),
        (StandardRuntimeConfigDouble, "IRuntimeConfig"),
        (StandardRuntimeDouble, "Runtime"),
    ],
)
def test_the_classes_have_the_doubles_methods(kinds: dict[str, dict[str, str | None]], double: type, real: str) -> None:
    for name in methods(double):
        assert parameters(getattr(double, name)) in documented(kinds[real][name] or "", name), name


@pytest.mark.parametrize(
    "attribute",
    [
        *(
            f"{kind}.{name}"
            for kind in ("TensorLocation", "ExecutionContextAllocationStrategy")
            for name in getattr(StandardDouble, kind).__members__
        ),
        *(f"DataType.{member.name}" for member in StandardDouble.DataType),
        "ICudaEngine.num_optimization_profiles",
        "Logger.WARNING",
        # What building an engine needs.
        "BuilderFlag.TF32",
        "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "ILogger.ERROR",
        "ILogger.INTERNAL_ERROR",
        "IProgressMonitor.phase_start",
        "IBuilderConfig.clear_flag",
        "IBuilderConfig.progress_monitor",
        "IBuilderConfig.add_optimization_profile",
        "IOptimizationProfile.set_shape",
        "Builder.create_builder_config",
        "Builder.create_network",
        "Builder.create_optimization_profile",
        "Builder.build_serialized_network",
        "OnnxParser.parse_from_file",
        "OnnxParser.get_error",
        "OnnxParser.num_errors",
        "ParserError.node_name",
        "ParserError.node_operator",
        "ParserError.code",
        "ParserError.desc",
    ],
)
def test_the_attributes_exist(kinds: dict[str, dict[str, str | None]], attribute: str) -> None:
    kind, name = attribute.split(".")
    assert name in kinds[kind]


def test_what_only_tensorrt_rtx_has_is_not_there(kinds: dict[str, dict[str, str | None]]) -> None:
    """If it comes one day, the runtime should use it."""
    assert "get_engine_validity" not in kinds["Runtime"]
    assert "cuda_graph_strategy" not in kinds["IRuntimeConfig"]
    assert "REQUIRE_USER_ALLOCATION" not in kinds["BuilderFlag"]
