"""The page of the emulated paths: is the emulator what it says, then a table a job, and all targets first."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable

import wan_costs
from circumstances import told
from report import is_foreign, markdown, yes
from wan_figures import digits, failures, figure, heading, is_cut, marks, mbit, middle
from wan_validation_report import iperf_table, mathis_table, outage_table, ping_table

CAVEATS = """# Emulated paths

Made by `make bench-wan` (see [how](../../README.md)); every sample is in the JSON files beside this page. Read these before the tables:

- One machine: the emulator, servers and clients share its cores. Real kernel TCP between two network namespaces, MTU 1500, a drop-tail queue of one
  bandwidth-delay product (at least 1 MiB); `towpath wan` carries the packets ([how](../../../docs/rfcs/0002-wan-emulator.md)). Rates are of files' bytes over the whole
  time of the command, start, handshakes, slow start and end included. 1 Gbit/s carries at most 941.5 Mbit/s of payload.
- Connections may buffer up to 512 MiB (`--buf`), as on a host that is set up for transfers. What a connection learned is not kept for the next one; what towpath remembers of a path
  ([how](../../../docs/concepts/tuning.md#what-a-path-taught)) is, from the second repetition over a path on. Where losses are no congestion, towpath's connections change to BBR on the way ([how](../../../docs/concepts/tuning.md#congestion-control)).
- towpath brings a file to the disk (fsync) before it shows it; its peers do not.
- **`*` was cut off** at the job's limit: its rate is what it had received until then (for one file by what came to its host, for trees by the files that were
  whole; for seconds, the time that all would take at that rate), and nothing was compared with the source. **`!`**: the machine, not the link, had a part in it: packets that
  it lost, or handed over late by more than 0.1 ms and 2 % of the round trip on average. **`†`** failed, or brought something else, after the samples that its figure is of; `–` has none. What
  was wrong is said below the table. Where that befell towpath, or it was cut off and a rate is asked for, the target is not met.
- Sources and targets are in memory (tmpfs), but for `leaf`, `leaf-minute` and `checksum`, which go from disk to disk. Hosts take back what is free of
  a virtual machine's memory; here a copy of 4 GiB took up to four times as long for it. So before each large file in memory all that is free is held, and
  let go while a run needs it (for `light-cubic` and `loss-cubic` as much was written and freed before each run).
- Contenders took turns over each path, and what they brought was compared with the source each time that they came to their end. towpath, first in each table, has no option but `-r`; of its
  peers some have none, and the others those that suit the job; curl and aria2c have the list of URLs too. Over XRootD both towpath and xrdcp check what comes; curl, aria2c, rclone and
  globus-url-copy check nothing. globus-url-copy's pipelining (`-pp`) helps only between two servers, which these transfers are not.
- Sources' digests are known to towpath's server beforehand, as after an upload, unless a row says "digest unknown". nginx stands for HTTP servers, and has no listing that a WebDAV
  client could use.
- The `ratio` is of towpath's better protocol (named beside its rate) over the best peer; where there is loss also over the best one without options (`light`), or of those with one stream (`loss`).
  What bounds a job is said below its table.
"""

FLOORS: dict[str, Callable[[dict, dict], float | None]] = {
    # The file must take a minute: a shorter one is mostly slow start.
    "leaf": lambda path, record: (896 if path["rtt_ms"] <= 100 else 840) if record["bytes"] >= 7e9 else None,
    "loss": lambda path, _: 85 if path["rtt_ms"] >= 90 else None,
    "small-down": lambda path, record: record["bytes"] * 8e-6 / 3 if path["rtt_ms"] >= 100 else None,
    "small-up": lambda path, record: record["bytes"] * 8e-6 / 4 if path["rtt_ms"] >= 100 else None,
}
"""The Mbit/s that are asked for whatever peers do; small files in 3 and 4 s."""

BOUNDS = {
    "leaf": "Bound by the payload rate (941.5 Mbit/s), by slow start (a window of 10 segments doubles each round trip until it holds rate × round trip), and at its end by the disk.",
    "loss": "Bound by 94.1 Mbit/s × 0.98; CUBIC by its window under loss, 1.05 × (RTT / p)^¾ segments (RFC 9438 §5.1), in each connection.",
    "light": "CUBIC's mean window under loss p is 1.05 × (RTT / p)^¾ segments in each connection (RFC 9438 §5.1): 122 Mbit/s at 10⁻⁵, 21.7 at 10⁻⁴, 3.9 at 10⁻³; the link carries 941. What comes before the first loss is slow start.",
    "small": "Bytes take 0.85 s at the link's rate, the window's opening over 100 ms about 1 s more; the rest is round trips that nothing hides.",
    "mixed": "Bound by the payload rate and, while the files are small, by round trips.",
    "100ge": "Bound by the payload rate; small files by round trips, and the whole by its largest file.",
    "resume": "Bound by the payload rate, a start of the command for each kill, and reading back what is there.",
    "checksum": "Bound by the payload rate, and at its end by the disk. Where the digest is unknown, towpath checks each page over XRootD, and over HTTP nothing.",
    "fast": "Bound by 4,707 Mbit/s of payload, slow start, and processor time: two cores carry the emulator, the server and the client.",
}


def beginning(job: str, table: dict) -> object:
    """The entry whose name the job's begins with, the longest first."""
    found = sorted((name for name in table if job.startswith(name)), key=len)
    return table[found[-1]] if found else None


def is_plain_peer(name: str) -> bool:
    """A peer that was given no option."""
    return is_foreign(name) and not any(mark in client_of(name) for mark in (" -", ","))


def client_of(name: str) -> str:
    """The contender's name without its server."""
    return name.split(" <-")[0].split(" ->")[0]


def is_one_stream(name: str) -> bool:
    """A peer that fills the path with one connection."""
    return client_of(name) in ("xrdcp 6.2", "curl")


Asked = Callable[[dict], float | None]
"""What is asked over a path."""


@dataclasses.dataclass(frozen=True)
class Field:
    """Peers with which towpath is compared: in all jobs, or only where something is asked."""

    name: str
    has: Callable[[str], bool]
    asked: dict[str, Asked]
    """Of the ratio to the best of them, by how jobs' names begin."""
    everywhere: bool = False


FIELDS = [
    Field(
        "all",
        is_foreign,
        {
            "leaf": lambda path: 1.0,
            "small-down": lambda path: 1.0,
            "small-up": lambda path: 1.0,
            "mixed-down": lambda path: 1.0,
            "100ge": lambda path: 1.0,
            "fast": lambda path: 1.15 if path["rtt_ms"] >= 200 else 1.0,
        },
        everywhere=True,
    ),
    Field("without options", is_plain_peer, {"light": lambda path: 2.0 if math.isclose(path["loss"], 1e-4) else None}),
    Field("one stream", is_one_stream, {"loss": lambda path: 10.0 if path["rtt_ms"] >= 90 else None}),
]


def best(cell: dict, of: Callable[[str], bool]) -> tuple[str, float] | None:
    """The fastest of some contenders."""
    rates = {name: middle(samples, mbit) for name, samples in cell["runs"].items() if of(name)}
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def names_of(record: dict) -> list[str]:
    """All contenders in the order of their rows, towpath first."""
    names = dict.fromkeys(name for cell in record["cells"] for name in (*cell["runs"], *cell["left_out"]))
    return sorted(names, key=is_foreign)


def by_path(record: dict, corner: str, text: Callable[[dict, str], str], *more: list[str]) -> str:
    """A table with a row for each contender and a column for each path."""
    cells = record["cells"]
    rows = [[name, *(text(cell, name) if name in cell["runs"] else "–" for cell in cells)] for name in names_of(record)]
    return markdown([corner, *(heading(cell["path"], cells) for cell in cells)], [*rows, *more])


def transfer_table(record: dict) -> str:
    """Rates or seconds by path, then processor seconds, and what the queue dropped."""
    cells, path = record["cells"], record["cells"][0]["path"]
    files = f"{record['files']:,} files, " if "files" in record else ""
    parts = [
        f"{files}{record['bytes'] / 1e6:,.0f} MB, {path['rate']}, {path['congestion'].upper()}, at most {record['limit_s']:.0f} s.",
        by_path(record, "s", lambda cell, name: figure(cell, name, functools.partial(seconds_for_all, record)))
        if record["shape"] == "seconds"
        else by_path(record, "Mbit/s", lambda cell, name: figure(cell, name, mbit)),
        failures(cells),
        "Processor seconds per GB, server + client:",
        by_path(
            record,
            "contender",
            cpu_figure,
            ["emulator at most, processors", *(processors(cell, "cpu_s") for cell in cells)],
            ["taken by the hypervisor at most, processors", *(processors(cell, "stolen_s") for cell in cells)],
        ),
        "Dropped by the queue, % of the segments that both directions were offered:",
        by_path(record, "contender", drop_figure),
    ]
    return "\n\n".join(part for part in parts if part)


def seconds_for_all(record: dict, sample: dict) -> float:
    """What all bytes take at the sample's rate."""
    return record["bytes"] * 8 / 1e6 / max(mbit(sample), 1e-9)


def cpu_figure(cell: dict, name: str) -> str:
    """Of the server and of the client, per GB that arrived."""
    sides = [middle(cell["runs"][name], lambda sample, key=key: sample[key] / max(sample["bytes"] / 1e9, 1e-3)) for key in ("server_cpu_s", "client_cpu_s")]
    return " + ".join(f"{side:.2f}" for side in sides)


def processors(cell: dict, seconds: str) -> str:
    """The largest share of any sample's time that `seconds` of its emulation were; nothing where older samples do not say."""
    samples = [sample for of_one in cell["runs"].values() for sample in of_one]
    shares = [sample["emulation"][seconds] / sample["seconds"] for sample in samples if seconds in sample["emulation"]]
    return digits(max(shares)) if shares else "–"


def drop_figure(cell: dict, name: str) -> str:
    """How far a mover overshot the queue."""
    emulations = [sample["emulation"] for sample in cell["runs"][name]]
    if not all("offered" in emulation for emulation in emulations):
        return ""
    return f"{100 * middle(emulations, lambda emulation: emulation['queue_dropped'] / max(emulation['offered'], 1)):.2f}"


def transfer_summary(record: dict) -> list[list[str]]:
    """For each path the ratio to the best peer, and to the best one of other fields where that is asked for."""
    fields = [field for field in FIELDS if field.everywhere or beginning(record["job"], field.asked)]
    return [ratio_row(record, cell, field) for cell in record["cells"] for field in fields]


def ratio_row(record: dict, cell: dict, field: Field) -> list[str]:
    """towpath's better protocol over the best of the field. Nothing is asked with BBR as the default."""
    own, peer = best(cell, lambda name: not is_foreign(name)), best(cell, field.has)
    counts = cell["path"]["congestion"] == "cubic"
    aim_of, floor_of = beginning(record["job"], field.asked), beginning(record["job"], FLOORS)
    aim = aim_of(cell["path"]) if aim_of and counts else None
    floor = floor_of(cell["path"], record) if floor_of and counts and field.everywhere else None
    ratio = own[1] / max(peer[1], 1e-9) if own and peer else None
    protocol = "HTTP" if own and "HTTP" in own[0] else "xroot"
    figures = [
        str(min((len(cell["runs"][name]) for name, _ in filter(None, (own, peer))), default=0)),
        f"{digits(own[1])}{marks(cell, own[0])} ({protocol})" if own else "–",
        f"{digits(peer[1])}{marks(cell, peer[0])} ({client_of(peer[0])})" if peer else "–",
        f"{ratio:.2f}" if ratio else "",
    ]
    asked = [f"≥ {aim:.2f}" if aim else "", f"≥ {digits(floor)}" if floor else ""]
    met = verdict(cell, own, ratio, aim, floor) if aim or floor else ""
    return [record["job"], heading(cell["path"], record["cells"]), field.name, *figures, *asked, met]


def verdict(cell: dict, own: tuple[str, float] | None, ratio: float | None, aim: float | None, floor: float | None) -> str:
    """No if towpath ever failed over this path, or had to be cut off where a rate is asked for."""
    if own is None or any(not is_foreign(name) for name in cell["left_out"]):
        return "no"
    if floor and (own[1] < floor or is_cut(cell["runs"][own[0]])):
        return "no"
    if aim and ratio is None:
        return "not comparable"
    return yes(aim is None or ratio >= aim)


TABLES: dict[str, Callable[[dict], str]] = {
    "rate": transfer_table,
    "seconds": transfer_table,
    "resume": wan_costs.resume_table,
    "ping": ping_table,
    "iperf": iperf_table,
    "mathis": mathis_table,
    "outage": outage_table,
}


def table(record: dict) -> str:
    """One job as Markdown."""
    return TABLES[record["shape"]](record)


RATIOS = ["job", "path", "peers", "n", "towpath, Mbit/s", "best peer, Mbit/s", "ratio", "asked of the ratio", "of the rate", "met"]
WARNING = "Jobs of quick runs, which say so below, have small files and few repetitions: they show where to look, and are not for quoting."


def summaries(records: list[dict]) -> list[str]:
    """All that is asked, at one glance."""
    ratios = [row for record in records if record["shape"] in ("rate", "seconds") for row in transfer_summary(record)]
    costs = [row for record in records if "cells" in record for row in wan_costs.costs(record)]
    found = [f"## All ratios\n\n{markdown(RATIOS, ratios, left=3)}\n"] if ratios else []
    found += [f"## All costs\n\n{markdown(wan_costs.HEADER, costs, left=3)}\n"] if costs else []
    return [f"{WARNING}\n", *found] if found and any(record["quick"] for record in records) else found


def section(record: dict) -> str:
    """One job, with the circumstances of all its cells."""
    cells = record.get("cells", [])
    where = told([cell.get("circumstances", record["circumstances"]) for cell in cells] or [record["circumstances"]])
    quick = " **A quick run: smaller data, not for quoting.**" if record["quick"] and cells else ""
    bound = beginning(record["job"], BOUNDS)
    return f"## {record['job']}\n\n{where}{quick}\n\n{table(record)}\n" + (f"\n{bound}\n" if bound else "")


def document(results: pathlib.Path) -> str:
    """All jobs as one page, the emulator's validation first."""
    records = [json.loads(path.read_text()) for path in results.glob("*.json")]
    records.sort(key=lambda record: (not record["job"].startswith("validate"), record["job"]))
    return "\n".join([CAVEATS, *summaries(records), *map(section, records)])
