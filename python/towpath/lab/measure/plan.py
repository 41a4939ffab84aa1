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

MAX_XRDCP_STREAMS = 15
"""Maximum of xrdcp's `--streams`."""

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
        return _payload_bits_per_s(self.rate)


@dataclass(frozen=True)
class Site:
    """A real far end, with its own servers."""

    name: str
    iperf3: str | None = None
    """Address of a server of iperf3, such as `iperf.example.org:5201`."""
    url: str | None = None
    """A file for the other tools, such as `root://data.example.org//path/file`."""
    rate: str | None = None
    """Bits per second on Ethernet of the slowest link, such as `10Gbit`; None if unknown."""

    def place(self, tool: str) -> str | None:
        """Returns the address or URL that a tool needs; None if the site has none."""
        return self.iperf3 if tool == "iperf3" else self.url


@dataclass(frozen=True)
class Cell:
    """One run of a campaign."""

    repetition: int
    rtt_ms: float | None
    """Round trip of the emulator; None for a site, where it is measured."""
    transport: str | None
    """Congestion control of the sender; None for a site, which chooses it."""
    buffer: str | None
    tool: str
    streams: int | None
    """Number of connections; None if the tool chooses it."""
    site: Site | None = None
    """The far end; None for the emulator."""

    @property
    def run_id(self) -> str:
        """The name of the run in its campaign."""
        streams = "" if self.streams is None else f" x{self.streams}"
        if self.site is not None:
            return f"{self.tool}{streams} {self.site.name} #{self.repetition}"
        return f"{self.tool} {self.transport}{streams} {self.buffer or 'system'} {self.rtt_ms:g}ms #{self.repetition}"


@dataclass(frozen=True)
class Plan:
    """A plan. Create it with `parse`."""

    tools: tuple[str, ...]
    rtt_ms: tuple[float, ...] = ()
    """Round trips of the emulator in milliseconds, of at least 0.1."""
    emulator: Emulator | None = None
    """The emulated path; None for a plan with sites."""
    sites: tuple[Site, ...] = ()
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
    refinements: int = 0
    """Number of times that each configuration gets two more round trips, beside its transition."""

    @classmethod
    def parse(cls, text: str, name: str = "plan") -> Plan:
        """Parses TOML. Raises `ValueError` with the key and the expectation."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{name}: {error}") from error
        emulator, sites = values.pop("emulator", None), values.pop("sites", None)
        if (emulator is None) == (sites is None):
            raise ValueError(f"{name}: expected the table [emulator], with its rate, or tables [[sites]]")
        _check_keys(name, values, _KEYS)
        lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        _check(name, lists, _EXPECTATIONS)
        if emulator is None:
            plan = cls(**lists, sites=_sites(name, sites, lists))
        else:
            _check_table(f"{name}: emulator", emulator, Emulator, _EMULATOR_EXPECTATIONS)
            if not lists.get("rtt_ms"):
                raise ValueError(f"{name}: the key 'rtt_ms' is missing: expected the round trips of the emulator")
            plan = cls(**lists, emulator=Emulator(**emulator))
        if "xrdcp" in plan.tools and max(plan.streams) > MAX_XRDCP_STREAMS:
            raise ValueError(f"{name}: streams = {list(plan.streams)!r}: xrdcp has at most {MAX_XRDCP_STREAMS}")
        if plan.size > MAX_CELLS:
            raise ValueError(f"{name}: {plan.size:,} runs, at most {MAX_CELLS:,} are supported")
        return plan

    @property
    def size(self) -> int:
        """Number of runs, without refinements."""
        paths = len(self.sites) or len(self.rtt_ms) * len(self.transports) * max(len(self.buffers), 1)
        return self.repetitions * paths * sum(len(self._streams_of(tool)) for tool in self.tools)

    def cells(self) -> list[Cell]:
        """Returns the runs without refinements in their order: all of a repetition before the next one, those over one path together."""
        chance = random.Random(self.seed)
        ordered = []
        for repetition in range(self.repetitions):
            emulated = itertools.product(self.rtt_ms, self.transports, self.buffers or (None,), (None,))
            paths = [(None, None, None, site) for site in self.sites] if self.sites else list(emulated)
            chance.shuffle(paths)
            for rtt_ms, transport, buffer, site in paths:
                path = (repetition, rtt_ms, transport, buffer)
                runs = [Cell(*path, tool, streams, site) for tool in self.tools for streams in self._streams_of(tool)]
                chance.shuffle(runs)
                ordered += runs
        return ordered

    def capacity_bits_per_s(self, cell: Cell) -> float | None:
        """Returns the TCP payload that the path of a cell can carry, in bits per second; None if it is unknown."""
        rate = self.emulator.rate if self.emulator is not None else cell.site.rate if cell.site is not None else None
        return None if rate is None else _payload_bits_per_s(rate)

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
_RATE = re.compile(r"[1-9]\d*(?:\.\d+)?[kKmMgG]bit")
_NAME = re.compile(r"[\w.:-]{1,100}")
_EXPECTATIONS = (
    _Expectation("tools", str, f"different ones of {', '.join(TOOLS)}", values=TOOLS, is_list=True, is_required=True),
    _Expectation("rtt_ms", _NUMBER, "different numbers from 0.1 to 2000", 0.1, 2000, is_list=True),
    _Expectation("streams", int, "different numbers from 1 to 64", 1, 64, is_list=True),
    _Expectation("transports", str, "different names such as cubic", values=re.compile(r"[a-z0-9_]{1,15}"), is_list=True),
    _Expectation("buffers", str, "different sizes such as 64MiB", values=_SIZE, is_list=True),
    _Expectation("repetitions", int, "1 to 1000", 1, 1000),
    _Expectation("seconds", int, "a whole number from 1 to 60", 1, 60),
    _Expectation("megabytes", _NUMBER, "1 to 100000", 1, 100_000),
    _Expectation("seed", int, "0 or more"),
    _Expectation("refinements", int, "0 to 5", 0, 5),
)
_EMULATOR_EXPECTATIONS = (
    _Expectation("rate", str, "a rate such as 1Gbit", values=_RATE, is_required=True),
    _Expectation("queue", str, "bdp, or a size such as 4MB", values=re.compile(rf"bdp|{_SIZE.pattern}")),
    _Expectation("loss", _NUMBER, "0 to 1", 0, 1),
)
_SITE_EXPECTATIONS = (
    _Expectation("name", str, "a name such as cern", values=_NAME, is_required=True),
    _Expectation("iperf3", str, "an address such as iperf.example.org:5201", values=re.compile(r"[^\s/]+:\d{1,5}")),
    _Expectation("url", str, "a URL such as root://data.example.org//path/file", values=re.compile(r"[a-z0-9]+://[^\s/]+/\S+")),
    _Expectation("rate", str, "a rate such as 10Gbit", values=_RATE),
)
_KEYS = tuple(expected.key for expected in _EXPECTATIONS)
_EMULATOR_KEYS = ("rtt_ms", "transports", "buffers", "megabytes", "refinements")
"""Keys that only a plan with the emulator has: sites have their own round trips, settings and files."""


def _sites(name: str, tables: Any, values: dict[str, Any]) -> tuple[Site, ...]:
    """Returns the sites of a plan whose other keys are `values`. Raises `ValueError` for a tool without its server at a site."""
    for key in _EMULATOR_KEYS:
        if key in values:
            raise ValueError(f"{name}: {key} belongs to plans with an [emulator]; sites have their own")
    if not isinstance(tables, list) or not tables:
        raise ValueError(f"{name}: sites = {tables!r}: expected one table [[sites]] or more")
    sites = []
    for number, table in enumerate(tables, 1):
        _check_table(f"{name}: site {number}", table, Site, _SITE_EXPECTATIONS)
        sites.append(Site(**table))
        for tool in values["tools"]:
            if tool == "gridftp" or sites[-1].place(tool) is None:
                raise ValueError(f"{name}: site {number}: {tool} {_NEEDS.get(tool, 'needs the key url')}")
    if len({site.name for site in sites}) < len(sites):
        raise ValueError(f"{name}: two sites have one name")
    return tuple(sites)


_NEEDS = {"iperf3": "needs the key iperf3", "gridftp": "is for the emulator only"}


def _check_table(name: str, table: Any, of: type, expectations: tuple[_Expectation, ...]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{name} = {table!r}: expected a table")
    _check_keys(name, table, tuple(field.name for field in fields(of)))
    _check(name, table, expectations)


def _check(name: str, values: dict[str, Any], expectations: tuple[_Expectation, ...]) -> None:
    for expected in expectations:
        expected.check(name, values)


def _check_keys(name: str, values: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ValueError(f"{name}: there is no key {unknown[0]!r}; the keys are {', '.join(known)}")


def _payload_bits_per_s(rate: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([kKmMgG]bit)", rate).groups()  # type: ignore[union-attr]
    return float(number) * _RATE_UNITS[unit.lower()] * PAYLOAD_SHARE
