"""Just enough of ONNX's file format to write a graph of a few operators without the onnx library.

A file is a protobuf message, a list of numbered fields: a number (varint), or bytes preceded by their length. The field
numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Node", "Value", "graph"]

_IR_VERSION, _OPSET = 8, 18
_ELEMENT_TYPES = {"float32": 1, "int64": 7, "float16": 10}
_INTEGER_ATTRIBUTE = 2


@dataclass(frozen=True, slots=True)
class Node:
    """An operator whose one attribute is `axis`."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    axis: int


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor whose `rank` dimensions may all vary."""

    name: str
    dtype: str
    rank: int


def graph(nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> bytes:
    """The model file."""
    body = b"".join(_field(1, _node(node)) for node in nodes)
    body += _field(2, b"arrange")
    body += b"".join(_field(11, _value(value)) for value in inputs)
    body += b"".join(_field(12, _value(value)) for value in outputs)
    return _field(1, _IR_VERSION) + _field(7, body) + _field(8, _field(2, _OPSET))


def _node(node: Node) -> bytes:
    axis = _field(1, b"axis") + _field(3, node.axis) + _field(20, _INTEGER_ATTRIBUTE)
    names = b"".join(_field(1, name.encode()) for name in node.inputs)
    return names + _field(2, node.output.encode()) + _field(4, node.operator.encode()) + _field(5, axis)


def _value(value: Value) -> bytes:
    shape = _field(1, b"") * value.rank
    tensor = _field(1, _ELEMENT_TYPES[value.dtype]) + _field(2, shape)
    return _field(1, value.name.encode()) + _field(2, _field(1, tensor))


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the eighth is set where more follow."""
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])
