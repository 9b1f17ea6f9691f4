"""What the numbers inside a model do on real text: the ranges int8 needs, and the layers fp16 can't hold."""

from dragoman.export.calibration.findings import calibrate
from dragoman.export.calibration.overflow import find_overflowing
from dragoman.export.calibration.ranges import activation_ranges
from dragoman.export.calibration.text import CalibrationText

__all__ = ["CalibrationText", "activation_ranges", "calibrate", "find_overflowing"]
