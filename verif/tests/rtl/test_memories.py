"""Where memories lie: block RAM, or distributed RAM where block RAM would stand more than half empty."""

import pytest

from gradloom.rtl.memories import make_memory


@pytest.mark.parametrize(("width", "depth", "lutram_bits", "distributed"), [
    (128, 256, 65536, True),     # half of 4 blocks of 512 x 36, 128 of 144 bits
    (128, 512, 65536, False),    # full
    (128, 256, 32767, False),    # too large
    (128, 256, 0, False),        # none are wanted
    (16, 512, 8192, True),       # 8 of 18 Kbit
    (32, 512, 65536, False),     # 16 of 18 Kbit
    (1024, 64, 65536, True),
])
def test_style(width, depth, lutram_bits, distributed):
    assert make_memory(width, depth, lutram_bits).attrs == ({"ram_style": "distributed"} if distributed else {})


def test_contents():
    assert list(make_memory(8, 4, 0, (1, 2)).data.init) == [1, 2, 0, 0]
