"""Tests that take minutes and have a smaller representative in the suite: ``nox -s eta`` runs them, ``pytest`` tells of them."""

import os

import pytest

__all__ = ["long"]


def long(reason: str) -> pytest.MarkDecorator:
    """Mark of a test that only ``GRADLOOM_ETA=1`` runs, because of ``reason``, which pytest prints."""
    # Skipped, as these take a minute or more each on 2 cores and the suite has to stay under 30 minutes; pytest lists the reasons.
    return pytest.mark.skipif(os.environ.get("GRADLOOM_ETA") != "1", reason=f"{reason}: nox -s eta")
