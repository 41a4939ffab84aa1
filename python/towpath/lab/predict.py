"""The time that a copy will take, as an interval.

    >>> from towpath.lab.predict import Calibration
    >>> calibration = Calibration.of_copies(predicted_s=[10, 10, 10, 10], actual_s=[9, 10, 11, 12])
    >>> [round(factor, 2) for factor in calibration.factors(0.5)]
    [0.9, 1.2]

`towpath probe` predicts a copy from a measurement of its path: setup, slow start, the settled rate, storages, and files
(docs/guides/probe.md). The interval is that prediction times the factors by which earlier copies differed from theirs (split
conformal prediction: V. Vovk et al., "Algorithmic Learning in a Random World", 2005). No law of the errors is assumed, but that the new
copy is like those of the calibration: without other traffic between the probe and the copy, and with storages that were measured.
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

MAX_PROBE_S = 600
"""Maximum time of a probe, its storage included."""

CLASSES = {"short": 0.0, "medium": 0.02, "long": 0.1}
"""Classes of paths, and the round trip in seconds from which they are of it. Predictions of longer paths have larger errors."""


@dataclass(frozen=True)
class Calibration:
    """By which factors earlier copies differed from their predictions."""

    log_ratios: FloatArray
    """Logarithms of actual / predicted time, increasing."""
    source: str
    """Where the copies are described."""

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
        return cls.of_copies(predicted_s, actual_s, str(path))

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
            raise ValueError(f"coverage: {count} copies of the calibration reach at most {(count - 1) / (count + 1):.2f}, not {coverage}")
        return math.exp(self.log_ratios[lower - 1]), math.exp(self.log_ratios[upper - 1])


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a copy."""

    seconds: float
    """The median time: that of the probe, times the median factor."""
    earliest_s: float
    latest_s: float
    coverage: float
    """Intended probability that the time is in the interval."""
    bound: str
    """The slowest part: network, storage, files or round trips."""
    files: int
    bytes: int
    assumptions: tuple[str, ...]
    calibration: str
    """Source of the interval."""


def class_of(rtt_s: float) -> str:
    """Returns the name of the class of a path."""
    return max((name for name, least_s in CLASSES.items() if rtt_s >= least_s), key=CLASSES.__getitem__)


def emulated_copies(rtt_s: float) -> Calibration:
    """Returns the calibration from copies over emulated paths of the same class, without other traffic (bench/results/lab)."""
    text = resources.files("towpath.lab").joinpath("emulated_copies.json").read_text()
    name = class_of(rtt_s)
    return Calibration(np.array(json.loads(text)["log_ratios"][name]), f"copies over emulated paths with {name} round trips")


def predict(probe: dict[str, Any], calibration: Calibration | None = None, *, coverage: float = 0.9) -> Prediction:
    """Predicts a copy from the document of `towpath probe --json` with one prediction. The calibration is by default that of
    `emulated_copies` for the round trip of the probe. Raises `ValueError` for another document, with the reasons for which legs were not
    measured."""
    predictions = probe.get("predictions")
    if not isinstance(predictions, list) or len(predictions) != 1:
        reasons = "; ".join(
            f"{leg['leg']}: {leg['reason']}" for leg in probe.get("not_measured", []) if leg.get("leg", "").startswith("network")
        )
        raise ValueError(f"probe: expected one prediction{f' ({reasons})' if reasons else ''}")
    found = predictions[0]
    if calibration is None:
        # A probe has a round trip if it has a prediction; without one the widest interval is the safe one.
        rtt_s = probe.get("min_rtt_s")
        calibration = emulated_copies(max(CLASSES.values()) if rtt_s is None else rtt_s)
    lower, upper = calibration.factors(coverage)
    median = math.exp(float(np.median(calibration.log_ratios)))
    return Prediction(
        seconds=found["seconds"] * median,
        earliest_s=found["seconds"] * lower,
        latest_s=found["seconds"] * upper,
        coverage=coverage,
        bound=found["bound"],
        files=found["files"],
        bytes=found["bytes"],
        assumptions=tuple(found["assumptions"]),
        calibration=calibration.source,
    )


def run_probe(
    command: Sequence[str | Path], source: str, destination: str, *, seconds: int, files: int | None, size: str | None
) -> dict[str, Any]:
    """Probes the path of a copy with `command`, the program `towpath` or a command that runs it, and returns the document.

    One of both places is the URL of a server. The copy is that of `files` with the total `size` such as `10GB`, else of what the
    source has. Raises `OSError` with the message of a probe that fails.
    """
    is_remote = ["://" in place and not place.startswith("file:") for place in (source, destination)]
    if is_remote.count(True) != 1:
        raise ValueError(
            f"expected one URL and one local place, not {source} and {destination}: the probe is between a server and this machine"
        )
    url, direction = (source, "down") if is_remote[0] else (destination, "up")
    what = ["--for", source] if files is None or size is None else ["--files", str(files), "--bytes", size]
    arguments = [*command, "probe", url, "--direction", direction, "--seconds", str(seconds), "--json", *what]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=MAX_PROBE_S)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the probe did not end within {MAX_PROBE_S} s") from error
    if done.returncode:
        raise OSError(done.stderr.strip().removeprefix("towpath: "))
    document: dict[str, Any] = json.loads(done.stdout)
    return document
