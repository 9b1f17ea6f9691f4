"""What does not run here is refused before anything is loaded, with the command that helps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.bundle.manifest import Manifest
from dragoman.errors import BundleError, ServeError, ServerError
from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from gpu_double import CudaDouble, StandardDouble, importing_doubles
from gpu_machine import Machine, step

MakeMachine = Callable[[CudaDouble], Machine]


def changed(manifest: Manifest, **changes: Any) -> Manifest:
    engines = tuple(dataclasses.replace(engine, **changes) for engine in manifest.engines)
    return dataclasses.replace(manifest, engines=engines)


def test_an_engine_of_another_release_is_refused_with_the_command_that_rebuilds_it(machine: Machine) -> None:
    wanted = r"built by tensorrt_rtx 1\.6\.0\.1, and 1\.7\.1\.116.*dragoman build-engines .*bundle"
    with pytest.raises(BundleError, match=wanted):
        machine.open(changed(machine.manifest, version="1.6.0.1"))


def test_engines_of_the_standard_package_give_the_same_tokens(machine: Machine) -> None:
    """On a GPU that TensorRT-RTX does not know, without anything that only TensorRT-RTX has."""
    manifest = changed(
        machine.manifest, flavour="tensorrt", version=StandardDouble.__version__, compute_capabilities=("9.0",)
    )
    cuda = CudaDouble((9, 0))
    standard = StandardDouble(cuda)
    standard.know(machine.bundle, manifest)
    decoders = machine.decoder(), Machine(machine.bundle, manifest, cuda, standard).decoder()
    for position in (1, 2):
        tokens = [step(decoder, position, [[1, 0], [0, 0]]).tolist() for decoder in decoders]
        assert tokens[0] == tokens[1]


def test_an_engine_of_another_release_of_the_standard_package_is_refused(machine: Machine) -> None:
    manifest = changed(machine.manifest, flavour="tensorrt", version="10.9.0.34", compute_capabilities=("9.0",))
    cuda = CudaDouble((9, 0))
    other = Machine(machine.bundle, manifest, cuda, StandardDouble(cuda))
    with pytest.raises(BundleError, match=r"built by tensorrt 10\.9.*build-engines .* --flavour tensorrt"):
        other.open()


def test_an_engine_for_another_gpu_is_refused(make_machine: MakeMachine) -> None:
    machine = make_machine(CudaDouble((8, 9)))
    with pytest.raises(BundleError, match=r"compute capability 8\.0, 8\.6, and GPU 0 has 8\.9; .*build-engines"):
        machine.open()


def test_a_gpu_that_tensorrt_rtx_does_not_know_needs_the_standard_package(make_machine: MakeMachine) -> None:
    machine = make_machine(CudaDouble((9, 0)))
    with pytest.raises(BundleError, match=r"tensorrt-standard.*build-engines .* --flavour tensorrt"):
        machine.open()


def test_an_engine_that_tensorrt_finds_invalid_is_never_loaded(machine: Machine) -> None:
    machine.trt.validity = "INVALID", 6
    with pytest.raises(BundleError, match=r"can't run on GPU 0: unsupported cc, old cuda driver"):
        machine.open()
    assert not machine.trt.engines


def test_an_engine_that_does_not_load_is_refused(machine: Machine) -> None:
    machine.trt.known.clear()
    with pytest.raises(BundleError, match=r"can't load encoder\.engine"):
        machine.open()


def test_an_engine_with_other_tensors_than_the_manifests_is_refused(machine: Machine) -> None:
    graphs = tuple(
        dataclasses.replace(graph, inputs=tuple(dataclasses.replace(spec, dtype="float16") for spec in graph.inputs))
        for graph in machine.manifest.graphs
    )
    with pytest.raises(BundleError, match=r"source_ids is .*INT64.* in the engine and float16"):
        machine.open(dataclasses.replace(machine.manifest, graphs=graphs))


def test_an_engine_with_other_profiles_than_the_manifests_is_refused(machine: Machine) -> None:
    with pytest.raises(BundleError, match="profiles and the manifest lists 0"):
        machine.open(changed(machine.manifest, profiles=()))


def test_a_bundle_without_engines_says_how_to_build_them(machine: Machine) -> None:
    with pytest.raises(BundleError, match="no TensorRT engines; build them, on any machine: dragoman build-engines"):
        machine.open(dataclasses.replace(machine.manifest, engines=()))


def test_a_bundle_for_the_cpu_must_be_exported_again(machine: Machine) -> None:
    with pytest.raises(BundleError, match="no graphs to build them from; export it with --target tensorrt"):
        machine.open(dataclasses.replace(machine.manifest, engines=(), graphs=()))


ERRORS = CudaDouble.cudaError_t


@pytest.mark.parametrize(
    ("error", "driver", "way_out"),
    [
        (
            ERRORS.cudaErrorInsufficientDriver,
            0,
            "there is no driver: install NVIDIA's; containers need its container toolkit",
        ),
        (ERRORS.cudaErrorInsufficientDriver, 12040, r"the driver supports CUDA 12\.4, .* need CUDA 13: update the driver"),
        (ERRORS.cudaErrorNoDevice, 13000, "containers need --gpus, CUDA_VISIBLE_DEVICES .* MIG"),
        (ERRORS.cudaErrorSystemNotReady, 13000, "start nvidia-fabricmanager"),
        (ERRORS.cudaErrorSystemDriverMismatch, 13000, "different releases: reboot"),
        (ERRORS.cudaErrorCompatNotSupportedOnDevice, 13000, "cuda-compat"),
        (ERRORS.cudaErrorInvalidDevice, 13000, "cudaErrorInvalidDevice; nvidia-smi may say more"),
    ],
)
def test_the_reason_why_cuda_can_not_use_the_gpus_is_reported(
    make_machine: MakeMachine, error: int, driver: int, way_out: str
) -> None:
    cuda = CudaDouble()
    cuda.unusable, cuda.driver_version = error, driver
    with pytest.raises(ServeError, match=rf"needs an NVIDIA GPU.*{way_out}.*--device cpu"):
        make_machine(cuda).open()


def test_a_gpu_in_exclusive_use_of_another_process_is_reported(make_machine: MakeMachine) -> None:
    cuda = CudaDouble()
    cuda.busy = ERRORS.cudaErrorDevicesUnavailable
    with pytest.raises(ServeError, match=r"can't use GPU 0 .*another process has the GPU for itself"):
        make_machine(cuda).open()


def test_a_gpu_that_is_too_old_for_tensorrt_is_reported(make_machine: MakeMachine) -> None:
    with pytest.raises(BundleError, match=r"GPU 0 has 7\.0; no current TensorRT supports it: take a GPU of 7\.5 or newer"):
        make_machine(CudaDouble((7, 0))).open()


def test_of_two_gpus_the_one_that_the_engines_are_for_is_named(make_machine: MakeMachine) -> None:
    with pytest.raises(BundleError, match=r"GPU 0 has 9\.0; --gpu 1 can run it, or build it anew"):
        make_machine(CudaDouble((9, 0), (8, 6))).open()


def test_weights_that_do_not_fit_are_not_loaded(make_machine: MakeMachine) -> None:
    machine = make_machine(CudaDouble(total_bytes=16))
    with pytest.raises(ServeError, match=r"MiB free, and encoder\.engine alone has .* --gpu"):
        machine.open()
    assert not machine.trt.engines


def test_a_missing_gpu_is_reported(machine: Machine) -> None:
    with pytest.raises(ServeError, match="--gpu 3 is not here: this machine has 1"):
        TensorRtRuntime(
            machine.bundle,
            machine.manifest,
            RuntimeSettings(device="tensorrt", device_id=3),
            importing=importing_doubles(machine.cuda, machine.trt),
        )


@pytest.mark.parametrize("missing", ["cuda.bindings.runtime", "tensorrt_rtx_bindings"])
def test_a_missing_library_is_reported_with_its_package(machine: Machine, missing: str) -> None:
    importing = importing_doubles(machine.cuda, machine.trt)

    def without(name: str) -> Any:
        if name == missing:
            raise ImportError(f"No module named {name!r}")
        return importing(name)

    with pytest.raises(ServeError, match=rf"{missing}.*pip install 'dragoman\[tensorrt\]'"):
        TensorRtRuntime(machine.bundle, machine.manifest, importing=without)


def test_more_rows_than_the_engines_were_built_for_are_refused(machine: Machine) -> None:
    runtime = machine.open()
    with pytest.raises(ServeError, match=r"up to 128 rows and beams of up to 16.*--max-batch 500"):
        runtime.contract(EngineLimits(max_rows=500), model_facts(machine.manifest))


def test_what_the_gpu_has_not_free_is_refused_at_the_start(make_machine: MakeMachine) -> None:
    with pytest.raises(ServeError, match=r"MiB free, and this model may need .* lower --max-batch"):
        make_machine(CudaDouble(total_bytes=1 << 20)).open()


def test_a_gpu_whose_memory_is_taken_later_fails_the_request_that_needs_it(machine: Machine) -> None:
    runtime = machine.open()
    machine.cuda.total_bytes = machine.cuda.used_bytes
    with pytest.raises(ServerError, match=r"has no .* bytes left"):
        runtime.encode([[5, 6, 7]])


def test_a_cuda_error_means_that_the_device_is_lost(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = machine.decoder()
    runtime = machine.open()
    assert not runtime.is_lost
    with monkeypatch.context() as planted:
        planted.setattr(machine.cuda, "cudaStreamSynchronize", lambda stream: (machine.cuda.cudaError_t(101),))
        with pytest.raises(ServerError, match="CUDA on GPU 0: cudaErrorInvalidDevice"):
            step(decoder, 1)
        with runtime.device, pytest.raises(ServerError):
            runtime.device.synchronise()
    assert runtime.is_lost


def test_the_contract_is_never_exceeded(machine: Machine) -> None:
    runtime = machine.open()
    limits = EngineLimits(max_rows=8, max_beam_size=4, max_session_rows=8)
    contract = runtime.contract(limits, model_facts(machine.manifest))
    machine.cuda.peak_bytes = 0
    decoders = [runtime.decoder(1, 8)]
    for decoder in decoders:
        decoder.join(runtime.encode([[7] * 31] * 8), range(8), [31] * 8)
        decoder.reserve(32)
    assert machine.cuda.peak_bytes <= contract.total_bytes
