"""The double's TensorRT as a module; DRAGOMAN_TEST_GPU_BUNDLE is the bundle whose engines it knows."""

import os
from pathlib import Path

from cuda.bindings.runtime import DOUBLE

from dragoman.bundle.manifest import read_manifest
from gpu_double.tensorrt import TensorRtDouble

_double = TensorRtDouble(DOUBLE)
_bundle = Path(os.environ["DRAGOMAN_TEST_GPU_BUNDLE"])
_double.know(_bundle, read_manifest(_bundle))
__version__ = _double.__version__
globals().update({name: getattr(_double, name) for name in dir(_double) if name[0].isupper()})
