"""Orbits of known maps and autoregressive noise, for the tests of `towpath.lab.dynamics`."""

import numpy as np

from towpath.lab import dynamics


def iterate(step, start, samples, skipped=500):
    """Returns an orbit after its transient."""
    orbit, value = [], start
    for _ in range(samples + skipped):
        value = step(value)
        orbit.append(value)
    return np.array(orbit[skipped:])


def logistic(r, samples, start=0.3):
    return iterate(lambda x: r * x * (1 - x), start, samples)


def tent(slope, samples, start=0.3):
    return iterate(lambda x: slope * min(x, 1 - x), start, samples)


def henon(samples, start):
    return iterate(lambda point: (1 - 1.4 * point[0] ** 2 + point[1], 0.3 * point[0]), (start, 0.1), samples)[:, 0]


def autoregressive(coefficient, samples, random):
    noise = random.standard_normal(samples + 300)
    for index in range(1, len(noise)):
        noise[index] += coefficient * noise[index - 1]
    return noise[300:]


def exponential(coefficient, samples, random):
    """Skewed noise with autocorrelation."""
    return np.exp(autoregressive(coefficient, samples, random))


def window_with_losses(samples, random, loss=0.1):
    """A window that grows by one in each step, and is halved by a loss."""
    window, trace = 10.0, []
    for _ in range(samples + 300):
        window = window / 2 if random.random() < loss else window + 1
        trace.append(window)
    return np.array(trace[300:])


def sawtooth(samples, random, period=10, noise=0.02):
    """A periodic window with noise."""
    phase = random.integers(period)
    return (1 + (np.arange(samples) + phase) % period / period) * (1 + noise * random.standard_normal(samples))


LOGISTIC = dynamics.aggregate_map(logistic(4, 100), 1)
"""A chaotic map with 99 pairs."""
