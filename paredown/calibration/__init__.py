"""The cheapest plan that keeps a promise, the certificate that says so, and whether live rows still are as it saw."""

from paredown.calibration.calibrating import Calibrated, calibrate
from paredown.calibration.drift import Drift, DriftMonitor
from paredown.calibration.losses import Risk
from paredown.calibration.promise import Promise
from paredown.certificate import Certificate

__all__ = ["Calibrated", "Certificate", "Drift", "DriftMonitor", "Promise", "Risk", "calibrate"]
