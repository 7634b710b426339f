"""A foreign network's operations to gradloom's layers: convolution, norm, addition and activation become one layer."""

import dataclasses
import re
from collections.abc import Iterable

import numpy as np

from gradloom.host.frontends.import_graph import Graph, Node, Op, refuse
from gradloom.models.layers import INPUT, Conv, FullyConnected, Layer, MaxPool, type_name

__all__ = ["Fused", "fuse"]

_WEIGHTED = (Op.CONV, Op.LINEAR)


@dataclasses.dataclass
class _Draft:
    """A layer in the making. ``source`` and ``residual`` are ``None`` for the network's input and for no residual.

    ``last`` is the outermost of the operations that it takes in, ``depth`` counts the convolutions on the longest way
    from the network's input.
    """

    node: Node
    number: int
    source: "_Draft | None"
    last: str
    depth: int
    norm: Node | None = None
    added: Node | None = None
    residual: "_Draft | None" = None
    act: Node | None = None
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Fused:
    """Layers in network order and where their parameters are.

    Parameters
    ----------
    nodes : tuple of :class:`~gradloom.host.frontends.import_graph.Node`
        The one that each layer began with.
    parameters : dict
        By (layer, "w" | "gamma" | "beta" | "tau"): the parameter's own name and float64 value.
    norms : dict
        Names of the nodes that normalise, and of the node that applies each one's threshold (``None``: none does).
    dropped : tuple of :class:`str`
        Convolutions whose bias falls away because a norm follows.
    """

    layers: tuple[Layer, ...]
    nodes: tuple[Node, ...]
    parameters: dict[tuple[str, str], tuple[str, np.ndarray]]
    norms: dict[str, str | None]
    dropped: tuple[str, ...]


def fuse(graph: Graph) -> Fused:
    """Make layers of a graph.

    Raises
    ------
    :exc:`UserError`
        If an operation stands where the machine has none; the message names it, the reason and the nearest alternative.
    """
    return _Fuser(graph).run()


class _Fuser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.same = {node.name: node.inputs[0] for node in graph.nodes if node.op == Op.SAME}
        self.nodes = {node.name: node for node in graph.nodes}
        self.drafts: dict[str, _Draft] = {}
        """By the name of every node that has become part of the draft."""
        self.readers: dict[str, int] = {}
        for name in (graph.output, *(name for node in graph.nodes if node.op != Op.SAME for name in node.inputs)):
            name = self._resolve(name)
            self.readers[name] = self.readers.get(name, 0) + 1

    def run(self) -> Fused:
        for node in self.graph.nodes:
            if node.op == Op.NORM:
                self._norm(node)
            elif node.op in (Op.RELU, Op.TLU):
                self._activation(node)
            elif node.op == Op.ADD:
                self._add(node)
            elif node.op != Op.SAME:
                source = self.drafts.get(self._resolve(node.inputs[0]))
                depth = (source.depth if source is not None else 0) + (node.op == Op.CONV)
                self.drafts[node.name] = _Draft(node, len(self.drafts), source, node.name, depth)
        self._check_output()
        drafts = self._ordered({id(draft): draft for draft in self.drafts.values()}.values())
        for draft in drafts:
            self._check(draft)
        _name(drafts)
        return Fused(
            tuple(_layer(draft) for draft in drafts),
            tuple(draft.node for draft in drafts),
            {key: value for draft in drafts for key, value in _parameters(draft).items()},
            {draft.norm.name: draft.act.name if draft.act else None for draft in drafts if draft.norm is not None},
            tuple(draft.node.where for draft in drafts if draft.norm is not None and "bias" in draft.node.arrays),
        )

    def _resolve(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def _alone(self, name: str) -> _Draft | None:
        """The draft whose outermost operation is ``name``, if nothing else reads that."""
        name = self._resolve(name)
        draft = self.drafts.get(name)
        return draft if draft is not None and draft.last == name and self.readers[name] == 1 else None

    def _where(self, name: str) -> str:
        name = self._resolve(name)
        return "the network's input" if name == self.graph.input else self.nodes[name].where

    def _norm(self, node: Node) -> None:
        draft = self._alone(node.inputs[0])
        if draft is None or draft.node.op != Op.CONV or draft.last != draft.node.name:
            raise refuse(
                node.where,
                "a norm must directly follow a convolution whose output nothing else reads, here it follows "
                f"{self._where(node.inputs[0])}",
                "put it behind its Conv2d",
            )
        draft.norm, draft.last = node, node.name
        self.drafts[node.name] = draft

    def _activation(self, node: Node) -> None:
        target = draft = self._alone(node.inputs[0])
        if draft is not None and draft.node.op is MaxPool:
            # A maximum pool and a threshold commute: both are monotone, and padding never wins.
            target = self._alone(draft.node.inputs[0])
        if (
            draft is None
            or target is None
            or target.node.op not in _WEIGHTED
            or target.act is not None
            or (node.op == Op.TLU and target.norm is None)
        ):
            raise refuse(
                node.where,
                "an activation must follow a convolution, a linear layer, their norm or sum, or a max pool of these, "
                f"whose output nothing else reads, here it follows {self._where(node.inputs[0])}",
                "put it there, or remove it",
            )
        target.act = node
        draft.last = node.name
        self.drafts[node.name] = draft

    def _add(self, node: Node) -> None:
        names = [self._resolve(name) for name in node.inputs]
        sides = [self.drafts.get(name) for name in names]
        found = [
            draft
            for draft in (self._alone(name) for name in names)
            if draft is not None and draft.norm is not None and draft.act is None and draft.added is None
        ]
        if not found or names[0] == names[1] or any(side is not None and side.last != name
                                                    for side, name in zip(sides, names, strict=True)):
            raise refuse(
                node.where,
                "one side of a sum must be a Conv2d followed by BatchNorm2d that nothing else reads, here the sides are "
                f"{self._where(names[0])} and {self._where(names[1])}",
                "put a BatchNorm2d before the addition",
            )
        main = max(found, key=lambda draft: draft.depth)
        other = sides[1] if sides[0] is main else sides[0]
        if other is None:
            raise refuse(
                node.where,
                "the network's input is added, the machine adds outputs of layers",
                "put a convolution with BatchNorm2d before it, as ResNets do",
            )
        if other.node.op in _WEIGHTED and other.norm is None and other.act is None:
            raise refuse(
                node.where,
                f"a convolution that is added must be normalised, {other.node.where} is not",
                "put a BatchNorm2d behind it",
            )
        main.added, main.residual, main.last = node, other, node.name
        main.depth = max(main.depth, other.depth)
        self.drafts[node.name] = main

    def _check(self, draft: _Draft) -> None:
        node = draft.node
        if draft.added is not None and draft.act is None:
            raise refuse(
                draft.added.where,
                "a sum must be followed by a ReLU that alone reads it, the machine adds before the threshold",
                "put the ReLU behind the addition, as ResNet's BasicBlock does",
            )
        if node.op in _WEIGHTED and draft.norm is None and "bias" not in node.arrays:
            raise refuse(
                node.where,
                "a layer without a norm trains a bias, and this one has none",
                "set bias=True" + (", or put a BatchNorm2d behind it" if node.op == Op.CONV else ""),
            )

    def _check_output(self) -> None:
        draft = self._alone(self.graph.output)
        if draft is None or draft.last != draft.node.name or draft.node.op != Op.LINEAR:
            raise refuse(
                self._where(self.graph.output),
                "the network's output must be the logits of a Linear layer that nothing else reads",
                "end the network with a Linear layer and leave softmax to the loss",
            )

    def _ordered(self, drafts: Iterable[_Draft]) -> list[_Draft]:
        """The given order if every layer follows what it reads. Else a shortcut comes as late as may be, so that the main branch is
        its source's first reader."""
        waiting = sorted(drafts, key=lambda draft: draft.number)
        if all(read is None or read.number < draft.number for draft in waiting for read in (draft.source, draft.residual)):
            return waiting
        shortcuts = {id(draft.residual) for draft in waiting if draft.residual is not None}
        placed: dict[int, _Draft] = {}
        while waiting:
            ready = [
                draft
                for draft in waiting
                if all(read is None or id(read) in placed for read in (draft.source, draft.residual))
            ]
            chosen = min(ready, key=lambda draft: (id(draft) in shortcuts, draft.number))
            placed[id(chosen)] = chosen
            waiting.remove(chosen)
        return list(placed.values())


def _name(drafts: list[_Draft]) -> None:
    taken = {INPUT}
    for draft in drafts:
        op = draft.node.op
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", draft.node.layer).lstrip(".-") or (op if isinstance(op, str) else type_name(op))
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        draft.name = name


def _layer(draft: _Draft) -> Layer:
    op, settings = draft.node.op, draft.node.settings
    source = INPUT if draft.source is None else draft.source.name
    if op == Op.CONV:
        norm = "none" if draft.norm is None else "frn"
        act = "none" if draft.act is None else "relu" if draft.norm is None else "tlu"
        residual = None if draft.residual is None else draft.residual.name
        return Conv(name=draft.name, input=source, norm=norm, act=act, residual=residual, **settings)
    if op == Op.LINEAR:
        return FullyConnected(name=draft.name, input=source, act="none" if draft.act is None else "relu", **settings)
    assert not isinstance(op, str)
    return op(name=draft.name, input=source, **settings)


def _parameters(draft: _Draft) -> dict[tuple[str, str], tuple[str, np.ndarray]]:
    arrays = draft.node.arrays
    if draft.node.op not in _WEIGHTED:
        return {}
    found = {(draft.name, "w"): arrays["w"]}
    if draft.norm is None:
        found[draft.name, "beta"] = arrays["bias"]
        return found
    for key in ("gamma", "beta"):
        found[draft.name, key] = draft.norm.arrays[key]
    if draft.act is not None:
        zeros = ("", np.zeros(len(arrays["w"][1])))
        own, value = draft.act.arrays.get("tau", draft.norm.arrays.get("tau", zeros))
        found[draft.name, "tau"] = (own or f"{draft.norm.arrays['gamma'][0].rpartition('.')[0]}.tau", value)
    return found
