"""Every name and parameter that the runtime uses, looked up in the libraries that are installed."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_double import CudaDouble
from gpu_double.engines import ContextDouble, EngineDouble, RuntimeCacheDouble, RuntimeConfigDouble
from gpu_double.tensorrt import RuntimeDouble, TensorRtDouble
from gpu_surface import documented, methods, parameters

runtime = pytest.importorskip("cuda.bindings.runtime")
driver = pytest.importorskip("cuda.bindings.driver")
trt = pytest.importorskip("tensorrt_rtx_bindings")


@pytest.mark.parametrize("name", [name for name in methods(CudaDouble) if name.startswith("cuda")])
def test_the_cuda_calls_have_the_doubles_parameters(name: str) -> None:
    real = getattr(runtime, name)
    assert parameters(getattr(CudaDouble, name)) in documented(real.__doc__, name)


@pytest.mark.parametrize("kind", ["cudaMemcpyKind", "cudaDeviceAttr", "cudaMemPoolAttr", "cudaError_t"])
def test_the_cuda_constants_have_the_doubles_values(kind: str) -> None:
    for member in getattr(CudaDouble, kind):
        assert int(getattr(getattr(runtime, kind), member.name)) == int(member)
    assert (runtime.cudaHostAllocDefault, runtime.cudaStreamNonBlocking) == (0, 1)


def test_the_cuda_calls_take_what_the_runtime_gives_them() -> None:
    """Without a driver each answers with an error, and not with a complaint about its arguments."""
    stream, kind = runtime.cudaStream_t(0), runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    attribute = runtime.cudaDeviceAttr.cudaDevAttrMemoryPoolsSupported
    threshold = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    calls = [
        runtime.cudaGetDeviceCount(),
        runtime.cudaSetDevice(0),
        runtime.cudaDeviceGetAttribute(attribute, 0),
        runtime.cudaDeviceGetDefaultMemPool(0),
        runtime.cudaMemPoolSetAttribute(runtime.cudaMemPool_t(0), threshold, driver.cuuint64_t(2**64 - 1)),
        runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking),
    ]
    if int(calls[0][0]) == 0:
        pytest.skip("this machine has a GPU, where these addresses would be used")
    calls += [
        runtime.cudaMemGetInfo(),
        runtime.cudaMallocAsync(256, stream),
        runtime.cudaFreeAsync(256, stream),
        runtime.cudaHostAlloc(256, runtime.cudaHostAllocDefault),
        runtime.cudaFreeHost(256),
        runtime.cudaMemcpyAsync(256, 512, 8, kind, stream),
        runtime.cudaMemcpy2DAsync(256, 8, 512, 8, 8, 1, kind, stream),
        runtime.cudaMemsetAsync(256, 0, 8, stream),
        runtime.cudaStreamSynchronize(stream),
    ]
    assert all(int(error) for error, *_ in calls)
    assert int(runtime.cudaGetErrorString(calls[0][0])[0]) == 0
    assert int(stream) == 0


@pytest.mark.parametrize(
    ("double", "real"),
    [
        (ContextDouble, "IExecutionContext"),
        (EngineDouble, "ICudaEngine"),
        (RuntimeConfigDouble, "IRuntimeConfig"),
        (RuntimeCacheDouble, "IRuntimeCache"),
        (RuntimeDouble, "Runtime"),
    ],
)
def test_the_tensorrt_classes_have_the_doubles_methods(double: type, real: str) -> None:
    for name in methods(double):
        signatures = documented(getattr(getattr(trt, real), name).__doc__, name)
        assert parameters(getattr(double, name)) in signatures, name


@pytest.mark.parametrize(
    "attribute",
    [
        "ICudaEngine.num_optimization_profiles",
        "IRuntimeConfig.cuda_graph_strategy",
        "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy",
        "Logger.WARNING",
        "BuilderFlag.REQUIRE_USER_ALLOCATION",
    ],
)
def test_the_attributes_that_are_set_and_read_exist(attribute: str) -> None:
    kind, name = attribute.split(".")
    assert hasattr(getattr(trt, kind), name)


@pytest.mark.parametrize(
    "kind",
    [
        "TensorLocation",
        "EngineValidity",
        "ExecutionContextAllocationStrategy",
        "CudaGraphStrategy",
        "DynamicShapesKernelSpecializationStrategy",
        "ComputeCapability",
    ],
)
def test_the_enumerations_have_the_doubles_members(kind: str) -> None:
    assert set(getattr(TensorRtDouble, kind).__members__) <= set(getattr(trt, kind).__members__)


def test_the_reasons_of_an_invalid_engine_have_the_doubles_bits() -> None:
    for member in TensorRtDouble.EngineInvalidityDiagnostics:
        assert int(getattr(trt.EngineInvalidityDiagnostics, str(member.name))) == member


def test_the_data_types_are_those_of_numpy() -> None:
    for member in TensorRtDouble.DataType:
        real = getattr(trt.DataType, member.name)
        if member.value != "bfloat16":  # numpy has none
            assert np.dtype(trt.nptype(real)) == np.dtype(member.value)


def test_a_foreign_engine_is_recognised_by_the_real_check() -> None:
    validity, _why = trt.Runtime(trt.Logger(trt.Logger.WARNING)).get_engine_validity(b"not an engine at all" * 100)
    assert validity == trt.EngineValidity.INVALID
