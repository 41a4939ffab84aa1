"""The plan of a campaign.

    >>> from towpath.lab.measure.plan import Plan
    >>> plan = Plan.parse("tools = ['iperf3']\\nrtt_ms = [10, 100]\\nstreams = [1, 4]\\nrepetitions = 3\\n[emulator]\\nrate = '1Gbit'")
    >>> len(plan.cells()), plan.emulator.capacity_bits_per_s
    (12, 941482444.7333...)

docs/lab/measure.md describes the keys.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_CELLS = 100_000

TOOLS = ("iperf3", "towpath-probe", "towpath-cp", "xrdcp", "gridftp")
"""The tools. The first two transfer from memory to memory for a time, the others a file of given size."""

CHOOSING_TOOLS = ("towpath-cp",)
"""Tools that choose the number of connections: one run for each path, whatever `streams` says."""

PAYLOAD_SHARE = 1448 / 1538
"""TCP payload / bytes on Ethernet, at an MTU of 1500 bytes with time stamps."""

_RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SIZE = re.compile(r"[1-9]\d*(?:B|kB|MB|GB|KiB|MiB|GiB)?")


@dataclass(frozen=True)
class Emulator:
    """The emulated path, the same in all runs."""

    rate: str
    """Bits per second on Ethernet, such as `1Gbit`."""
    queue: str = "bdp"
    """Queue limit, as for `towpath wan`."""
    loss: float = 0.0
    """Fraction of packets lost, from 0 to 1."""

    @property
    def capacity_bits_per_s(self) -> float:
        """TCP payload that the path can carry, in bits per second."""
        number, unit = re.fullmatch(r"([\d.]+)([kKmMgG]bit)", self.rate).groups()  # type: ignore[union-attr]
        return float(number) * _RATE_UNITS[unit.lower()] * PAYLOAD_SHARE


@dataclass(frozen=True)
class Cell:
    """One run of a campaign."""

    repetition: int
    rtt_ms: float
    transport: str
    buffer: str | None
    tool: str
    streams: int | None
    """Number of connections; None if the tool chooses it."""

    @property
    def run_id(self) -> str:
        """The name of the run in its campaign."""
        streams = "" if self.streams is None else f" x{self.streams}"
        return f"{self.tool} {self.transport}{streams} {self.buffer or 'system'} {self.rtt_ms:g}ms #{self.repetition}"


@dataclass(frozen=True)
class Plan:
    """A plan. Create it with `parse`."""

    tools: tuple[str, ...]
    rtt_ms: tuple[float, ...]
    """Round trips in milliseconds, of at least 0.1."""
    emulator: Emulator
    streams: tuple[int, ...] = (1,)
    transports: tuple[str, ...] = ("cubic",)
    """Congestion controls of the hosts."""
    buffers: tuple[str, ...] = ()
    """Largest buffers of a connection, such as `64MiB`; empty for that of the system."""
    repetitions: int = 10
    seconds: int = 10
    """Duration of a run from memory to memory; iperf3 takes whole seconds."""
    megabytes: float = 256.0
    """Size of the copied file."""
    seed: int = 0
    """Seed of the order of the runs."""

    @classmethod
    def parse(cls, text: str, name: str = "plan") -> Plan:
        """Parses TOML. Raises `ValueError` with the key and the expectation."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{name}: {error}") from error
        emulator = values.pop("emulator", None)
        if not isinstance(emulator, dict):
            raise ValueError(f"{name}: expected the table [emulator], with its rate")
        _check_keys(name, values, cls)
        _check_keys(f"{name}: emulator", emulator, Emulator)
        lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        for expected in _EXPECTATIONS:
            owner = emulator if expected.key in _EMULATOR_KEYS else lists
            expected.check(name, owner)
        plan = cls(**lists, emulator=Emulator(**emulator))
        if plan.size > MAX_CELLS:
            raise ValueError(f"{name}: {plan.size:,} runs, at most {MAX_CELLS:,} are supported")
        return plan

    @property
    def size(self) -> int:
        """Number of runs."""
        paths = len(self.rtt_ms) * len(self.transports) * max(len(self.buffers), 1)
        return self.repetitions * paths * sum(len(self._streams_of(tool)) for tool in self.tools)

    def cells(self) -> list[Cell]:
        """Returns the runs in their order: all of a repetition before the next one, those over one path one after the other."""
        chance = random.Random(self.seed)
        ordered = []
        for repetition in range(self.repetitions):
            paths = list(itertools.product(self.rtt_ms, self.transports, self.buffers or (None,)))
            chance.shuffle(paths)
            for rtt_ms, transport, buffer in paths:
                path = (repetition, rtt_ms, transport, buffer)
                runs = [Cell(*path, tool, streams) for tool in self.tools for streams in self._streams_of(tool)]
                chance.shuffle(runs)
                ordered += runs
        return ordered

    def _streams_of(self, tool: str) -> tuple[int | None, ...]:
        return (None,) if tool in CHOOSING_TOOLS else self.streams


@dataclass(frozen=True)
class _Expectation:
    """What a key may have; all values of it if it is a list."""

    key: str
    kind: Any
    text: str
    low: float = 0
    high: float = float("inf")
    values: tuple[str, ...] | re.Pattern[str] = ()
    is_list: bool = False
    is_required: bool = False

    def check(self, name: str, owner: dict[str, Any]) -> None:
        if self.key not in owner:
            if self.is_required:
                raise ValueError(f"{name}: the key {self.key!r} is missing: expected {self.text}")
            return
        value = owner[self.key]
        elements: Iterable[Any] = value if self.is_list and isinstance(value, tuple) else (value,)
        is_valid = isinstance(value, tuple) == self.is_list and all(map(self._is_valid, elements))
        if not is_valid or (self.is_list and (len(set(value)) < len(value) or (not value and self.key != "buffers"))):
            raise ValueError(f"{name}: {self.key} = {value!r}: expected {self.text}")

    def _is_valid(self, value: Any) -> bool:
        if type(value) is bool or not isinstance(value, self.kind):
            return False
        if isinstance(self.values, re.Pattern):
            return self.values.fullmatch(value) is not None
        return value in self.values if self.values else bool(self.low <= value <= self.high)


_NUMBER = (int, float)
_EXPECTATIONS = (
    _Expectation("tools", str, f"different ones of {', '.join(TOOLS)}", values=TOOLS, is_list=True, is_required=True),
    _Expectation("rtt_ms", _NUMBER, "different numbers from 0.1 to 2000", 0.1, 2000, is_list=True, is_required=True),
    _Expectation("streams", int, "different numbers from 1 to 64", 1, 64, is_list=True),
    _Expectation("transports", str, "different names such as cubic", values=re.compile(r"[a-z0-9_]{1,15}"), is_list=True),
    _Expectation("buffers", str, "different sizes such as 64MiB", values=_SIZE, is_list=True),
    _Expectation("repetitions", int, "1 to 1000", 1, 1000),
    _Expectation("seconds", int, "a whole number from 1 to 60", 1, 60),
    _Expectation("megabytes", _NUMBER, "1 to 100000", 1, 100_000),
    _Expectation("seed", int, "0 or more"),
    _Expectation("rate", str, "a rate such as 1Gbit", values=re.compile(r"[1-9]\d*(?:\.\d+)?[kKmMgG]bit"), is_required=True),
    _Expectation("queue", str, "bdp, or a size such as 4MB", values=re.compile(rf"bdp|{_SIZE.pattern}")),
    _Expectation("loss", _NUMBER, "0 to 1", 0, 1),
)
_EMULATOR_KEYS = tuple(field.name for field in fields(Emulator))


def _check_keys(name: str, values: dict[str, Any], of: type) -> None:
    known = [field.name for field in fields(of)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ValueError(f"{name}: there is no key {unknown[0]!r}; the keys are {', '.join(known)}")
