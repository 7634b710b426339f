"""The page about the cable is made from the tables of its frames."""

from gradloom.contracts.frame_format import IDENTITY, LINK_REGISTERS, Kind, Reply, Status
from gradloom.host.link.link_doc import text
from gradloom.verif.checkout import DOCS


def test_the_page_is_current():
    assert (DOCS / "link.md").read_text() == text(), "run python -m gradloom.host.link.link_doc > docs/link.md"


def test_every_code_and_field_is_on_it():
    rows = text()
    for name in (*(member.name for kinds in (Kind, Reply, Status) for member in kinds),
                 *(field.name for field in IDENTITY), *(register.name for register in LINK_REGISTERS)):
        assert f"| {name} |" in rows
