"""Pickles made to run something, or to take all memory: refused in a line, with nothing run and little memory taken."""

from __future__ import annotations

import codecs
import functools
import os
import pickle
import resource
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.opennmt_vocabulary import read_vocabularies
from dragoman.export.checkpoint.formats.pickles import load_pickle, plain, state_dict

HUGE = 1 << 33  # 8 GiB
MOST_BYTES = 1 << 30
MARK = "a name that is replaced"


class Calls:
    """A call that is made when the pickle is opened."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def taken_bytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def doubled(times: int) -> object:
    """A text that a codec makes twice as long, so many times."""
    made: object = Calls(codecs.encode, "x" * 1024, "latin1")
    for _ in range(times):
        made = Calls(codecs.encode, made, "hex")
    return made


def copied(times: int) -> object:
    """One tuple, named again and again by a few bytes, each of which copies it."""
    whole = tuple([1] * 20_000)
    return [Calls(torch.Size, whole) for _ in range(times)]


def rebuilt(size: int) -> object:
    """A tensor of so many numbers in the memory of four."""
    storage = torch.zeros(4)._typed_storage()
    return Calls(torch._utils._rebuild_tensor_v2, storage, 0, (size,), (1,), False, OrderedDict())


def typed(function: Callable[..., object], state: dict[str, object], *arguments: object) -> object:
    """torch's way to make tensors of a subclass calls any function that it is given."""
    return Calls(torch._tensor._rebuild_from_type_v2, function, torch.Tensor, arguments, state)  # type: ignore[attr-defined]


BOMBS: dict[str, tuple[Callable[[], object], str]] = {
    "bytes": (lambda: Calls(bytearray, HUGE), "far more memory"),
    "doubled text": (lambda: doubled(24), "far more memory"),
    "copies": (lambda: copied(60_000), "far more memory"),
    "empty tensor": (lambda: Calls(torch.Tensor, HUGE // 4), "far more memory"),
    "storage": (lambda: Calls(torch.storage.UntypedStorage, HUGE), "far more memory"),
    "bytes by way of a tensor": (lambda: typed(bytearray, {}, HUGE), "far more memory"),
    "tensor beyond its storage": (lambda: rebuilt(HUGE // 4), "far more memory|not resizable"),
}


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little_memory(tmp_path: Path, name: str, new: bool) -> None:
    make, message = BOMBS[name]
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(4), "x": make()}, path, _use_new_zipfile_serialization=new)
    limits, before = resource.getrlimit(resource.RLIMIT_AS), taken_bytes()
    with pytest.raises(CheckpointError, match=message):
        state_dict(load_pickle(path), "the file")
    assert taken_bytes() - before < MOST_BYTES
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def with_bytes(path: Path, found: bytes, replacement: bytes) -> None:
    """The pickle in a new file of torch.save, with other bytes in one place."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in records if name.endswith("/data.pkl"))
    assert found in records[name]
    records[name] = records[name].replace(found, replacement)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)


NAMED = b"X" + struct.pack("<I", len(MARK)) + MARK.encode()


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (b"X\xff\xff\xff\xffabc", "truncated or corrupt|can't decode|codec"),  # a string of 4 GiB
        (b"K\x01r\xff\xff\xff\xff", None),  # remembered at the last place: a list of them would be of 32 GiB
        (b"K\x01Q", "truncated or corrupt"),  # persistent ids that are no storages
        (b"X\x02\x00\x00\x00osQ", "persistent_load id"),
        (b"(X\x06\x00\x00\x00moduleX\x02\x00\x00\x00ostQ", "persistent_load of storage"),
        (b"h\xfe", "truncated or corrupt"),  # remembered nowhere
        (b"tttt", "truncated or corrupt"),  # marks that are not there
        (b"\x8b\xff\xff\xff\x7f", "Unsupported operand"),  # a number of 2 GiB
        (b"\x82\x01", "Unsupported operand"),  # an extension of copyreg
        (b"(X\x01\x00\x00\x00ai__builtin__\neval\n", "Unsupported operand"),  # INST, which names a class and calls it
        (b"\x8c\x02os\x8c\x06system\x93", "Unsupported operand"),  # STACK_GLOBAL, which hides its name from searches
    ],
)
def test_opcodes_that_claim_too_much_are_refused(tmp_path: Path, opcodes: bytes, message: str | None) -> None:
    path, before = tmp_path / "model.pt", taken_bytes()
    torch.save({"w": torch.zeros(4), "x": MARK}, path)
    with_bytes(path, NAMED, opcodes)
    if message is None:
        assert state_dict(load_pickle(path), "the file")["w"].tolist() == [0.0] * 4
    else:
        with pytest.raises(CheckpointError, match=message) as refusal:
            load_pickle(path)
        assert "weights_only" not in str(refusal.value)  # torch's advice is to run the file
    assert taken_bytes() - before < MOST_BYTES


def test_a_storage_gives_no_more_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.arange(4.0)}, path)
    with_bytes(path, b"K\x04tq", b"\x8a\x05" + HUGE.to_bytes(5, "little") + b"tq")  # the storage's own size
    tensor = state_dict(load_pickle(path), "the file")["w"]
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert tensor.untyped_storage().nbytes() <= path.stat().st_size


def runs(ran: Path) -> Calls:
    return Calls(os.mkdir, str(ran))


RUNNING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a call": (runs, "mkdir"),
    "attributes": (lambda _: Calls(getattr, OrderedDict, "clear"), "getattr"),
    "a pickle in a pickle": (lambda ran: Calls(pickle.loads, pickle.dumps(runs(ran), 2)), "pickle.loads"),
    "torch's pickle in a pickle": (
        lambda ran: Calls(torch.storage._load_from_bytes, pickle.dumps(runs(ran), 2)),
        "_load_from_bytes",
    ),
    "a partial": (lambda ran: functools.partial(os.mkdir, str(ran)), "mkdir"),
    "a call by way of a tensor": (lambda ran: typed(os.mkdir, {}, str(ran)), "mkdir"),
    "a codec that imports": (lambda _: Calls(codecs.lookup, "hex"), "codecs.lookup"),
    "evaluated text": (lambda ran: Calls(eval, f"__import__('os').mkdir({str(ran)!r})"), "eval"),
}


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("name", RUNNING)
def test_nothing_is_run_and_its_name_is_reported(tmp_path: Path, name: str, new: bool) -> None:
    make, refused = RUNNING[name]
    path, ran = tmp_path / "model.pt", tmp_path / "it ran"
    torch.save({"w": torch.zeros(4), "x": make(ran)}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(CheckpointError, match=f"{refused}.*nothing of it was run"):
        load_pickle(path)
    assert not ran.exists()


@pytest.mark.parametrize(("record", "message"), [("constants.pkl", "TorchScript"), ("extra.pkl", None)])
def test_no_other_pickle_in_the_archive_is_opened(tmp_path: Path, record: str, message: str | None) -> None:
    path, ran = tmp_path / "model.pt", tmp_path / "it ran"
    torch.save({"w": torch.zeros(4)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"model/{record}", pickle.dumps(runs(ran), 2))
    if message is None:
        assert list(state_dict(load_pickle(path), "the file")) == ["w"]
    else:
        with pytest.raises(CheckpointError, match=message):
            load_pickle(path)
    assert not ran.exists()


def test_tensors_keep_no_attributes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": typed(torch.Tensor, {"numel": complex, "untyped_storage": complex}, 4)}, path)
    (tensor,) = state_dict(load_pickle(path), "the file").values()
    assert tensor.numel() == 4


def test_settings_with_keys_that_are_no_names_are_left_out() -> None:
    key: tuple[object, ...] = ()
    for _ in range(12):  # its text is 2^12 times as long
        key = (key, key)
    assert plain({"layers": 6, key: 1, 3: "three"}) == {"layers": 6, "3": "three"}


def test_vocabularies_with_names_that_are_none_are_refused() -> None:
    with pytest.raises(CheckpointError, match="no list of pieces for 'src'"):
        read_vocabularies([([], ["a"]), ("tgt", ["a"])], "model.pt")
