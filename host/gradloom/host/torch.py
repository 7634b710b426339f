"""The old name of :mod:`gradloom.api.pytorch`, for one release."""

import warnings

from gradloom.api.pytorch import *  # noqa: F403  every public name of the new module, so that none is missing here
from gradloom.api.pytorch import __all__ as __all__

warnings.warn("gradloom.host.torch is now gradloom.api.pytorch: import that", DeprecationWarning, stacklevel=2)
