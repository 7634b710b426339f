"""How often Python looks for garbage."""

import gc

__all__ = ["search_seldom"]


def search_seldom() -> None:
    """Machines and benches are millions of objects of which few are garbage that only a search finds: search less often."""
    gc.set_threshold(100_000, 20, 100)
