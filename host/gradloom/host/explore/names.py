"""What ``gradloom explore`` can be asked for, without what answers it."""

__all__ = ["ALL_SYSTEMS", "RESOURCE_FAMILIES", "SYSTEMS"]

SYSTEMS = ("darkfpga", "fox", "barista", "eftrain")
"""Those of the papers beside ETA."""
ALL_SYSTEMS = ("eta", *SYSTEMS)
"""gradloom's own machines, after ETA, and the others."""
RESOURCE_FAMILIES = ("xc7", "ecp5")
"""Families of FPGA that resources are modelled for."""
