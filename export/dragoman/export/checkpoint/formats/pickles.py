"""Opens files written by `torch.save` without executing anything in them.

torch's weights-only unpickler reads tensors and containers. Trainers also store their settings as objects; the classes
listed here become `Inert` ones, which keep their arguments and do nothing. Any other name in a file is refused.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.memory import memory_for
from dragoman.export.checkpoint.formats.zips import ZIP_ERRORS, told

__all__ = ["Inert", "load_pickle", "pickled_names", "plain", "state_dict"]

NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
OMEGACONF = ("AnyNode", "BooleanNode", "EnumNode", "FloatNode", "IntegerNode", "StringNode", "ValueNode", "PathNode")

INERT_NAMES = (
    "argparse.Namespace",
    "functools.partial",
    "typing.Any",
    "typing.Union",
    "numpy.ndarray",
    "numpy.dtype",
    *(f"{module}.{name}" for module in NUMPY for name in ("_reconstruct", "scalar")),
    *(f"numpy.dtypes.{kind}DType" for kind in ("Float64", "Float32", "Int64", "Int32", "Bool")),
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.base.Metadata",
    "omegaconf.base.ContainerMetadata",
    *(f"omegaconf.nodes.{name}" for name in OMEGACONF),
    "fairseq.data.dictionary.Dictionary",
    "fairseq.dataclass.configs.FairseqConfig",
    "fairseq.meters.AverageMeter",
    "fairseq.meters.StopwatchMeter",
    "fairseq.meters.TimeMeter",
    "fairseq.logging.meters.AverageMeter",
    "fairseq.logging.meters.StopwatchMeter",
    "fairseq.logging.meters.TimeMeter",
    "onmt.inputters.text_dataset.TextMultiField",
    "onmt.inputters.text_dataset._feature_tokenize",
    "onmt.utils.parse.ArgumentParser",
    "torchtext.data.field.Field",
    "torchtext.data.field.RawField",
    "torchtext.legacy.data.field.Field",
    "torchtext.legacy.data.field.RawField",
    "torchtext.vocab.Vocab",
    "torchtext.legacy.vocab.Vocab",
    "torchtext.vocab._default_unk_index",
    "torchtext.legacy.vocab._default_unk_index",
)
"""What fairseq and OpenNMT-py put beside their weights. A name added here can't do harm: nothing of it is imported."""

DEEPEST, MOST_VALUES = 32, 1 << 20
MOST_READ = 1 << 24
PICKLE = b"\x80"
NO_MEMORY = "can't allocate memory"  # torch's message
SHORT_STRING = re.compile(rb"X(.)\x00\x00\x00", re.DOTALL)  # BINUNICODE and its length


class Inert:
    """Stands for an object whose class is not imported."""

    arguments: tuple[object, ...]
    state: object

    def __new__(cls, *arguments: object) -> Inert:  # pickles call it with and without __init__
        made = super().__new__(cls)
        made.arguments, made.state = arguments, None
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state


def _dictionary(*_arguments: object) -> OrderedDict[object, object]:
    """For a defaultdict: its default is a function, and nothing is called."""
    return OrderedDict()


ALLOWED: list[Any] = [*((Inert, name) for name in INERT_NAMES), (_dictionary, "collections.defaultdict")]


def load_pickle(path: Path) -> object:
    """What `torch.save` wrote. Tensors of new files stay on the disk until they are used."""
    zipped = zipfile.is_zipfile(path)
    if zipped:
        _check_sizes(path)
    try:
        with torch.serialization.safe_globals(ALLOWED), memory_for(path):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        if name := _refused_name(str(error)):
            raise CheckpointError(
                f"{path} holds {name}, which could run code when it is opened and is refused; nothing of it was run. "
                "Save the weights alone, as a state dict or in safetensors"
            ) from error
        raise CheckpointError(f"{path} is corrupt, or not a file of torch.save ({_reason(error)})") from error
    except Exception as error:  # a damaged file can fail the unpickler in any way
        if isinstance(error, MemoryError) or NO_MEMORY in str(error):
            raise CheckpointError(f"{path} asks for far more memory than a file of its size needs; it is refused") from error
        raise CheckpointError(f"{path} is truncated or corrupt: {told(error)}; fetch it again") from error


def _check_sizes(path: Path) -> None:
    """torch stores its records as they are: a compressed one could become anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except ZIP_ERRORS as error:
        raise CheckpointError(f"{path} is truncated or corrupt: {told(error)}; fetch it again") from error
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise CheckpointError(f"{path} has compressed records, which torch.save never writes; it is refused")
    if sum(record.file_size for record in records) > path.stat().st_size:
        raise CheckpointError(f"{path} has records that are longer than the file; it is refused")


def _reason(error: Exception) -> str:
    """What the unpickler found, without torch's advice to open the file in a way that would run what stands in it."""
    return told(ValueError(str(error).rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]))


def _refused_name(message: str) -> str | None:
    """The class or function that the unpickler refused, from its message."""
    found = re.search(r"GLOBAL (\S{1,200})", message) or re.search(r"reduce for unrecognized function (.{1,200})", message)
    return ascii(found[1]).strip("'") if found else None


def state_dict(value: object, where: str) -> dict[str, Tensor]:
    """The tensors by name. What is not a tensor is left out; a tensor larger than its memory is refused."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(f"{where} is not a state dict: it must map names to tensors")
    # `.data` leaves behind what a file can set on a tensor, such as a `numel` of its own
    tensors = {name: tensor.data for name, tensor in value.items() if isinstance(tensor, Tensor)}
    for name, tensor in tensors.items():
        dense = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CheckpointError(f"{where}: {name} {list(tensor.shape)} is not an ordinary tensor; it is refused")
    return tensors


def plain(value: object) -> Any:  # noqa: ANN401 - settings are whatever the trainer wrote
    """Settings without objects: a Namespace or an omegaconf node becomes what it holds, other objects None."""
    return _Plain().of(value, 0)


class _Plain:
    def __init__(self) -> None:
        self._seen = 0

    def of(self, value: object, depth: int) -> Any:  # noqa: ANN401
        self._seen += 1
        if depth > DEEPEST or self._seen > MOST_VALUES:
            raise CheckpointError("the settings in the checkpoint are nested without end; it is refused")
        if isinstance(value, Inert):
            return self._inert(value, depth)
        if isinstance(value, Mapping):
            # other keys are no names; a tuple of tuples can have a text without end
            named = ((key, item) for key, item in value.items() if isinstance(key, (str, int)))
            return {str(key): self.of(item, depth + 1) for key, item in named}
        if isinstance(value, (list, tuple)):
            return [self.of(item, depth + 1) for item in value]
        return value if isinstance(value, (str, int, float, bool, type(None))) else None

    def _inert(self, value: Inert, depth: int) -> Any:  # noqa: ANN401
        if not isinstance(value.state, Mapping):
            return self.of(value.arguments[0], depth + 1) if len(value.arguments) == 1 else None
        for inside in ("_content", "_val"):  # of omegaconf's containers and nodes
            if inside in value.state:
                return self.of(value.state[inside], depth + 1)
        return self.of(value.state, depth + 1)


def pickled_names(path: Path) -> frozenset[str]:
    """The strings at the beginning of a file of torch.save: enough to tell whose it is, without opening it."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                record = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
                if record is None or archive.getinfo(record).compress_type != zipfile.ZIP_STORED:
                    return frozenset()
                with archive.open(record) as stream:
                    content = stream.read(MOST_READ)
        else:
            with path.open("rb") as stream:
                content = stream.read(MOST_READ)
            if not content.startswith(PICKLE):
                return frozenset()
    except ZIP_ERRORS:
        return frozenset()
    strings = (content[found.end() : found.end() + found[1][0]] for found in SHORT_STRING.finditer(content))
    return frozenset(string.decode("utf-8", errors="replace") for string in strings)
