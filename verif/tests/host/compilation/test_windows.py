"""Kernels cut into windows of three taps."""

from gradloom.host.compilation.windows import Window, kernel_windows


def test_windows_cover_the_kernel_once():
    for ky in range(1, 16):
        for stride in (1, 2):
            taps = [
                (w.row + r, w.col + k)
                for w in kernel_windows(ky, ky, stride)
                for r in range(w.rows)
                for k in range(w.cols)
            ]
            assert sorted(taps) == [(r, k) for r in range(ky) for k in range(ky)]
    assert kernel_windows(3, 3, 2) == [Window(0, 3, 0, 3)]
    assert [w.row for w in kernel_windows(7, 1, 2)] == [0, 2, 4]
