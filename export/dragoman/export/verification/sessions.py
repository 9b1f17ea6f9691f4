"""A graph in ONNX Runtime as the verification runs it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime

from dragoman import native
from dragoman.export.verification.bfloat16 import emulated, has_bfloat16

__all__ = ["opened"]


def opened(path: Path) -> onnxruntime.InferenceSession:
    """On the CPU, with the custom operators where they are built; bfloat16 comes and goes as float32."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if (operators := native.ops_library()) is not None:
        options.register_custom_ops_library(str(operators))
    # Explicitly quantised products in float32: ONNX Runtime's own int8 products saturate on CPUs without VNNI, which
    # the GPUs those graphs are for do not.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the original computes in between
    graph: str | bytes = str(path)
    if has_bfloat16(onnx.load(path, load_external_data=False).graph):
        graph = emulated(path)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
