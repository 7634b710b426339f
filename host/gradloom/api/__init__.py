"""The public interface of gradloom in Python.

>>> from gradloom.api import train
>>> result = train("digits-cnn", "digits", steps=20)  # doctest: +SKIP
>>> result.test_accuracy  # doctest: +SKIP

What this module names in ``__all__`` is public, and so are the modules :mod:`gradloom.api.pytorch` and
:mod:`gradloom.api.onnx_models`: they change with a line in the changelog, and old names stay for one release.
Everything else in the namespace ``gradloom`` is internal and may move at any time.

Functions print nothing unless they are told to (``progress=True``). What cannot be used is a :exc:`UserError` with one
sentence that names the thing, the rule and the fix; the constructors of :class:`Network`, :class:`Config` and
:class:`MatrixConfig` raise :exc:`NetworkError` and :exc:`ConfigError`.
"""

from gradloom.api._explorations import DesignPoint, explore
from gradloom.api._given import load_config, load_machine, load_network
from gradloom.api._machines import devices, verilog
from gradloom.api._programs import CompiledProgram, LayerCost, MemoryRegion, compile
from gradloom.api._runs import evaluate, resume, train, verify
from gradloom.contracts.config import Config, ConfigError
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.host.devices.available import DeviceStatus
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.verification import CheckFailed, Difference
from gradloom.host.files import UserError
from gradloom.host.runs.evaluation import EvalResult
from gradloom.host.runs.reporting import Progress
from gradloom.host.runs.training import TrainResult
from gradloom.host.runs.verify import VerifyResult
from gradloom.models.images import ImageSettings
from gradloom.models.layers import (
    AvgPool,
    Conv,
    FullyConnected,
    GlobalAvgPool,
    MaxPool,
    NetworkError,
    Subsample,
    Training,
    Upsample,
)
from gradloom.models.network import Network, Rounding

__all__ = [
    "AvgPool",
    "CheckFailed",
    "CompiledProgram",
    "Config",
    "ConfigError",
    "Conv",
    "DesignPoint",
    "DeviceStatus",
    "Difference",
    "EvalResult",
    "FullyConnected",
    "GlobalAvgPool",
    "ImageSettings",
    "LayerCost",
    "MachineError",
    "MatrixConfig",
    "MaxPool",
    "MemoryOptions",
    "MemoryRegion",
    "Network",
    "NetworkError",
    "Progress",
    "Rounding",
    "Subsample",
    "TrainResult",
    "Training",
    "Upsample",
    "UserError",
    "VerifyResult",
    "compile",
    "devices",
    "evaluate",
    "explore",
    "load_config",
    "load_machine",
    "load_network",
    "resume",
    "train",
    "verify",
    "verilog",
]
