"""A fixture of tests that use PyTorch on small tensors."""

from collections.abc import Iterator

import pytest
import torch

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: threads that wait for each other only cost time where tests run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
