"""What a step has to do, from the network's geometry and the program alone: useful MACs, windows, DRAM bytes by purpose."""

import dataclasses

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Engine, Opcode, Source
from gradloom.host.dram.layout import ceil_div
from gradloom.host.program.assembler import Instruction
from gradloom.models.network import Conv, FullyConnected, Network

__all__ = ["PHASES", "PURPOSES", "Macs", "dram_bytes", "layer_phase", "phase_macs", "purpose", "rows", "windows"]

PHASES = ("FP", "BP", "norm BP", "WG + WU", "scales")
"""Phases by the low bits of a command's tag (8 * layer + phase)."""
PURPOSES = ("RdAct", "RdWt", "WrOut", "RdFRN", "WrFRN", "RdWU", "WrWU")
"""DRAM traffic as in figures 11 to 13 of the ETA paper: inputs, weights, outputs, what normalisation reads and writes beside
them (parameters, xhat, thresholds' bits, reciprocals, errors), and old and new weights and velocities of the update."""
_FP, _BP, _NORM, _WG = range(4)


@dataclasses.dataclass(frozen=True)
class Macs:
    """Multiply-accumulates of a phase: ``useful`` ones, and ``inserted`` ones with a zero operand that stride 2 would insert."""

    useful: int
    inserted: int


def phase_macs(network: Network, layer: str, phase: str, batch: int) -> Macs:
    """MACs of one phase of one layer for a batch.

    Useful are M C Ky Kx Yo Xo an image in each of FP, BP and WG: multiplications with spatial padding count, with padding
    channels, with the padding of folded kernels and with inserted zeros do not. The first layer has no BP.

    With stride 2, BP by inserted zeros convolves an error map of the input's size, and WG slides over one: M C Ky Kx Yi Xi each
    (the ETA paper, section IV-B1, patterns 5 and 6). ``inserted`` is what this adds; no machine of ours computes it.
    """
    found = network.layer(layer)
    if not isinstance(found, Conv | FullyConnected) or phase not in ("FP", "BP", "WG + WU"):
        return Macs(0, 0)
    if phase == "BP" and not network.needs_error(found.input):
        return Macs(0, 0)
    geometry = network.geometry(layer)
    (c, yi, xi), (m, yo, xo) = geometry.in_shape, geometry.out_shape
    kernel = batch * m * c * geometry.kernel[0] * geometry.kernel[1]
    strided = geometry.stride == 2 and phase != "FP" and geometry.kernel != (1, 1)
    return Macs(kernel * yo * xo, kernel * max(0, yi * xi - yo * xo) if strided else 0)


def rows(instruction: Instruction, config: Config) -> tuple[int, int]:
    """Rows that a WPU walks in a CONV command, in all its steps and laps: its own, and its parts of those that WPUs share."""
    times = instruction["steps"] * (instruction["lap_end"] - instruction["lap"] + 1)
    if not instruction["shared"]:
        return times * ceil_div(instruction["units"], config.wpus), 0
    own, shared = divmod(instruction["units"], config.wpus)
    return times * own, times * shared


def windows(instruction: Instruction, config: Config) -> int:
    """Cycles in which the array works in a CONV command; in each, all MACs can take an operand."""
    if instruction.opcode != Opcode.CONV:
        return 0
    own, shared = rows(instruction, config)
    return own * instruction["cols"] + shared * instruction["scols"]


def dram_bytes(instruction: Instruction, config: Config) -> int:
    """Bytes that a LOAD or STORE moves."""
    if not _moves(instruction):
        return 0
    return instruction["n0"] * instruction["n1"] * instruction["n2"] * config.beat_bytes


def _moves(instruction: Instruction) -> bool:
    return instruction.engine in (Engine.LOAD, Engine.STORE)


def purpose(instruction: Instruction) -> str | None:
    """One of :data:`PURPOSES`; ``None`` for a command that moves nothing."""
    phase = instruction.tag & 7
    if instruction.engine == Engine.LOAD:
        dest = instruction["dest"]
        if dest == Dest.WBUF:
            return "RdWt"
        if dest in (Dest.IBUF, Dest.EBUF, Dest.LABEL):
            return "RdAct"
        if phase == _WG:
            return "RdWU"
        if phase == _NORM or dest in (Dest.PBUF, Dest.AM):
            return "RdFRN"
        return "RdAct"
    if instruction.engine != Engine.STORE:
        return None
    if phase == _WG:
        return "WrWU"
    if phase in (_FP, _BP) and instruction["src"] in (Source.OA, Source.LOGIT):
        return "WrOut"
    return "WrFRN"


def layer_phase(network: Network, tag: int) -> tuple[str, str]:
    """Layer and phase of a tag; ("", "scales") for what belongs to the step as a whole."""
    layer, phase = divmod(tag, 8)
    if not 1 <= layer <= len(network.layers) or phase >= _WG + 1:
        return "", PHASES[-1]
    return network.layers[layer - 1].name, PHASES[phase]
