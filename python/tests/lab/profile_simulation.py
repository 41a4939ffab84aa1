"""Profiles with known transitions and normal errors, for the tests of `towpath.lab.profiles` and the targets of `bench/lab_targets.py`."""

import numpy as np

from towpath.lab.profiles import Profile

RTTS_S = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183, 366]) / 1e3
CAPACITY = 10e9


def ramp(transition_s):
    """Returns the model of slow start up to the capacity, or to a buffer that is too small beyond `transition_s`, relative to the
    capacity, for runs of 10 s."""
    first = 10 * 1460 * 8
    window = np.maximum(np.minimum(CAPACITY * RTTS_S, CAPACITY * transition_s), first)
    ramp_s = RTTS_S * np.log2(window / first)
    return np.minimum((window - first + window / RTTS_S * (10 - ramp_s)) / 10 / CAPACITY, 1)


def sigmoid(steepness, middle_s, rtts_s):
    return 1 / (1 + np.exp(steepness * (rtts_s - middle_s)))


def pair(transition_s, left, right):
    """Returns two flipped sigmoids that meet at the transition."""
    meeting = sigmoid(*left, transition_s) / sigmoid(*right, transition_s)
    return np.where(RTTS_S <= transition_s, sigmoid(*left, RTTS_S), meeting * sigmoid(*right, RTTS_S))


TRUTHS = {
    "ramp to 30 ms": (ramp(0.03), 0.03),
    "ramp to 100 ms": (ramp(0.1), 0.1),
    "ramp to 200 ms": (ramp(0.2), 0.2),
    "sigmoids at 91.6 ms": (pair(0.0916, (30, 0.15), (15, 0.06)), 0.0916),
    "sigmoids at 60 ms": (pair(0.06, (40, 0.09), (15, 0.03)), 0.06),
}
"""Throughputs relative to the capacity, and the transition in seconds."""

STRAIGHT = {"linear": 1 - 2 * RTTS_S, "flat": np.full(7, 0.8)}


UNEVEN = np.array([0.005, 0.005, 0.005, 0.02, 0.02, 0.1, 0.1])
"""Relative errors that differ between round trips as those of real runs do."""


def noisy(random, truth, noise, runs=10):
    """Returns a profile with relative normal errors, of one size or one for each round trip."""
    errors = np.broadcast_to(noise, len(truth))
    samples = [np.clip(value * (1 + error * random.standard_normal(runs)), 1e-3, None) for value, error in zip(truth, errors, strict=True)]
    return Profile.of_samples(RTTS_S, samples)
