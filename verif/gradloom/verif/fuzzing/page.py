"""docs/fuzz.md and docs/results/fuzz: what the runs of the fuzzer came to."""

from pathlib import Path

__all__ = ["publish"]


def publish(work: Path, seed: int) -> None:
    """Counts of a folder of blocks, and the page."""
    raise NotImplementedError
