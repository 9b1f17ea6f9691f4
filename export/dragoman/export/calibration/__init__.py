"""Calibration on real text: the activation ranges for int8, the layers that fp16 can't hold, and the heads that align."""

from dragoman.export.calibration.findings import calibrate
from dragoman.export.calibration.overflow import find_overflowing
from dragoman.export.calibration.ranges import activation_ranges
from dragoman.export.calibration.text import CalibrationText

__all__ = ["CalibrationText", "activation_ranges", "calibrate", "find_overflowing"]
