"""The table of runs: one row for each measurement of a path.

    >>> from towpath.lab.runs import Runs
    >>> runs = Runs.of_rows([
    ...     {"run_id": "a", "tool": "iperf3", "streams": 4, "rtt_s": 0.1, "repetition": 0, "throughput_bits_per_s": 8e8},
    ... ])
    >>> len(runs), float(runs.frame().throughput_bits_per_s[0])
    (1, 800000000.0)

A campaign is one such table, and one Parquet file. The intervals of a run are a nested list in its row. `SCHEMA` has the columns; `None`
is an unknown value where `REQUIRED` does not name the column. Each table was checked: an invalid value raises `ValueError` with
its row and column.

Limits: 1,000,000 runs; a table is in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MAX_BYTES = 4 << 30
"""Maximum size of a table in memory, as its file states it."""

MAX_RUNS = 1_000_000

COMPRESSION_LEVEL = 15
"""Level of zstd: a table is written once, and read often."""

ALL_STREAMS = -1
"""Stream of an interval with the bytes of all streams."""

_STREAM_INTERVAL = pa.struct(
    [
        ("stream", pa.int32()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("bytes", pa.int64()),
        ("rtt_s", pa.float64()),
        ("cwnd_bytes", pa.int64()),
        ("retransmits", pa.int64()),
        ("busy_s", pa.float64()),
        ("receive_window_limited_s", pa.float64()),
        ("send_buffer_limited_s", pa.float64()),
        ("peer_window_bytes", pa.int64()),
        ("starved", pa.bool_()),
    ]
)

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("tool", pa.string()),
        ("transport", pa.string()),
        ("streams", pa.int32()),
        ("buffer_bytes", pa.int64()),
        ("rtt_s", pa.float64()),
        ("repetition", pa.int32()),
        ("started", pa.timestamp("us", tz="UTC")),
        ("planned_s", pa.float64()),
        ("planned_bytes", pa.int64()),
        ("duration_s", pa.float64()),
        ("bytes", pa.int64()),
        ("throughput_bits_per_s", pa.float64()),
        ("capacity_bits_per_s", pa.float64()),
        ("loss", pa.float64()),
        ("queue", pa.string()),
        ("limited_by", pa.string()),
        ("site", pa.string()),
        ("detail", pa.string()),
        ("machine", pa.string()),
        ("intervals", pa.list_(_STREAM_INTERVAL)),
    ]
)
"""The columns of the table (docs/lab/runs.md)."""

REQUIRED = ("run_id", "tool", "rtt_s", "repetition", "throughput_bits_per_s")
"""Columns without null."""

MAX_RTT_S = 5.0
"""Longest round trip, in seconds: a larger number is one of milliseconds."""

_TOLERANCE = 1e-3
"""Maximum relative difference of a throughput and its bytes / duration."""


def rate_text(bits_per_s: float) -> str:
    """Returns a rate with its unit, such as `941 Mbit/s`."""
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_s >= 0.99995 * size:
            return f"{bits_per_s / size:.4g} {unit}"
    return f"{bits_per_s:.4g} bit/s"


@dataclass(frozen=True)
class Configuration:
    """All that is equal among the runs of a profile."""

    tool: str
    transport: str | None
    streams: int | None
    """Number of connections; None if the tool chooses it."""
    buffer_bytes: int | None
    """Maximum buffer of a connection in bytes; None for that of the system."""
    planned_s: float | None
    """Planned duration in seconds; None if it was not fixed."""
    planned_bytes: int | None
    """Planned bytes; None if they were not fixed."""
    capacity_bits_per_s: float | None
    """Capacity of the path; None if unknown."""
    loss: float | None = None
    """Fraction of packets that the emulator loses; None if it loses none, or for a real path."""
    queue: str | None = None
    """Queue limit of the emulator; None if it is the product of rate and round trip, or for a real path."""

    def __str__(self) -> str:
        parts = [
            self.tool if self.transport is None else f"{self.tool} {self.transport}",
            None if self.streams is None else f"× {self.streams}",
            None if self.buffer_bytes is None else f"{self.buffer_bytes / 2**20:g} MiB",
            None if self.planned_s is None else f"{self.planned_s:g} s",
            None if self.planned_bytes is None else f"{self.planned_bytes / 1e6:g} MB",
            None if self.capacity_bits_per_s is None else f"path of {rate_text(self.capacity_bits_per_s)}",
            None if self.loss is None else f"loss {self.loss:g}",
            None if self.queue is None else f"queue {self.queue}",
        ]
        return ", ".join(part for part in parts if part is not None).replace(", ×", " ×")


@dataclass(frozen=True)
class Runs:
    """A checked table of runs. Create it with one of the class methods."""

    table: pa.Table
    """The rows, with the columns of `SCHEMA`."""

    @classmethod
    def of_table(cls, table: pa.Table, name: str = "runs") -> Runs:
        """Checks a table whose columns may be in any order, and lack optional ones. `name` is that of the source for errors."""
        table = _with_columns(table, name)
        frame = table.drop_columns(["intervals"]).to_pandas()
        if len(frame) > MAX_RUNS:
            raise ValueError(f"{name}: {len(frame)} runs, at most {MAX_RUNS} are supported")
        for column, problem, is_wrong in _CHECKS:
            wrong = frame.index[is_wrong(frame)]
            if len(wrong):
                row = int(wrong[0])
                value = table.column(column)[row].as_py()
                raise ValueError(f"{name}: row {row + 1}, {column}: {problem}, not {value!r}")
        _check_intervals(table, name)
        return cls(table)

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]], name: str = "runs") -> Runs:
        """Creates a table. Each row is a mapping from columns to values; missing optional ones are null."""
        rows = list(rows)
        for number, row in enumerate(rows, 1):
            unknown = sorted(set(row) - set(SCHEMA.names))
            if unknown:
                raise ValueError(f"{name}: row {number}: there is no column {unknown[0]!r}")
        try:
            return cls.of_table(pa.Table.from_pylist(rows, schema=SCHEMA), name)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Runs:
        """Reads a Parquet file that `write` has written. Raises `OSError`, or `ValueError` for other content."""
        try:
            with open(path, "rb") as file:
                metadata = pq.read_metadata(file)
                size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
                if metadata.num_rows > MAX_RUNS or size > MAX_BYTES:
                    raise ValueError(f"{os.fspath(path)}: {metadata.num_rows} runs, {size} bytes: at most {MAX_RUNS} and {MAX_BYTES}")
                table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{os.fspath(path)}: no Parquet file: {error}") from error
        return cls.of_table(table, os.fspath(path))

    @classmethod
    def concat(cls, tables: Iterable[Runs]) -> Runs:
        """Joins tables. A `run_id` in two of them raises `ValueError`."""
        return cls.of_table(pa.concat_tables([runs.table for runs in tables] or [SCHEMA.empty_table()]))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a Parquet file. A reader sees the former file or the whole new one."""
        path = Path(path)
        fresh = path.with_name(path.name + ".new")
        pq.write_table(self.table, fresh, compression="zstd", compression_level=COMPRESSION_LEVEL)
        os.replace(fresh, path)

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows without their intervals as CSV."""
        # Integers with null would be written as 4.0.
        self.table.drop_columns(["intervals"]).to_pandas(integer_object_nulls=True).to_csv(path, index=False)

    def frame(self) -> pd.DataFrame:
        """Returns the rows without their intervals."""
        frame: pd.DataFrame = self.table.drop_columns(["intervals"]).to_pandas()
        return frame

    def intervals(self, run_id: str) -> pd.DataFrame:
        """Returns the intervals of a run, ordered by stream and start; `KeyError` if there is no such run."""
        row = self.table.filter(pc.field("run_id") == run_id)
        if row.num_rows == 0:
            raise KeyError(run_id)
        frame = pd.DataFrame(row.column("intervals")[0].as_py() or [], columns=[field.name for field in _STREAM_INTERVAL])
        return frame.sort_values(["stream", "start_s"], ignore_index=True)

    def trace(self, run_id: str, interval_s: float, *, stream: int | None = None) -> npt.NDArray[np.float64]:
        """Returns the rates of a run in equal intervals from the first sample, in bits per second: of one stream, or of all together.

        The bytes of each measured interval are spread evenly over its time; so `interval_s` should not be shorter than those. The
        last, incomplete interval is left out. Raises `ValueError` if there is no whole one, `KeyError` without such a run.
        """
        frame = self.intervals(run_id)
        frame = frame[frame.stream >= 0] if stream is None and (frame.stream >= 0).any() else frame
        frame = frame if stream is None else frame[frame.stream == stream]
        first_s, last_s = frame.start_s.min(), frame.end_s.max()
        count = int((last_s - first_s) / interval_s + 1e-6) if len(frame) and interval_s > 0 else 0
        if not 1 <= count <= 10_000_000:
            raise ValueError(f"{run_id}: no interval of {interval_s:g} s: its intervals are from {first_s:g} to {last_s:g} s")
        edges = first_s + np.arange(count + 1) * interval_s
        received = np.zeros(count + 1)
        for _, of_stream in frame.groupby("stream"):
            times = np.concatenate([of_stream.start_s.iloc[:1], of_stream.end_s])
            received += np.interp(edges, times, np.concatenate([[0], of_stream["bytes"].cumsum()]))
        return np.asarray(8 * np.diff(received) / interval_s, dtype=np.float64)

    def configurations(self) -> list[tuple[Configuration, Runs]]:
        """Returns the runs of each configuration, in the order of their first rows."""
        keys = [Configuration(**row) for row in self.table.select([field.name for field in fields(Configuration)]).to_pylist()]
        of_key = {key: [other == key for other in keys] for key in dict.fromkeys(keys)}
        return [(key, Runs(self.table.filter(pa.array(is_kept)))) for key, is_kept in of_key.items()]

    def to_xarray(self) -> Any:
        """Returns the throughputs as an `xarray.DataArray` with the dimensions configuration, rtt_s, repetition; NaN where there is no
        run. Needs the package xarray. Raises `ValueError` for two runs with the same values of all three."""
        import xarray

        parts = []
        for key, runs in self.configurations():
            index = pd.MultiIndex.from_frame(runs.frame()[["rtt_s", "repetition"]])
            if not index.is_unique:
                raise ValueError(f"{key}: several runs with the same round trip and repetition")
            rates = pd.Series(runs.frame().throughput_bits_per_s.to_numpy(), index=index)
            parts.append(rates.to_xarray().expand_dims(configuration=[str(key)]))
        return xarray.concat(parts, dim="configuration", join="outer").rename("throughput_bits_per_s")


def _with_columns(table: pa.Table, name: str) -> pa.Table:
    """Returns the table with the columns of `SCHEMA` in its order and types."""
    unknown = sorted(set(table.column_names) - set(SCHEMA.names))
    if unknown:
        raise ValueError(f"{name}: there is no column {unknown[0]!r}; values that only one tool has belong to 'detail'")
    missing = [column for column in REQUIRED if column not in table.column_names]
    if missing:
        raise ValueError(f"{name}: column {missing[0]!r} is missing")
    columns = [table.column(field.name) if field.name in table.column_names else pa.nulls(table.num_rows, field.type) for field in SCHEMA]
    try:
        return pa.table(columns, names=SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _is_no_object(text: str | None) -> bool:
    if text is None or pd.isna(text):
        return False
    try:
        return not isinstance(json.loads(text), dict)
    except ValueError:
        return True


def _within(column: str, low: float, high: float = 1e18) -> Callable[[pd.DataFrame], Any]:
    """Returns a check that finds values out of the range; null passes."""
    return lambda frame: frame[column].notna() & ~frame[column].between(low, high)


_CHECKS: tuple[tuple[str, str, Callable[[pd.DataFrame], Any]], ...] = (
    *((column, "a value is required", lambda frame, column=column: frame[column].isna()) for column in REQUIRED),
    ("run_id", "expected a value that no other row has", lambda frame: frame.run_id.duplicated()),
    ("streams", "expected 1 to 10,000", _within("streams", 1, 10_000)),
    ("rtt_s", "expected 0 to 5 seconds (milliseconds?)", _within("rtt_s", 0, MAX_RTT_S)),
    ("repetition", "expected 0 or more", _within("repetition", 0)),
    ("buffer_bytes", "expected 1 byte or more", _within("buffer_bytes", 1)),
    ("planned_s", "expected more than 0 seconds", _within("planned_s", 1e-9, 1e9)),
    ("planned_bytes", "expected 1 byte or more", _within("planned_bytes", 1)),
    ("duration_s", "expected more than 0 seconds", _within("duration_s", 1e-9, 1e9)),
    ("bytes", "expected 0 bytes or more", _within("bytes", 0)),
    ("throughput_bits_per_s", "expected 0 to 10^15 bit/s", _within("throughput_bits_per_s", 0, 1e15)),
    ("capacity_bits_per_s", "expected 1 to 10^15 bit/s", _within("capacity_bits_per_s", 1, 1e15)),
    ("loss", "expected 0 to 1", _within("loss", 0, 1)),
    ("detail", "expected a JSON object", lambda frame: frame.detail.map(_is_no_object).astype(bool)),
    ("machine", "expected a JSON object", lambda frame: frame.machine.map(_is_no_object).astype(bool)),
    (
        "throughput_bits_per_s",
        "expected 8 × bytes / duration_s",
        lambda frame: (
            (8 * frame.bytes / frame.duration_s - frame.throughput_bits_per_s).abs()
            > _TOLERANCE * frame.throughput_bits_per_s + 16 / frame.duration_s
        ),
    ),
)
"""Column, expectation, and the rows that do not meet it."""


def _check_intervals(table: pa.Table, name: str) -> None:
    lists = table.column("intervals").combine_chunks()
    intervals = pc.list_flatten(lists)
    if len(intervals) == 0:
        return
    start_s, end_s, size = (pc.struct_field(intervals, field).to_numpy(zero_copy_only=False) for field in ("start_s", "end_s", "bytes"))
    # A missing number is NaN, for which no comparison holds.
    is_valid = (start_s >= 0) & (start_s < end_s) & (end_s < 1e9) & (size >= 0)
    is_valid &= pc.is_valid(pc.struct_field(intervals, "stream")).to_numpy(zero_copy_only=False)
    if not is_valid.all():
        first = int(np.argmin(is_valid))
        number = int(pc.list_parent_indices(lists)[first].as_py()) + 1
        found = intervals[first].as_py()
        raise ValueError(f"{name}: row {number}, intervals: expected stream, 0 <= start_s < end_s and bytes >= 0, not {found}")
