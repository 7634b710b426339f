"""A product of two matrices as a program: blocks of which each memory holds two or more, so that one is loaded meanwhile.

In a product (M, K) x (K, N) the array takes ``rows`` rows of the first matrix, ``lanes`` columns of the second one (of a
stationary output ``columns`` of them) and ``columns`` (or 1) terms of a sum in a step. Words count in these: I words of rows, J of
columns, K of terms. What does not fill a word is padded with zeros. A block is so many words of each; the host lays them out block
by block, as Barista's does (section III-B), so that a transfer is one run.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np

from gradloom.contracts.isa import Opcode, pairs
from gradloom.contracts.matrix_config import SUM_BYTES, MatrixConfig
from gradloom.contracts.matrix_isa import ENCODINGS, MatrixOpcode, Operand
from gradloom.contracts.matrix_timing import gemm_cycles
from gradloom.contracts.pipeline import SEQUENCER_HANDOUT
from gradloom.host.dram.layout import ceil_div
from gradloom.host.files import UserError
from gradloom.host.matrix.commands import Transfer, end, gemm, load, store
from gradloom.host.program.assembler import Instruction
from gradloom.models.matrix.gemm import MOST_TERMS

__all__ = ["LATENCY", "Block", "Layout", "Product", "estimated_cycles", "plan_product"]

_LOADED, _USED, _SUMMED, _STORED = (1 << number for number in range(4))
"""Semaphores: Loader to matrix core and back, matrix core to Storer and back."""
_MOST_BEATS = 0xFFFF
"""Of a run."""
LATENCY = 40
"""Of the memory, for estimates."""
_START, _COMMAND = 60, 7
"""Cycles until the first command is on its way, and from what a command waits for until it begins, *fitted* to RTL."""
_WORDS = {Opcode.LOAD: pairs(ENCODINGS[Opcode.LOAD].words) * 2, Opcode.STORE: pairs(ENCODINGS[Opcode.STORE].words) * 2,
          MatrixOpcode.GEMM: pairs(ENCODINGS[MatrixOpcode.GEMM].words) * 2}
"""Of commands in a program."""
_TRIED, _FEW = 12, 400
"""Plans that are reckoned block by block, and blocks of each at most."""
_MOST_SLOTS = 64
"""As many blocks may be ahead, and a semaphore counts to 255."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Words of a block, from the first one: rows, columns, terms."""

    i: range
    j: range
    k: range

    @property
    def steps(self) -> int:
        """Cycles of the array."""
        return len(self.i) * len(self.j) * len(self.k)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Bytes in DRAM of the operands and of the sums."""

    w: int
    x: int
    p: int
    end: int


@dataclasses.dataclass(frozen=True)
class Product:
    """How a machine computes (M, K) x (K, N).

    Parameters
    ----------
    m, k, n : :class:`int`
        Of the matrices as the machine takes them.
    swapped : :class:`bool`
        It computes the transpose, of the second matrix's transpose and the first one's.
    i, j, terms : :class:`int`
        Words of the largest block.
    """

    config: MatrixConfig
    m: int
    k: int
    n: int
    swapped: bool
    i: int
    j: int
    terms: int

    @property
    def _stays(self) -> bool:
        return self.config.stationary == "output"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and terms of a word."""
        config = self.config
        return config.rows, config.columns if self._stays else config.lanes, 1 if self._stays else config.columns

    @property
    def words(self) -> tuple[int, int, int]:
        """I, J, K."""
        rows, columns, terms = self.sizes
        return ceil_div(self.m, rows), ceil_div(self.n, columns), ceil_div(self.k, terms)

    @property
    def blocks(self) -> list[Block]:
        """In the order in which they are multiplied; all of one result behind each other."""
        return list(self._each_block())

    def _each_block(self) -> Iterator[Block]:
        all_i, all_j, all_k = self.words
        return (Block(i, j, k) for i in _parts(all_i, self.i) for j in _parts(all_j, self.j) for k in _parts(all_k, self.terms))

    @property
    def steps(self) -> int:
        """Cycles in which the array multiplies."""
        i, j, k = self.words
        return i * j * k

    @property
    def _sum_words(self) -> int:
        """Words of P of a word of rows by a word of columns."""
        return self.config.columns if self._stays else 1

    @property
    def _slots(self) -> tuple["_Slots", "_Slots", "_Slots"]:
        """Of W, X and P: where blocks lie on the chip."""
        config = self.config
        return (_Slots.of(config.w_depth, self.i * self.terms, max(1, config.beat_bytes // config.w_bytes)),
                _Slots.of(config.x_depth, self.j * self.terms, max(1, config.beat_bytes // config.x_bytes)),
                _Slots.of(config.p_depth, self.i * self.j * self._sum_words))

    # Memory

    def layout(self, base: int = 0) -> Layout:
        """Operands, sums, and the program behind them."""
        i, j, k = self.words
        config = self.config
        x = base + sum(self._bytes(rows, terms, config.w_bytes) for rows in _parts(i, self.i) for terms in _parts(k, self.terms))
        p = x + sum(self._bytes(columns, terms, config.x_bytes) for columns in _parts(j, self.j) for terms in _parts(k, self.terms))
        return Layout(base, x, p, ceil_div(p + i * j * self._sum_words * self.config.p_bytes, 64) * 64)

    def _bytes(self, words: range, terms: range, size: int) -> int:
        """Of a block of an operand, with words of so many bytes; it has whole beats."""
        beat = self.config.beat_bytes
        return ceil_div(len(words) * len(terms) * size, beat) * beat

    def pack_w(self, a: np.ndarray) -> bytes:
        """The first matrix (M, K), int8, as words [rows][terms], block by block."""
        rows, _, terms = self.sizes
        all_i, _, all_k = self.words
        words = _padded(a, all_i * rows, all_k * terms).reshape(all_i, rows, all_k, terms).transpose(0, 2, 1, 3)
        return self._packed(words, self.i, self.config.w_bytes)

    def pack_x(self, b: np.ndarray) -> bytes:
        """The second matrix (K, N), int8, as words [terms][columns], block by block."""
        _, columns, terms = self.sizes
        _, all_j, all_k = self.words
        words = _padded(b, all_k * terms, all_j * columns).reshape(all_k, terms, all_j, columns).transpose(2, 0, 1, 3)
        return self._packed(words, self.j, self.config.x_bytes)

    def _packed(self, words: np.ndarray, most: int, size: int) -> bytes:
        """Words [row or column][term] of so many bytes, block by block."""
        return b"".join(words[part.start:part.stop, k.start:k.stop].tobytes().ljust(self._bytes(part, k, size), b"\0")
                        for part in _parts(len(words), most) for k in _parts(self.words[2], self.terms))

    def unpack(self, data: bytes) -> np.ndarray:
        """Sums (M, N), int32, of what the program has stored."""
        rows, columns, _ = self.sizes
        all_i, all_j, _ = self.words
        found = np.empty((all_i, rows, all_j, columns), np.int32)
        place = 0
        for i in _parts(all_i, self.i):
            for j in _parts(all_j, self.j):
                count = len(i) * len(j) * rows * columns
                part = np.frombuffer(data, "<i4", count, place).reshape(len(i), len(j), columns, rows)
                found[i.start:i.stop, :, j.start:j.stop] = part.transpose(0, 3, 1, 2)
                place += SUM_BYTES * count
        sums = found.reshape(all_i * rows, all_j * columns)[:self.m, :self.n]
        return np.ascontiguousarray(sums.T if self.swapped else sums)

    # Program

    def instructions(self, layout: Layout) -> list[Instruction]:
        """The program.

        A memory has room for several blocks, in slots that take turns. The Loader fills the slots of a block as soon as the one
        that they held before is multiplied: the n-th block before it, where n is the least that W or X has of slots.
        """
        return [*self._commands(layout), end()]

    def _commands(self, layout: Layout) -> Iterator[Instruction]:
        config = self.config
        w, x, p = self._slots
        w_address = dict(self._addresses(layout.w, self.words[0], self.i, config.w_bytes))
        x_address = dict(self._addresses(layout.x, self.words[1], self.j, config.x_bytes))
        p_address = layout.p
        before: Block | None = None
        for number, block in enumerate(self.blocks):
            loads = []
            if before is None or (before.i, before.k) != (block.i, block.k):
                loads.append((Operand.W, w_address[block.i.start, block.k.start], self._bytes(block.i, block.k, config.w_bytes),
                              w.take() * config.w_bytes))
            if before is None or (before.j, before.k) != (block.j, block.k):
                loads.append((Operand.X, x_address[block.j.start, block.k.start], self._bytes(block.j, block.k, config.x_bytes),
                              x.take() * config.x_bytes))
            for place, (operand, address, size, at) in enumerate(loads):
                yield load(operand, Transfer(address, size // config.beat_bytes), at // config.beat_bytes,
                           wait=_USED if place == 0 and number >= min(w.count, x.count) else 0,
                           signal=_LOADED if place == len(loads) - 1 else 0)
            first, last = block.k.start == 0, block.k.stop == self.words[2]
            if first:
                p.take()
            wait = _LOADED | (_STORED if first and p.taken > p.count else 0)
            yield self._gemm(block, w.word, x.word, p.word, first, last, wait=wait, signal=_USED | (_SUMMED if last else 0))
            if last:
                beats = len(block.i) * len(block.j) * self._sum_words * config.p_bytes // config.beat_bytes
                yield store(Transfer(p_address, beats), p.word * config.p_bytes // config.beat_bytes, wait=_SUMMED, signal=_STORED)
                p_address += beats * config.beat_bytes
            before = block

    def _addresses(self, base: int, count: int, most: int, size: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Of the blocks of an operand in DRAM, by their first words of rows or columns and of terms."""
        for words in _parts(count, most):
            for k in _parts(self.words[2], self.terms):
                yield (words.start, k.start), base
                base += self._bytes(words, k, size)

    def _gemm(self, block: Block, w: int, x: int, p: int, first: bool, last: bool, *, wait: int, signal: int) -> Instruction:
        k = len(block.k)
        common = {"ni": len(block.i), "nj": len(block.j), "nk": k, "w0": w, "wi": k, "wk": 1, "x0": x, "xj": k, "xk": 1}
        if self._stays:
            columns = self.config.columns
            return gemm(wait=wait, signal=signal, keep=int(not first), stay=int(not last), p0=p + columns - 1, pc=0xFFFF, **common)
        return gemm(wait=wait, signal=signal, acc=int(not first), p0=p, pi=len(block.j), pj=1, **common)


@dataclasses.dataclass
class _Slots:
    """Places for blocks in one memory.

    Parameters
    ----------
    size : :class:`int`
        Words of a slot.
    count : :class:`int`
        Slots.
    """

    size: int
    count: int
    taken: int = 0

    @classmethod
    def of(cls, depth: int, block: int, align: int = 1) -> "_Slots":
        """Of blocks of so many words, which begin at multiples of ``align``."""
        size = ceil_div(block, align) * align
        return cls(size, min(depth // size, _MOST_SLOTS))

    def take(self) -> int:
        """First word of the next slot."""
        self.taken += 1
        return self.word

    @property
    def word(self) -> int:
        """Of the slot that was taken last."""
        return (self.taken - 1) % self.count * self.size


def _parts(count: int, size: int) -> list[range]:
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def _padded(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    found = np.zeros((rows, columns), np.int8)
    found[:matrix.shape[0], :matrix.shape[1]] = matrix
    return found


def _halves(most: int) -> list[int]:
    """``most``, and half of it again and again, down to 1."""
    found = [most]
    while found[-1] > 1:
        found.append(ceil_div(found[-1], 2))
    return found


def _candidates(config: MatrixConfig, m: int, k: int, n: int, *, swapped: bool) -> Iterator[Product]:
    """Products by blocks of which every memory holds two; of one word where it has a single one."""
    whole = Product(config, m, k, n, swapped, 1, 1, 1)
    all_i, all_j, all_k = whole.words
    w, x, p = (max(1, depth // 2) for depth in (config.w_depth, config.x_depth, config.p_depth))
    for terms in _halves(min(all_k, w, x, _MOST_BEATS * config.beat_bytes // max(config.w_bytes, config.x_bytes))):
        if config.stationary == "output":
            yield dataclasses.replace(whole, terms=terms)
            continue
        for i in _halves(min(all_i, w // terms, p)):
            j = min(all_j, x // terms, p // i)
            beats = max(i * terms * config.w_bytes, j * terms * config.x_bytes, i * j * config.p_bytes) // config.beat_bytes
            if beats <= _MOST_BEATS:
                yield dataclasses.replace(whole, i=i, j=j, terms=terms)


def estimated_cycles(product: Product, latency: int = LATENCY, *, first: int | None = None) -> int:
    """From start to end, *estimated*: what the commands wait for, block by block, beside a memory with a beat each way a cycle.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a read's address to its first beat, and from a write to its answer.
    first : :class:`int`, optional
        Of the first blocks alone.
    """
    config = product.config
    w, x, p = product._slots
    ahead, behind = min(w.count, x.count), p.count
    used: list[int] = []
    stored: list[int] = []
    issued = handed = read = taken = multiplied = written = latency + _START
    before: Block | None = None
    for number, block in enumerate(itertools.islice(product._each_block(), first)):
        loads = []
        if before is None or (before.i, before.k) != (block.i, block.k):
            loads.append((product._bytes(block.i, block.k, config.w_bytes), config.w_bytes))
        if before is None or (before.j, before.k) != (block.j, block.k):
            loads.append((product._bytes(block.j, block.k, config.x_bytes), config.x_bytes))
        begun, last = block.k.start == 0, block.k.stop == product.words[2]
        # The Sequencer hands out a pair of words a cycle, and takes some for each command.
        words = len(loads) * _WORDS[Opcode.LOAD] + _WORDS[MatrixOpcode.GEMM] + last * _WORDS[Opcode.STORE]
        handed += words // 2 + (len(loads) + 1 + last) * (SEQUENCER_HANDOUT + 1)
        issued = max(issued, handed)
        if number >= ahead:
            issued = max(issued, used[number - ahead] + _COMMAND)
        for size, word in loads:
            # A beat of several words takes a cycle for each.
            read = max(read, issued + latency + _COMMAND) + size // min(config.beat_bytes, word)
        # The commands' own words come through the same port, in cycles that the loads leave if they leave some.
        taken += sum(size // min(config.beat_bytes, word) for size, word in loads) + 4 * words // config.beat_bytes
        read = max(read, taken)
        free = stored[len(stored) - behind] if begun and len(stored) >= behind else 0
        begins = max(multiplied + 1, read + _COMMAND, free)
        multiplied = begins + gemm_cycles(config, len(block.i), len(block.j), len(block.k),
                                          stay=config.stationary == "output" and not last)
        used.append(multiplied)
        if last:
            beats = len(block.i) * len(block.j) * product._sum_words * config.p_bytes // config.beat_bytes
            written = max(written, multiplied + _COMMAND) + beats
            stored.append(written + latency)
        before = block
    return written + latency + _COMMAND


def _time(product: Product) -> int:
    """A quick reckoning of cycles, to choose by: the longer one of multiplication and transfers; first load and last store."""
    config = product.config
    i, j, k = product.words
    blocks_i, blocks_j, blocks_k = ceil_div(i, product.i), ceil_div(j, product.j), ceil_div(k, product.terms)
    # With all terms in a block the weights stay for all columns, and with all columns in one, too, those stay for all rows.
    w_loads = 1 if blocks_k == 1 else blocks_j
    x_loads = 1 if blocks_j * blocks_k == 1 else blocks_i
    wide, tall = min(config.beat_bytes, config.w_bytes), min(config.beat_bytes, config.x_bytes)
    loads = i * k * config.w_bytes * w_loads // wide + j * k * config.x_bytes * x_loads // tall
    stores = i * j * product._sum_words * config.p_bytes
    whole = gemm_cycles(config, product.i, product.j, product.terms)
    stays = gemm_cycles(config, product.i, product.j, product.terms, stay=True)
    cycles = blocks_i * blocks_j * (whole + (blocks_k - 1) * stays)
    program = 4 * (blocks_i * blocks_j * blocks_k * (2 * _WORDS[Opcode.LOAD] + _WORDS[MatrixOpcode.GEMM])
                   + blocks_i * blocks_j * _WORDS[Opcode.STORE])
    alone = (product.i * product.terms * config.w_bytes + product.j * product.terms * config.x_bytes
             + product.i * product.j * product._sum_words * config.p_bytes)
    return max(cycles, loads + program // config.beat_bytes, stores // config.beat_bytes) + alone // config.beat_bytes


def plan_product(config: MatrixConfig, m: int, k: int, n: int) -> Product:
    """The program's shape of (M, K) x (K, N): of the two ways, and of blocks of all kinds, what is reckoned to be fastest.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If a size is not positive, 32 bits may not hold the sums, or the memories hold no block.
    """
    for name, value in (("M", m), ("K", k), ("N", n)):
        if value < 1:
            raise UserError(f"a product needs at least one row, column and term: {name} is {value}")
    if k > MOST_TERMS:
        raise UserError(f"sums of {k:,} terms do not fit in 32 bits: at most {MOST_TERMS:,} do")
    return _planned(config, m, k, n)


@functools.cache
def _planned(config: MatrixConfig, m: int, k: int, n: int) -> Product:
    both = (*_candidates(config, m, k, n, swapped=False), *_candidates(config, n, k, m, swapped=True))
    # A slot has whole beats, and of a stationary output as many words as the array has columns.
    fitting = [product for product in both if all(slots.count for slots in product._slots)]
    if not fitting:
        raise UserError(f"no block of a product fits {config.name}: w_depth, x_depth or p_depth ({config.w_depth}, "
                        f"{config.x_depth}, {config.p_depth}) is too small: raise it")
    found = sorted(fitting, key=_time)[:_TRIED]

    def whole(product: Product) -> float:
        """Cycles, of many blocks as their first ones say."""
        sizes = product.i, product.j, product.terms
        of_each = [ceil_div(words, size) for words, size in zip(product.words, sizes, strict=True)]
        # Several results, each whole.
        first = ceil_div(max(_FEW, 4 * of_each[2]), of_each[2]) * of_each[2]
        return estimated_cycles(product, first=first) * max(1.0, math.prod(of_each) / first)

    return min(found, key=whole)
