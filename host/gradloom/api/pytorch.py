"""PyTorch modules: import, export, and training from a PyTorch loop (docs/pytorch.md). Needs PyTorch.

``compile(module)`` is a :class:`Model` whose ``step(images, labels)`` trains on the golden model, the emulator or the
simulated hardware. ``offload(module)`` leaves the module to PyTorch, and only its products to a device (docs/offload.md).
"""

from gradloom.host.frontends.torch_conversion import (
    FRN,
    Evaluation,
    Imported,
    LayerTensors,
    Model,
    Step,
    compile,
    from_module,
    replace_norms,
    to_state_dict,
)
from gradloom.host.offload.matrix_device import MatrixDevice, RtlDevice, TwinDevice
from gradloom.host.offload.offloaded import Offloaded, offload
from gradloom.host.offload.placement import by_model
from gradloom.models.matrix.blocks import ProductFormat, Quantiser
from gradloom.systems.barista import Mesh

__all__ = ["FRN", "Evaluation", "Imported", "LayerTensors", "MatrixDevice", "Mesh", "Model", "Offloaded",
           "ProductFormat", "Quantiser", "RtlDevice", "Step", "TwinDevice", "by_model", "compile", "from_module",
           "offload", "replace_norms", "to_state_dict"]
