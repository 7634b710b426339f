"""Whether a board's memory keeps what is written: a look at its lines when a board is opened. It leaves its patterns behind."""

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.host.devices.device import MachineError
from gradloom.host.link.board_device import BoardDevice

__all__ = ["check_memory"]

_TAG_BYTES = 4
_LEAST_BIT = 3
"""The address bit of the first tag: tags do not overlap."""


def check_memory(device: BoardDevice, part: SdramPart, base: int = 0) -> None:
    """Every data line alone high and alone low, then every address line from the fourth on; two round trips.

    Parameters
    ----------
    part : :class:`SdramPart`
        Its geometry names the lines.

    Raises
    ------
    :exc:`~gradloom.host.devices.device.MachineError`
        Names the lines that are wrong.
    """
    _check_data(device, part, base)
    _check_addresses(device, part, base)


def _check_data(device: BoardDevice, part: SdramPart, base: int) -> None:
    size, most = part.word_bytes, (1 << part.word_bits) - 1
    sent = [1 << line for line in range(part.word_bits)]
    sent += [most ^ word for word in sent]
    device.write(base, b"".join(word.to_bytes(size, "little") for word in sent))
    data = device.fetch([], [(base, size * len(sent))])[1][0]
    got = [int.from_bytes(data[place:place + size], "little") for place in range(0, len(data), size)]
    if got == sent:
        return
    # A burst that is taken a cycle late or early shows each word at its neighbour's place.
    moved = max(sum(map(int.__eq__, got[1:], sent)), sum(map(int.__eq__, got, sent[1:])))
    if 2 * moved > len(sent):
        raise MachineError("the board's memory: words come at the place of their neighbours: read data are taken in a wrong cycle "
                           "(capture and phase of the clock)")
    # Where a line's level in all words is that of another line, it ends there.
    levels = [[word >> line & 1 for word in sent] for line in range(part.word_bits)]
    wrong = []
    for line in range(part.word_bits):
        found = [word >> line & 1 for word in got]
        if found == levels[line]:
            continue
        if found in levels:
            wrong.append(f"line {line} reads what was written to line {levels.index(found)}")
        elif len(set(found)) == 1:
            wrong.append(f"line {line} is always {found[0]}")
        else:
            wrong.append(f"line {line} reads something else")
    if len(wrong) == part.word_bits and all(text.endswith("else") for text in wrong):
        raise MachineError("the board's memory: nothing that is read is what was written: the memory does not answer, or read data "
                           "are taken in a wrong cycle (capture and phase of the clock)")
    raise MachineError(f"the board's memory, data: {'; '.join(wrong)}: tracks or pins are exchanged or broken")


def _check_addresses(device: BoardDevice, part: SdramPart, base: int) -> None:
    bits = range(_LEAST_BIT, part.size.bit_length() - 1)
    tags = {0: b"\xa5\x5a\xc3\x00"} | {1 << bit: bytes([bit, 0x5A, 0xC3, bit]) for bit in bits}
    for place in sorted(tags, reverse=True):
        device.write(base + place, tags[place])
    found = dict(zip(tags, device.fetch([], [(base + place, _TAG_BYTES) for place in tags])[1], strict=True))
    places = {tag: place for place, tag in tags.items()}
    wrong = []
    for place, data in found.items():
        if data == tags[place]:
            continue
        name = _name(part, place)
        if data in places and place and not places[data]:
            wrong.append(f"{name} does nothing")
        elif data in places:
            wrong.append(f"{name} is as {_name(part, places[data])}")
        else:
            wrong.append(f"at {name} is something else")
    if wrong:
        raise MachineError(f"the board's memory, addresses: {'; '.join(wrong)}: a track or pin is stuck, or the part is smaller "
                           f"than {part.name}")


def _name(part: SdramPart, place: int) -> str:
    """The address line of a power of two."""
    bit = place.bit_length() - 1 - (part.word_bytes.bit_length() - 1)
    if place == 0:
        return "address 0"
    for kind, count in (("column", part.columns), ("bank", part.banks), ("row", part.rows)):
        width = count.bit_length() - 1
        if bit < width:
            return f"{kind} bit {bit}"
        bit -= width
    return f"address {place:#x}"
