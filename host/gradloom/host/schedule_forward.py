"""Forward pass: convolution, normalisation and activation by tiles; pools; logits and loss gradient."""

from gradloom.host import schedule_shortcut
from gradloom.host.convolution import Convolution
from gradloom.host.layout import even
from gradloom.host.pacing import Lane, Piece, Work
from gradloom.host.schedule_rounding import plane_rounding, xhat_rounding
from gradloom.host.tiling import Builder, Plane, image_groups, shape_of, shifts
from gradloom.host.tokens import Access
from gradloom.host.windows import forward_sweep
from gradloom.models.arith import reciprocal
from gradloom.models.network import INPUT, Conv, FullyConnected, Layer, MaxPool, Subsample
from gradloom.rtl.isa import Dest, Kind, Opcode, Source, XSource

__all__ = ["forward", "forward_program", "forward_zero"]

Range = tuple[int, int]


def forward_program(layer: Conv | FullyConnected, *, last: bool) -> str:
    """Microprogram of a layer's forward pass."""
    if last:
        return "LOGITS"
    if layer.norm == "frn":
        if layer.act == "none":
            return "FRN_FWD_LIN"
        return "FRN_FWD_RES" if layer.residual else "FRN_FWD"
    return "RELU_FWD" if layer.act == "relu" else "LIN_FWD"


def forward_zero(builder: Builder, layer: Layer) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Exponent of z at which the converter's shift is 0: constant, tensors added, tensors subtracted."""
    source = builder.tid(layer.input, Kind.Z)
    if isinstance(layer, Conv | FullyConnected):
        return (-20, (), ()) if layer.norm == "frn" else (0, (builder.tid(layer.name, Kind.W), source), ())
    if isinstance(layer, MaxPool):
        return 0, (source,), ()
    return -15 - reciprocal(builder.network.geometry(layer.name).kernel[0] ** 2)[1], (source,), ()


def forward(builder: Builder, layer: Layer, *, dry: bool = False) -> list[Work]:
    """All commands of one layer's forward pass; ``dry`` only gathers the statistics of z."""
    if isinstance(layer, Conv | FullyConnected):
        works = _conv(builder, layer, dry)
    elif isinstance(layer, Subsample):
        works = [schedule_shortcut.forward(builder, layer)]
    else:
        works = [_pool(builder, layer, dry)]
    return [builder.tagged(8 * builder.network.index(layer.name), work) for work in works]


def _conv(builder: Builder, layer: Conv | FullyConnected, dry: bool) -> list[Work]:
    network, config, name = builder.network, builder.config, layer.name
    _, y, x = network.shape(name)
    plane, last = Plane(y, x), name == network.logits.name
    shape = shape_of(network, layer, config)
    sweep = forward_sweep(shape, config)
    work = Convolution(
        builder, name, shape, sweep, builder.memory[layer.input, "z"], shape.mg, transpose=False
    )
    entries = "one image takes {} entries of the logit buffer"
    also = ((entries, "max_classes", shape.mg, builder.ring["LOGIT"].size),) if last else ()
    limit = builder.planes_at_once(name, plane)
    logits = 0

    def emit(images: Range, tile: list[int], inputs: int | None) -> None:
        nonlocal logits
        if last and tile[0] == 0:
            logits = builder.ring["LOGIT"].take((images[1] - images[0]) * shape.mg)
        parts = image_groups(images, limit)
        # What the A-Core needs first is loaded before the array's own operands can hold it up.
        sides = _load_sides(builder, layer, parts[0], tile[0])
        half = work.compute(images, tile, inputs, norms=layer.norm == "frn" and not last)
        for tap, m in enumerate(tile):
            for part in parts:
                if tap or part != parts[0]:
                    sides = _load_sides(builder, layer, part, m, sides[0] if part != parts[0] else None)
                slot = part[0] - images[0]
                fields = {
                    "planes": part[1] - part[0],
                    "dry": int(dry),
                    **plane.fields(),
                    **work.psum_fields(half, tap, slot),
                }
                if isinstance(layer, FullyConnected) and last:
                    first = logits + slot * shape.mg
                    _logits(builder, layer, part, m, fields, sides[0], first, shape.mg)
                else:
                    _activate(builder, layer, part, m, fields, sides, plane, dry)
            builder.pool["PARAMETERS"].give_back(sides[0])
        if last and tile == work.tiles()[-1]:
            errors = ("the errors of one image take {} beats of an output buffer", "abuf_depth", shape.mg, config.abuf_depth)
            for part in image_groups(images, builder.planes_at_once(name, plane, also=(errors,))):
                _loss(builder, part, logits + (part[0] - images[0]) * shape.mg, shape.mg)

    gives = ("error" if builder.training else "logits") if last else "z"
    return work.works(
        work.image_tiles(also),
        lambda images: tuple(builder.part(source, "z", images) for source in (layer.input, layer.residual) if source),
        lambda images: (builder.part(name, gives, images),),
        emit,
        plane.nb,
    )


def _load_sides(
    builder: Builder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    parameters: int | None = None,
) -> tuple[int, int]:
    """Parameters (unless loaded before) and the residual's planes of one output group. Returns their first addresses."""
    start = builder.load_parameters(layer.name, group) if parameters is None else parameters
    residual = 0
    if layer.residual:
        residual = builder.load_planes(Dest.AA, builder.memory[layer.residual, "z"], images, group)
    return start, residual


def _activate(
    builder: Builder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    fields: dict[str, int],
    sides: tuple[int, int],
    plane: Plane,
    dry: bool,
) -> None:
    """Normalisation and activation of one output group, and its stores."""
    name, count = layer.name, images[1] - images[0]
    parameters, residual = sides
    beats, frn = count * plane.nb, layer.norm == "frn"
    program = forward_program(layer, last=False)
    z, w, source = builder.tid(name, Kind.Z), builder.tid(name, Kind.W), builder.tid(layer.input, Kind.Z)
    oa = builder.ring["OA"].take(beats)
    writes = [("OA", oa, beats)]
    fields |= {"oa0": oa, "pb0": parameters}
    fields |= plane_rounding(builder, name, Kind.Z, builder.network.shape(name), images, group)
    reads = [(f"PSUM{fields['half']}", 0, 1), ("PBUF", parameters, 6)]
    bits = ob = lam = 0
    if program != "LIN_FWD":
        bits = builder.ring["OM"].take(count * plane.bits)
        writes.append(("OM", bits, count * plane.bits))
        fields["om0"] = bits
    if frn:
        ob, lam = builder.ring["OB"].take(beats), builder.ring["PBUF"].take(count)
        writes += [("OB", ob, beats), ("PBUF", lam, count)]
        fields |= {"ob0": ob, "pl0": lam, **xhat_rounding(builder, name, images, group)}
        tail = {"SH0": (-12, (), (w, source)), "SH1": (20, (z,), ())}
        if layer.residual:
            tail["SH2"] = (20, (builder.network.z_tid(layer.residual),), ())
            fields["sa0"] = residual
            reads.append(("AA", residual, beats))
    else:
        tail = {"SH0": (-24, (), (w, source)), "SH1": (0, (z,), (w, source))}
    builder.run(program, fields, shifts(**tail), reads=reads, writes=writes)
    if dry:
        return
    builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa)
    if not builder.training:
        return
    if frn:
        builder.store_planes(Source.OB, builder.memory[name, "xhat"], images, group, ob)
        builder.store_planes(Source.PBUF, builder.memory[name, "reciprocals"], images, group, lam)
    if layer.act in ("tlu", "relu"):
        builder.store_planes(Source.OM, builder.memory[name, "bit"], images, group, bits)


def _logits(
    builder: Builder,
    layer: FullyConnected,
    images: tuple[int, int],
    group: int,
    fields: dict[str, int],
    parameters: int,
    first: int,
    groups: int,
) -> None:
    w, source = builder.tid(layer.name, Kind.W), builder.tid(layer.input, Kind.Z)
    count = images[1] - images[0]
    fields |= {"pb0": parameters, "ob0": first + group, "om0": groups}
    builder.run(
        "LOGITS",
        fields,
        shifts(SH0=(-24, (), (w, source)), SH1=(8, (w, source), ())),
        reads=[(f"PSUM{fields['half']}", 0, 1), ("PBUF", parameters, 6)],
        writes=[("LOGIT", first, count * groups)],
    )


def _loss(builder: Builder, images: tuple[int, int], logits: int, groups: int) -> None:
    """Store the logits of these images; when training, their loss gradient too."""
    network, config = builder.network, builder.config
    name, (low, high) = network.logits.name, images
    count = high - low
    entries, every = count * groups, (0, groups)
    region = builder.memory[name, "logits"]
    builder.store(
        Source.LOGIT, region, [(images, every)], region.at(low), n0=2 * entries, addr=logits, length=entries
    )
    if not builder.training:
        return
    labels, error = builder.memory[INPUT, "labels"], builder.memory[name, "error"]
    builder.load(Dest.LABEL, labels, [(images, (0, 1))], labels.at(low), n0=count, addr=0, length=count)
    oa = builder.ring["OA"].take(entries)
    builder.recorder.emit(
        Opcode.SOFTMAX,
        {
            "images": count,
            "classes": network.classes,
            "squared": int(network.loss == "squared"),
            "logit0": logits,
            "oa0": oa,
        },
        reads=[Access("LOGIT", ((logits, logits + entries),)), Access("LABEL", ((0, count),))],
        writes=[Access("OA", ((oa, oa + entries),))],
    )
    builder.store(
        Source.OA,
        error,
        [(images, every)],
        error.at(low),
        n0=entries * error.unit // config.beat_bytes,
        addr=oa,
        length=entries,
    )


def _pool(builder: Builder, layer: Layer, dry: bool) -> Work:
    network, name = builder.network, layer.name
    geometry = network.geometry(name)
    (_, yi, xi), (channels, yo, xo) = geometry.in_shape, geometry.out_shape
    big, small = Plane(yi, xi), Plane(yo, xo)
    z, source = builder.tid(name, Kind.Z), builder.tid(layer.input, Kind.Z)
    maximum = isinstance(layer, MaxPool)
    inv, k = reciprocal(geometry.kernel[0] ** 2)
    constant = 0 if maximum else 15 + k
    limit = builder.planes_at_once(
        name,
        big,
        bits=False,
        also=(
            (
                "one plane takes {} beats of the A-Core's output buffers",
                "abuf_depth",
                small.nb,
                builder.config.abuf_depth,
            ),
        ),
    )
    groups = builder.groups(channels)
    taps = even(xo) * yo * geometry.kernel[0] ** 2
    for images in builder.ranges(builder.images, limit, groups * taps):
        count = images[1] - images[0]
        parts = (builder.part(layer.input, "z", images),), (builder.part(name, "z", images),)
        yield Piece(Lane.ACORE, count * groups * taps, *parts)
        for group in range(builder.groups(channels)):
            aa = builder.load_planes(Dest.AA, builder.memory[layer.input, "z"], images, group)
            oa = builder.ring["OA"].take(count * small.nb)
            ob = builder.ring["OB"].take(count * small.nb) if maximum else 0
            fields = {
                "planes": count,
                "dry": int(dry),
                **small.fields(),
                "xsrc": int(XSource.NONE),
                "sa0": aa,
                "oa0": oa,
                "ob0": ob,
                "inv": inv,
                **plane_rounding(builder, name, Kind.Z, network.shape(name), images, group),
                "pool": 1,
                "pmax": int(maximum),
                "pkern": geometry.kernel[0],
                "pstride": geometry.stride,
                "ppad": geometry.pad,
                "pyi": yi,
                "pxi": xi,
            }
            builder.run(
                "MAXPOOL_FWD" if maximum else "AVGPOOL_FWD",
                fields,
                shifts(SH1=(constant, (z,), (source,))),
                reads=[("AA", aa, count * big.nb)],
                writes=[("OA", oa, count * small.nb), ("OB", ob, count * small.nb if maximum else 0)],
            )
            if dry:
                continue
            builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa)
            if maximum and builder.training:
                builder.store_planes(Source.OB, builder.memory[name, "index"], images, group, ob)
