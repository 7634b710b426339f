"""The register map in SystemRDL, read back by systemrdl-compiler and compared with the map, register by register."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import ERROR_DOCS, REGISTERS, Access, Bits, Effect, ErrorCode, register
from gradloom.contracts.regmap_systemrdl import WHOLE, to_systemrdl

systemrdl = pytest.importorskip("systemrdl", reason="needs systemrdl-compiler: pip install -e '.[test]'")

# Software's and hardware's access, and what a write does, in the words of SystemRDL 2.0 (sections 9.4 to 9.6 of the standard).
ACCESS = {
    Effect.HELD: ("rw", "r", None, False),
    Effect.SHARED: ("rw", "rw", None, False),
    Effect.COMMAND: ("rw", "r", None, True),
    Effect.CLEARS_ONES: ("rw", "w", "woclr", False),
    Effect.CLEARS_ALL: ("rw", "rw", "wclr", False),
    Effect.IGNORED: ("r", "w", None, False),
}


def compiled(text, folder):
    """Every register by the name of the map; an element of the array ``BASE`` is ``BASE0``."""
    path = folder / "registers.rdl"
    path.write_text(text)
    compiler = systemrdl.RDLCompiler()
    compiler.compile_file(str(path))
    top = compiler.elaborate().top
    nodes = {}
    for node in top.registers(unroll=True):
        index = "" if node.current_idx is None else str(node.current_idx[0])
        nodes[f"{node.inst_name}{index}"] = node
    return top, nodes


def access_of(node):
    write, pulse = node.get_property("onwrite"), node.get_property("singlepulse")
    return (node.get_property("sw").name, node.get_property("hw").name, None if write is None else write.name, pulse)


@pytest.mark.parametrize("config", [None, PRESETS["eta2x"]], ids=["any", "eta2x"])
def test_every_register_reads_back(config, tmp_path):
    top, nodes = compiled(to_systemrdl(config), tmp_path)
    assert top.inst_name == "gradloom" and list(nodes) == [entry.name for entry in REGISTERS]
    for entry in REGISTERS:
        node = nodes[entry.name]
        assert (node.absolute_address, node.size, node.get_property("regwidth"), node.get_property("accesswidth")) == (
            entry.offset, 4, 32, 32), entry.name
        assert node.external and (node.is_array or node.get_property("desc") == entry.doc), entry.name
        needs = [bool(node.get_property(f"{kind}_need_idle")) for kind in ("reads", "writes")]
        assert needs == [entry.access in (Access.IDLE, Access.RO_IDLE), entry.access in (Access.IDLE, Access.RW_IDLE)], entry.name
        fields = {field.inst_name: field for field in node.fields()}
        expected = entry.fields or (Bits(WHOLE, 0, 32, "", entry.effect),)
        assert list(fields) == [bits.name for bits in expected], entry.name
        for bits in expected:
            field, where = fields[bits.name], f"{entry.name}.{bits.name}"
            known = entry.constant is not None and config is not None
            access = ACCESS[bits.effect]
            if entry.access in (Access.RO, Access.RO_IDLE):
                access = ("r", "na" if known else "w", None, False)
            assert (field.lsb, field.width) == (bits.lsb, bits.width), where
            assert access_of(field) == access, where
            assert (field.get_property("onread") is not None) == entry.read_acts, where
            value = entry.constant(config) if known else None if entry.constant else entry.reset
            assert field.get_property("reset") == (None if value is None else (value & bits.mask) >> bits.lsb), where
            assert not entry.fields or field.get_property("desc") == bits.doc, where


def test_array_and_codes(tmp_path):
    """What is alike but for its number is one array, and the error codes have names and meanings."""
    top, nodes = compiled(to_systemrdl(PRESETS["nano"]), tmp_path)
    arrays = {node.inst_name: (node.array_dimensions, node.array_stride) for node in top.registers() if node.is_array}
    assert arrays == {"BASE": ([8], 4)}
    assert nodes["BASE3"].get_property("desc") == register("BASE3").doc.replace("3", "n")
    codes = nodes["ERROR"].get_child_by_name("code").get_property("encode")
    assert [(code.name, code.value, code.rdl_desc) for code in codes] == [
        (code.name, int(code), ERROR_DOCS[code]) for code in ErrorCode]


def test_texts_need_no_care(tmp_path):
    """A machine's name may hold anything."""
    config = dataclasses.replace(PRESETS["nano"], name='a "quoted" \\ name')
    assert compiled(to_systemrdl(config), tmp_path)[0].get_property("name") == (
        f'gradloom a "quoted" \\ name, digest 0x{config.digest():08x}')
