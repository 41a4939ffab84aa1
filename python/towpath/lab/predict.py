"""The time that a copy will take, as an interval.

    >>> from towpath.lab.predict import Calibration
    >>> calibration = Calibration.of_copies(predicted_s=[10, 10, 10, 10], actual_s=[9, 10, 11, 12])
    >>> [round(factor, 2) for factor in calibration.factors(0.5)]
    [0.9, 1.2]

`towpath probe` predicts a copy from a measurement of its path: setup, slow start, the settled rate, storages, and files
(docs/guides/probe.md). Earlier runs over the path, its profile, can take the place of the measurement of the network. The interval is
that prediction times the factors by which earlier copies differed from theirs (split conformal prediction: V. Vovk et al., "Algorithmic
Learning in a Random World", 2005). No law of the errors is assumed, but that the new copy is like those of the calibration: without other
traffic between the probe and the copy, and with storages that were measured.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from towpath.lab.checks import FloatArray
from towpath.lab.transfer_times import TransferTimes

MAX_PROBE_S = 600
"""Maximum time of a probe, its storage included."""

PARTS = {"network": "network", "storage": "storage", "files": "files", "round trips": "setup"}
"""Parts of a copy, and their names in the document of a probe."""

OVERLAPPING = ("network", "storage", "files")
"""The parts of which the slowest counts."""

REQUEST_BYTES = 512
"""Bytes of requests and responses per file, as in `towpath probe`."""

DISAGREEMENT = 1.5
"""Ratio of the times of probe and profile for the network from which the path is not that of the profile."""

LEAST_S = 0.1
"""Time for the network below which the two are not compared."""

MAX_EXTENSION = 2.0
"""Ratio of the bytes of a copy and of the runs above which a caution says so."""

CLASSES = {"short": 0.0, "medium": 0.02, "long": 0.1}
"""Classes of paths, and the round trip in seconds from which they are of it. Predictions of longer paths have larger errors."""


@dataclass(frozen=True)
class Calibration:
    """By which factors earlier copies, or runs of a profile, differed from their predictions."""

    log_ratios: FloatArray
    """Logarithms of actual / predicted time, increasing."""
    source: str
    """What they are, or where they are described."""

    @classmethod
    def of_copies(cls, predicted_s: npt.ArrayLike, actual_s: npt.ArrayLike, source: str = "own copies") -> Calibration:
        """Creates a calibration from the times of copies in seconds, all more than 0."""
        predicted, actual = np.asarray(predicted_s, dtype=np.float64), np.asarray(actual_s, dtype=np.float64)
        if predicted.ndim != 1 or predicted.shape != actual.shape or len(predicted) == 0:
            raise ValueError(f"predicted_s, actual_s: expected as many, one at least, not {predicted.shape} and {actual.shape}")
        for name, times_s in (("predicted_s", predicted), ("actual_s", actual)):
            if not np.all(np.isfinite(times_s)) or np.any(times_s <= 0):
                raise ValueError(f"{name}: expected more than 0 s, not {times_s[~(np.isfinite(times_s) & (times_s > 0))][0]}")
        return cls(np.sort(np.log(actual / predicted)), source)

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Reads lines of JSON with `predicted_s` and `actual_s`. Raises `ValueError` with the line of one that has not both."""
        predicted_s, actual_s = [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                record = json.loads(line)
                predicted_s.append(float(record["predicted_s"]))
                actual_s.append(float(record["actual_s"]))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}: line {number}: expected a JSON object with predicted_s and actual_s: {error}") from error
        return cls.of_copies(predicted_s, actual_s, f"copies of {path}")

    def factors(self, coverage: float) -> tuple[float, float]:
        """Returns the factors of the ends of the interval, with half of the rest beyond each.

        Raises `ValueError` if there are too few copies: n of them reach (n − 1) / (n + 1).
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage: {coverage}, expected more than 0 and less than 1")
        count = len(self.log_ratios)
        # Rounded, since 0.05 · 20 is less than 1 in binary.
        lower = math.floor(round((1 - coverage) / 2 * (count + 1), 9))
        upper = math.ceil(round((1 + coverage) / 2 * (count + 1), 9))
        if lower < 1 or upper > count:
            raise ValueError(f"coverage: {count} {self.source} reach at most {max(count - 1, 0) / (count + 1):.2f}, not {coverage}")
        return math.exp(self.log_ratios[lower - 1]), math.exp(self.log_ratios[upper - 1])


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a copy."""

    seconds: float
    """The median time: `predicted_s` times the median factor."""
    earliest_s: float
    latest_s: float
    coverage: float
    """Intended probability that the time is in the interval."""
    predicted_s: float
    """The time by the probe, or by probe and profile; for a calibration from this copy."""
    bound: str
    """The slowest part: network, storage, files or round trips."""
    files: int
    bytes: int
    assumptions: tuple[str, ...]
    calibration: str
    """Source of the interval."""
    cautions: tuple[str, ...]
    """Reasons for which the time may be wrong."""


def class_of(rtt_s: float) -> str:
    """Returns the name of the class of a path."""
    return max((name for name, least_s in CLASSES.items() if rtt_s >= least_s), key=CLASSES.__getitem__)


def emulated_copies(rtt_s: float | None, *, with_profile: bool = False) -> Calibration:
    """Returns the calibration from copies over emulated paths of the same class, without other traffic (bench/results/lab), that were
    predicted by a probe, or by probe and profile. For an unknown round trip it is that of the longest, the widest."""
    text = resources.files("towpath.lab").joinpath("emulated_copies.json").read_text()
    name = class_of(max(CLASSES.values()) if rtt_s is None else rtt_s)
    log_ratios = json.loads(text)["with_profile" if with_profile else "by_probe"][name]
    return Calibration(np.array(log_ratios), f"copies over emulated paths with {name} round trips")


def predict(
    probe: dict[str, Any], calibration: Calibration | None = None, *, profile: TransferTimes | None = None, coverage: float = 0.9
) -> Prediction:
    """Predicts a copy from the document of `towpath probe --json` with one prediction.

    With `profile`, the time for the network is that of its runs at the round trip of the probe, instead of that of the probe. `calibration`
    is from copies that were predicted in the same way. The default is that of `emulated_copies`; with a profile, the interval then is at
    least that of its runs. Raises `ValueError` for another document, with the reasons for which legs were not measured, and for a path
    out of the profile.
    """
    found = prediction_of(probe)
    copies = calibration or emulated_copies(probe.get("min_rtt_s"), with_profile=profile is not None)
    calibrations = [copies] if calibration or profile is None else [copies, spread(probe, profile, coverage)]
    lower, upper = widest(calibrations, coverage)
    parts_s, median = parts(probe, profile), math.exp(float(np.median(copies.log_ratios)))
    return Prediction(
        seconds=total(parts_s) * median,
        earliest_s=total(parts_s) * lower,
        latest_s=total(parts_s) * upper,
        coverage=coverage,
        predicted_s=total(parts_s),
        bound=max(parts_s, key=parts_s.__getitem__),
        files=found["files"],
        bytes=found["bytes"],
        assumptions=tuple(found["assumptions"]),
        calibration=", and ".join(f"{len(used.log_ratios)} {used.source}" for used in calibrations),
        cautions=() if profile is None else _cautions(probe, profile),
    )


def prediction_of(probe: dict[str, Any]) -> dict[str, Any]:
    """Returns the only prediction of a probe. Raises `ValueError` with the reasons if there is none."""
    predictions = probe.get("predictions")
    if not isinstance(predictions, list) or len(predictions) != 1:
        reasons = "; ".join(
            f"{leg['leg']}: {leg['reason']}" for leg in probe.get("not_measured", []) if leg.get("leg", "").startswith("network")
        )
        raise ValueError(f"probe: expected one prediction{f' ({reasons})' if reasons else ''}")
    found: dict[str, Any] = predictions[0]
    return found


def parts(probe: dict[str, Any], profile: TransferTimes | None = None) -> dict[str, float]:
    """Returns the seconds of each of `PARTS`, without a calibration. Raises the errors of `predict`."""
    found = prediction_of(probe)
    parts_s = {name: found[f"{key}_s"] or 0.0 for name, key in PARTS.items()}
    return parts_s if profile is None else parts_s | {"network": profile.seconds(*_conditions(probe))}


def total(parts_s: dict[str, float]) -> float:
    """Returns the seconds of a copy with these parts, as `towpath probe` computes them."""
    return parts_s["round trips"] + max(parts_s[name] for name in OVERLAPPING)


def spread(probe: dict[str, Any], profile: TransferTimes, coverage: float) -> Calibration:
    """Returns the calibration from runs of a profile, each predicted by others: from as many as the coverage needs, at the round trips
    that are nearest to that of the path."""
    parts_s = parts(probe, profile)
    ratios = profile.ratios(*_conditions(probe), least_count(coverage))
    times_s = [total(parts_s | {"network": ratio * parts_s["network"]}) for ratio in ratios]
    return Calibration(np.log(np.array(times_s) / total(parts_s)), f"runs of {profile.configuration}")


def widest(calibrations: Sequence[Calibration], coverage: float) -> tuple[float, float]:
    """Returns the factors of an interval that has those of all calibrations."""
    ends = [used.factors(coverage) for used in calibrations]
    return min(lower for lower, _ in ends), max(upper for _, upper in ends)


def least_count(coverage: float) -> int:
    """Returns the number of copies or runs that a coverage needs."""
    return math.ceil(round(2 / (1 - coverage) - 1, 9))


def _conditions(probe: dict[str, Any]) -> tuple[float, int]:
    """Returns the round trip in seconds, and the bytes of a copy on the network."""
    found, rtt_s = prediction_of(probe), probe.get("min_rtt_s")
    if rtt_s is None:
        raise ValueError("probe: it has no round trip, which a profile needs")
    return rtt_s, found["bytes"] + REQUEST_BYTES * found["files"]


def _cautions(probe: dict[str, Any], profile: TransferTimes) -> tuple[str, ...]:
    """Returns how the copy differs from the runs of the profile."""
    key, cautions = profile.configuration, []
    _, size = _conditions(probe)
    if profile.run_bytes is not None and size > MAX_EXTENSION * profile.run_bytes:
        cautions.append(f"the copy has {size / profile.run_bytes:.3g} times the bytes of the runs: the rate of their second half counts")
    for leg in probe.get("network", [])[:1]:
        control, connections = leg["congestion_control"], leg["connections"]
        if key.transport is not None and control not in (None, "other", key.transport):
            cautions.append(f"the runs had {key.transport}, the sender of the copy has {control}")
        if key.streams is not None and connections != key.streams:
            cautions.append(f"the runs had {key.streams} connections, a copy begins with {connections}")
    probed_s, profile_s = parts(probe)["network"], parts(probe, profile)["network"]
    if max(probed_s, profile_s) >= DISAGREEMENT * max(min(probed_s, profile_s), LEAST_S):
        cautions.append(
            f"the path is not as in the profile: the network takes {profile_s:.3g} s by the profile, {probed_s:.3g} s by the probe"
        )
    return tuple(cautions)


def run_probe(
    command: Sequence[str | Path], source: str, destination: str, *, seconds: int | None, files: int | None, size: str | None
) -> dict[str, Any]:
    """Probes the path of a copy with `command`, the program `towpath` or a command that runs it, and returns the document.

    `seconds` is the duration of the probe, 1 to 60, None for the default of `towpath probe`. One of both places is the URL of a server.
    The copy is that of `files` with the total `size` such as `10GB`, else of what the source has. Raises `OSError` with the message of a
    probe that fails.
    """
    is_remote = ["://" in place and not place.startswith("file:") for place in (source, destination)]
    if is_remote.count(True) != 1:
        raise ValueError(
            f"expected one URL and one local place, not {source} and {destination}: the probe is between a server and this machine"
        )
    url, direction = (source, "down") if is_remote[0] else (destination, "up")
    what = ["--for", source] if files is None or size is None else ["--files", str(files), "--bytes", size]
    how_long = [] if seconds is None else ["--seconds", str(seconds)]
    arguments = [*command, "probe", url, "--direction", direction, "--json", *how_long, *what]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=MAX_PROBE_S)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the probe did not end within {MAX_PROBE_S} s") from error
    if done.returncode:
        raise OSError(done.stderr.strip().removeprefix("towpath: "))
    document: dict[str, Any] = json.loads(done.stdout)
    return document
