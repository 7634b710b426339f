"""Where things lie in a checkout: what tests and generated pages read and write outside the packages."""

from pathlib import Path

__all__ = ["CONFIGS", "DOCS", "NETWORKS", "ROOT", "TESTS", "VECTORS"]

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
TESTS = ROOT / "verif" / "tests"
CONFIGS = TESTS / "configs"
"""Machines of the tests, beside the presets."""
NETWORKS = TESTS / "networks"
"""Small networks of awkward shapes."""
VECTORS = TESTS / "vectors"
"""Operands and results of an implementation that shares nothing with this one."""
