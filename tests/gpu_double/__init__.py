"""A double of a GPU: the CUDA calls and the TensorRT bindings that the runtime uses, computed by ONNX Runtime on the CPU.

It is meaner than a GPU. Nothing happens before the stream is waited for; memory that was not written holds poison; every
address that is used must lie in memory that is alive at that point of the stream, with room for what is asked.
"""

from gpu_double.cuda import CudaDouble, Fault
from gpu_double.tensorrt import StandardDouble, TensorRtDouble, importing_doubles

__all__ = ["CudaDouble", "Fault", "StandardDouble", "TensorRtDouble", "importing_doubles"]
