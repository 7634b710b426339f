"""What the products of a model have cost: a line for each layer and stage."""

import dataclasses

__all__ = ["Ledger", "Line"]

STAGES = ("FP", "BP", "WG")
"""Forward, error of the input, weight gradient."""


@dataclasses.dataclass
class Line:
    """The products of one stage of a layer, on one device or on the CPU.

    Parameters
    ----------
    stage : "FP", "BP" or "WG"
    place : "device" or "cpu"
    calls : products
    m, n, k : of the latest one: (M, K) x (K, N)
    macs : multiplications and additions of all
    bytes : of codes that went to the device and of sums that came back
    seconds : of the device, or of PyTorch
    cycles : of a device that is, or simulates, hardware
    """

    layer: str
    stage: str
    place: str
    calls: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    macs: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cycles: int = 0


class Ledger:
    """All lines of a model, in the order in which they began."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, str], Line] = {}

    def add(self, layer: str, stage: str, place: str, size: tuple[int, int, int], seconds: float, cycles: int = 0) -> None:
        """One more product."""
        line = self._lines.setdefault((layer, stage, place), Line(layer, stage, place))
        line.m, line.n, line.k = m, n, k = size
        line.calls += 1
        line.macs += m * n * k
        line.bytes += m * k + k * n + 4 * m * n if place == "device" else 0
        line.seconds += seconds
        line.cycles += cycles

    @property
    def lines(self) -> list[Line]:
        """Copies of the lines."""
        return [dataclasses.replace(line) for line in self._lines.values()]

    def table(self) -> str:
        """For people: a row for each line, and their sums."""
        lines = self._lines.values()
        head = ["layer", "stage", "place", "calls", "m x n x k of the last", "MACs", "bytes", "ms"]
        rows = [[line.layer, line.stage, line.place, f"{line.calls:,}", f"{line.m:,} x {line.n:,} x {line.k:,}", f"{line.macs:,}",
                 f"{line.bytes:,}", f"{1e3 * line.seconds:.1f}"] for line in lines]
        total = ["all", "", "", f"{sum(line.calls for line in lines):,}", "", f"{sum(line.macs for line in lines):,}",
                 f"{sum(line.bytes for line in lines):,}", f"{1e3 * sum(line.seconds for line in lines):.1f}"]
        if any(line.cycles for line in lines):
            for row, cell in zip((head, *rows, total), ("cycles", *(f"{line.cycles:,}" for line in lines),
                                                        f"{sum(line.cycles for line in lines):,}"), strict=True):
                row.append(cell)
        widths = [max(len(row[column]) for row in (head, *rows, total)) for column in range(len(head))]
        return "\n".join("  ".join(cell.ljust(width) if column < 3 else cell.rjust(width)
                                   for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
                         for row in (head, *rows, total))
