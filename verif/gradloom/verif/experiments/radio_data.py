"""Frequency-modulated radio signals and three kinds of interference, from the project's own hash (Fox, section V).

Windows are :data:`SAMPLES` complex I/Q samples as (2, 1, 32) planes, I first. The paper gives neither modulation nor powers:
those here were chosen so that the detector in FP32 comes near the paper's F1 score of 0.87.
"""

import numpy as np

from gradloom.models.arithmetic import dither

__all__ = ["ANOMALIES", "SAMPLES", "anomalous", "normal", "windows"]

SAMPLES = 32
ANOMALIES = ("bandpass noise", "chirp", "complex sine")
_DEVIATION = 0.03
"""Peak frequency deviation, cycles a sample."""
_MESSAGE = 40
"""Samples over which the message is smooth."""
_NOISE = 0.1
"""Standard deviation of the receiver's noise in I and in Q; the carrier has amplitude 1."""
_AMPLITUDE = (0.05, 0.4)
"""Least and largest amplitude of an interference."""
_HALF_BAND = 0.05
"""Half the bandwidth of the band-pass noise, cycles a sample."""


def uniform(seed: int, count: int) -> np.ndarray:
    """``count`` hashed numbers in 0..1."""
    parts = range(0, count, 1 << 24)
    found = [dither.hash24(dither.tensor_seed(seed, part >> 24, 3), np.arange(min(1 << 24, count - part))) for part in parts]
    return (np.concatenate(found) + 0.5) / 2**24


def gaussian(seed: int, count: int) -> np.ndarray:
    """``count`` numbers of mean 0 and variance 1, close to normal: sums of twelve uniform ones."""
    return uniform(seed, 12 * count).reshape(count, 12).sum(axis=1) - 6


def normal(seed: int, count: int) -> np.ndarray:
    """complex128 (count, 32): windows of a modulated carrier of random phase and message, with noise."""
    length = count * SAMPLES // 4 + SAMPLES
    smooth = np.hanning(_MESSAGE)
    message = np.convolve(gaussian(seed, length + _MESSAGE), smooth / np.sqrt((smooth**2).sum()), "valid")[:length]
    phase = 2 * np.pi * np.cumsum(_DEVIATION * np.clip(message / 2, -1, 1))
    starts = SAMPLES // 4 * np.arange(count)
    carrier = np.exp(1j * phase[starts[:, None] + np.arange(SAMPLES)])
    noise = gaussian(seed + 1, 2 * carrier.size).reshape(2, *carrier.shape)
    return carrier * np.exp(2j * np.pi * uniform(seed + 2, count))[:, None] + _NOISE * (noise[0] + 1j * noise[1])


def anomalous(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows with an interference on top, and its kind (number in :data:`ANOMALIES`), the kinds in turn."""
    t, kind = np.arange(SAMPLES), np.arange(count) % len(ANOMALIES)
    draws = uniform(seed + 5, 4 * count).reshape(4, count, 1)
    amplitude = _AMPLITUDE[0] + (_AMPLITUDE[1] - _AMPLITUDE[0]) * draws[0]
    start, stop, phase = draws[1] - 0.5, draws[2] - 0.5, 2 * np.pi * draws[3]
    sine = np.exp(1j * (2 * np.pi * start * t + phase))
    chirp = np.exp(1j * (2 * np.pi * (start * t + (stop - start) * t**2 / (2 * SAMPLES)) + phase))
    white = gaussian(seed + 6, 2 * count * SAMPLES).reshape(2, count, SAMPLES)
    spectrum = np.fft.fft(white[0] + 1j * white[1], axis=1)
    away = (np.fft.fftfreq(SAMPLES) - start + 0.5) % 1 - 0.5
    band = np.fft.ifft(np.where(np.abs(away) <= _HALF_BAND, spectrum, 0), axis=1)
    band /= np.sqrt((np.abs(band) ** 2).mean(axis=1, keepdims=True)) + 1e-9
    added = np.select([(kind == number)[:, None] for number in range(3)], [band, chirp, sine])
    return normal(seed + 10, count) + amplitude * added, kind


def windows(signal: np.ndarray) -> np.ndarray:
    """float64 (count, 2, 1, 32) of complex windows."""
    return np.stack([signal.real, signal.imag], axis=1)[:, :, None, :]
