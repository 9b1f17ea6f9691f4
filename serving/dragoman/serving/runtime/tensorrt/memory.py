"""How much of the GPU's memory an engine may take: computed and checked before it serves requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.bundle.manifest import Manifest
from dragoman.errors import ServeError
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts, memory_contract
from dragoman.serving.engine.slots import bucket, power_of_two
from dragoman.serving.runtime.tensorrt.engine import LoadedEngine
from dragoman.serving.runtime.tensorrt.forced import forced_shapes

if TYPE_CHECKING:
    from dragoman.serving.runtime.tensorrt.runtime import TensorRtRuntime

__all__ = ["device_contract"]


def device_contract(
    runtime: TensorRtRuntime, bundle: Path, manifest: Manifest, limits: EngineLimits, model: ModelFacts
) -> MemoryContract:
    """The contract, with the engines' own scratch memory allocated; what was loaded is there already."""
    _check_profiles(runtime.decoder_engine, bundle, limits)
    free_bytes = runtime.device.free_bytes()
    widest = 4 * manifest.dimensions.d_model
    paged = memory_contract(limits, model, runtime.layout, 0, widest, cache_copies=2)
    scratch = max(_encoder_scratch(runtime.encoder, limits), _decoder_scratch(runtime, limits), _forced_scratch(runtime))
    encoded = 4 * limits.encode_tokens_per_step * runtime.layout.slot_bytes  # padded to a shape that comes again
    if runtime.forced is not None:  # keeps the one source that it reads a target for
        encoded += runtime.decoder_engine.largest("cross_key_0", 2) * runtime.layout.slot_bytes
    contract = MemoryContract(
        weights_bytes=sum(manifest.files[engine.file].bytes for engine in manifest.engines),
        self_cache_bytes=paged.self_cache_bytes,
        cross_cache_bytes=paged.cross_cache_bytes // 2,  # a step does not change it, so there is one copy
        session_cache_bytes=paged.session_cache_bytes,
        growth_bytes=paged.growth_bytes,
        workspace_bytes=scratch + encoded,
        process_bytes=0,  # the host's memory is not the GPU's
    )
    to_come = contract.total_bytes - contract.weights_bytes
    if to_come > free_bytes:
        leaner = "" if runtime.forced is None else f", run `dragoman build-engines {bundle} --without-scores`"
        raise ServeError(
            f"GPU {runtime.device.number} has {free_bytes / 2**20:,.0f} MiB free, and this model may need "
            f"{to_come / 2**20:,.0f} MiB more ({contract}); lower --max-batch, end what else runs there{leaner}, or choose "
            "another GPU with --gpu"
        )
    runtime.scratch.reserve(scratch)
    return contract


def _check_profiles(decoder: LoadedEngine, bundle: Path, limits: EngineLimits) -> None:
    sequences, width = decoder.largest("source_lengths", 0), decoder.largest("tokens", 1)
    if power_of_two(max(limits.max_rows, limits.max_session_rows)) > sequences or limits.max_beam_size > width:
        raise ServeError(
            f"{decoder.entry.file} was built for up to {sequences} rows and beams of up to {width}, and this server would "
            f"decode {limits.max_rows} rows and beams of {limits.max_beam_size}; lower --max-batch or --max-beam-size, or: "
            f"dragoman build-engines {bundle} --max-batch {limits.max_rows} --max-beam-size {limits.max_beam_size}"
        )


def _encoder_scratch(encoder: LoadedEngine, limits: EngineLimits) -> int:
    """The larger of the extreme calls: many short sources, or few long ones."""
    longest, batches = encoder.largest("source_ids", 1), encoder.largest("source_ids", 0)
    needed, batch = 0, 1
    while batch <= min(batches, power_of_two(limits.max_rows)):
        length = min(bucket(max(limits.encode_tokens_per_step // max(batch // 2, 1), 1)), longest)
        needed = max(needed, encoder.scratch_bytes({"source_ids": (batch, length), "source_lengths": (batch,)}))
        batch *= 2
    return needed


def _forced_scratch(runtime: TensorRtRuntime) -> int:
    """The longest target and source."""
    if runtime.forced is None:
        return 0
    engine = runtime.forced.engine
    longest = engine.largest("tokens", 1), engine.largest("cross_key_0", 2)
    shapes = forced_shapes(engine, runtime.layout, *longest)
    return engine.scratch_bytes({spec.name: shapes[spec.name] for spec in engine.graph.inputs})


def _decoder_scratch(runtime: TensorRtRuntime, limits: EngineLimits) -> int:
    """The longest caches with all rows: in one greedy batch, in pairs, in the widest beams."""
    decoder, layout = runtime.decoder_engine, runtime.layout
    heads, head_dim = layout.heads, layout.head_dim
    source, target = decoder.largest("cross_key_0", 2), decoder.largest("self_key_0", 2)
    needed = 0
    for width in sorted({1, 2, limits.max_beam_size}):
        if width > limits.max_beam_size:
            continue
        sequences = power_of_two(max(limits.max_rows // width, 1))
        shapes: dict[str, tuple[int, ...]] = {
            "tokens": (sequences, width),
            "positions": (sequences, width),
            "source_lengths": (sequences,),
            "parents": (sequences * width,),
            "scored_tokens": (sequences * width, 1 if width == 1 else decoder.largest("scored_tokens", 1)),
        }
        for spec in decoder.graph.inputs:
            if spec.name.startswith("cross_"):
                shapes[spec.name] = (sequences, heads, source, head_dim)
            elif spec.name.startswith("self_"):
                shapes[spec.name] = (sequences * width, heads, target, head_dim)
        needed = max(needed, decoder.scratch_bytes(shapes))
    return needed
