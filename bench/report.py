"""Tables from the raw samples: a summary with the targets, and one table a job."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Callable, Sequence

from circumstances import told
from harness import median_and_spread
from settings import MIB

AIMS = {
    "large-down-memory": 1.2,
    "large-up-memory": 1.3,
    "small-down-memory": 1.5,
    "small-up-memory": 1.5,
    "listing-flat": 2.0,
    "listing-deep": 2.0,
    "listing-deep-fifth": 2.0,
}
"""The ratio that `docs/concepts/roadmap.md` sets; where it sets none it is 1: at least the best peer."""
REQUEST_AIMS = {"read": 1.5, "readv": 2.0}
"""Requests per second of server CPU, over XRootD 6.2."""
BARE_AIM = 0.9
CHECKSUM_AIM_PERCENT = 5
ROUND_TRIP_AIMS = (2, 1)
"""Cold and warm."""
MEMORY_AIM_MIB = 256

REQUESTS = {"read": "read 4 KiB", "readv": "readv 1024 × 1.5 KiB", "stat": "stat"}

CAVEATS = """# Benchmark results

Made by `make bench` (see [how](../README.md)); the raw samples are in the JSON files beside this one. Read these before the tables:

- One machine, loopback: server and client share its cores, so processor seconds matter as much as the rate. Figures drift from hour to hour; only ratios
  within one table are worth quoting. Contenders were run in turn; `n` is how often.
- **The work is not quite alike.** Over XRootD both towpath and xrdcp check a CRC32C for each page on the way, or towpath one of the whole file where the
  server knows it; towpath also computes CRC32C and Adler32 of what it writes and keeps them; curl and rclone check nothing. `xrdcp --cksum` reads the
  target again. towpath has no switch that turns checking off.
- **Known digests.** Downloads of one large file, and of small files, start with the files' CRC32C and Adler32 kept by the server in extended attributes, as
  after an upload through towpath; the benchmark had them computed before (`towpath sum`), outside the time. XRootD reads the same attributes. Rows with
  "digest unknown" have them removed before each run. Uploads start from files without known digests.
- Bytes were compared in the warm-up run and in the last run of each contender. Times end when the command ends: on disk, data may still be in the page
  cache; before each run on disk all earlier data were written out and the large source was dropped from the cache (where the virtual machine's host may
  still have it). Uploads, TLS and disk have smaller sizes, as each table says. towpath syncs files that it receives as a
  server (`durability = "file"`), the others do not.
- nginx has no WebDAV listing here, so rclone has no upload pair of its own; curl gets the small files' URLs from a list that the benchmark writes.
- A contender that failed, or took more than a minute, is named as left out; if that befalls all peers, the ratio is `nan`.
- A bare loop is `sendfile` → receive → `write` or `splice` over 1 or 2 connections, without protocol or name, with or without a CRC32C of what came
  (spliced data are read back for it): a limit, not a peer.
- `ratio` is the contender's median rate over the best median rate (or the best median time over its own) of all pairs in which towpath has no part.
  `target` is what [the roadmap](../../docs/concepts/roadmap.md) or the job asks of the pair of two towpaths; where nothing is asked, 1.00.
- Latency is simulated by a proxy on loopback that delays each direction and the connecting; slow start is not in it. Round trips are the median time over
  what the same command takes without delay; the targets allow a tenth more for proxy and clock. Cold is from the start of a command to the first byte;
  warm from the last byte of a first file to the first of a second, through one command given both files (towpath, curl) or a shell asked for one after the
  other (xrdfs).
- Memory is the peak of all resident pages of the server, mapped files too.
"""

Runs = dict[str, list[dict]]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose first `left` columns are text."""
    lines: list[Sequence[str]] = [header, ["---" if column < left else "---:" for column in range(len(header))], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def yes(met: bool) -> str:
    return "yes" if met else "no"


def is_foreign(name: str) -> bool:
    return "towpath" not in name and not name.startswith("bare")


def middle(samples: list[dict], key: str) -> float:
    return statistics.median(sample[key] for sample in samples)


def ratios(runs: Runs) -> dict[str, float]:
    """How many times as fast as the best foreign pair each contender is."""
    foreign = [middle(samples, "seconds") for name, samples in runs.items() if is_foreign(name)]
    best = min(foreign, default=float("nan"))
    return {name: best / middle(samples, "seconds") for name, samples in runs.items()}


def own_pair(record: dict) -> str | None:
    """The contender that the target is for: the pair of two towpaths, which stands first."""
    return next((name for name in record["runs"] if name.startswith("towpath")), None)


def target(record: dict, name: str) -> str:
    return f"≥ {AIMS.get(record['job'], 1.0):.2f}" if name == own_pair(record) else ""


def fastest_first(runs: Runs) -> list[tuple[str, list[dict]]]:
    return sorted(runs.items(), key=lambda item: middle(item[1], "seconds"))


def seconds_table(record: dict) -> str:
    """Jobs whose result is how long they take."""
    rows = []
    ratio = ratios(record["runs"])
    for name, samples in fastest_first(record["runs"]):
        median, least, most = median_and_spread([sample["seconds"] for sample in samples])
        cpu = [f"{middle(samples, key):.2f}" for key in ("server_cpu_s", "client_cpu_s")]
        rows.append([name, str(len(samples)), f"{median:.3f} ({least:.3f}–{most:.3f})", f"{ratio[name]:.2f}", target(record, name), *cpu])
    what = f"{record['entries']:,} entries.\n\n" if "entries" in record else ""
    return what + markdown(["contender", "n", "s, median (least–most)", "ratio", "target", "server CPU s", "client CPU s"], rows)


def transfer_table(record: dict) -> str:
    """Jobs that move a known number of bytes."""
    rows = []
    ratio = ratios(record["runs"])
    gigabytes = record["bytes"] / 1e9
    for name, samples in fastest_first(record["runs"]):
        median, least, most = median_and_spread([gigabytes * 8 / sample["seconds"] for sample in samples])
        server, client = (middle(samples, key) / gigabytes for key in ("server_cpu_s", "client_cpu_s"))
        cpu = [f"{value:.2f}" for value in (server, client, server + client)]
        rate = f"{median:.2f} ({least:.2f}–{most:.2f})"
        rows.append([name, str(len(samples)), rate, f"{ratio[name]:.2f}", target(record, name), *cpu])
    header = ["contender", "n", "Gbit/s, median (least–most)", "ratio", "target", "server CPU s/GB", "client CPU s/GB", "both"]
    what = f"{record['files']:,} files, " if "files" in record else ""
    return f"{what}{gigabytes:.2f} GB.\n\n" + markdown(header, rows) + checksum_table(record)


def checksum_table(record: dict) -> str:
    """What digests of the whole file cost, if the job has contenders with and without."""
    rows = []
    for dear, plain in record.get("checksum_pairs", []):
        if {dear, plain} <= record["runs"].keys():
            cost = [f"{overhead_percent(record, dear, plain, keys):+.0f} %" for keys in (["seconds"], ["server_cpu_s", "client_cpu_s"])]
            rows.append([dear, plain, *cost, f"≤ {CHECKSUM_AIM_PERCENT} %" if dear.startswith("towpath cp --checksum") else ""])
    return "\n\n" + markdown(["with", "compared with", "time", "CPU of both", "target"], rows, left=2) if rows else ""


def overhead_percent(record: dict, dear: str, plain: str, keys: list[str]) -> float:
    """By how much the sum of `keys` of `dear` exceeds that of `plain`."""
    much, little = (sum(middle(record["runs"][name], key) for key in keys) for name in (dear, plain))
    return 100 * (much / little - 1)


def per_cpu_second(row: dict) -> float:
    return statistics.median(sample["requests"] / max(sample["server_cpu_s"], 0.01) for sample in row["samples"])


def request_ratios(record: dict) -> list[tuple[dict, float]]:
    """Each row with its requests per server CPU second over those of XRootD 6.2."""
    rows = [row for row in record["rows"] if "kind" in row]
    best = {(row["kind"], row["clients"], row["depth"]): per_cpu_second(row) for row in rows if row["server"] in ("xrootd6", "xrootd 6.2")}
    return [(row, per_cpu_second(row) / best[row["kind"], row["clients"], row["depth"]]) for row in rows]


def requests_table(record: dict) -> str:
    """Requests by the load generator; the ratio is of requests per server CPU second, over XRootD 6.2."""
    rows = []
    for row, ratio in request_ratios(record):
        rate, least, most = median_and_spread([sample["requests"] / sample["seconds"] for sample in row["samples"]])
        aim = f"≥ {REQUEST_AIMS.get(row['kind'], 1.0):.2f}" if row["server"] == "towpath" else ""
        case = [REQUESTS[row["kind"]], str(row["clients"]), str(row["depth"]), row["server"], str(len(row["samples"]))]
        figures = [f"{rate:,.0f} ({least:,.0f}–{most:,.0f})", f"{per_cpu_second(row):,.0f}", f"{ratio:.2f}", aim, f"{middle(row['samples'], 'p99_us'):,.0f}"]
        rows.append([*case, *figures])
    header = ["request", "clients", "in flight each", "server", "n", "requests/s, median (least–most)", "per server CPU s", "ratio", "target", "p99 µs"]
    return markdown(header, rows)


def round_trips(record: dict, name: str, key: str) -> float | None:
    """The median over what the same takes without delay, in round trips."""
    medians = []
    for each in (name, name + ", no delay"):
        values = [sample[key] for sample in record["runs"].get(each, []) if sample[key] is not None]
        if not values:
            return None
        medians.append(statistics.median(values))
    return (medians[0] - medians[1]) / record["round_trip_s"]


def first_byte_table(record: dict) -> str:
    """Seconds and round trips, cold and warm."""
    rows = []
    for name, samples in fastest_first({name: samples for name, samples in record["runs"].items() if not name.endswith("no delay")}):
        cells = [name, str(len(samples))]
        for key, aim in zip(("seconds", "warm_s"), ROUND_TRIP_AIMS, strict=True):
            values = [sample[key] for sample in samples if sample[key] is not None]
            trips = round_trips(record, name, key)
            if trips is None:
                cells += ["", "", ""]
                continue
            median, least, most = median_and_spread(values)
            cells += [f"{median:.3f} ({least:.3f}–{most:.3f})", f"{trips:.2f}", f"≤ {aim}" if name == own_pair(record) else ""]
        rows.append(cells)
    return markdown(["contender", "n", "cold s (least–most)", "round trips", "target", "warm s (least–most)", "round trips", "target"], rows)


def memory_table(record: dict) -> str:
    """The most that was resident."""
    rows = []
    for name, samples in record["samples"].items():
        median, least, most = median_and_spread([sample["peak_rss_bytes"] / MIB for sample in samples])
        rate = statistics.median(sample["requests"] / sample["seconds"] for sample in samples)
        aim = f"≤ {MEMORY_AIM_MIB}" if name == "towpath" else ""
        rows.append([name, str(len(samples)), f"{median:.0f} ({least:.0f}–{most:.0f})", aim, f"{rate:,.0f}"])
    about = f"{record['clients']} clients, {record['depth']} requests in flight each: reads of 4 KiB and 1 MiB and vectors of 1024 × 1.5 KiB, a third each."
    return f"{about}\n\n" + markdown(["server", "n", "MiB resident at most, median (least–most)", "target", "requests/s"], rows)


TABLES: dict[str, Callable[[dict], str]] = {
    "transfer": transfer_table,
    "seconds": seconds_table,
    "requests": requests_table,
    "first-byte": first_byte_table,
    "memory": memory_table,
}


def table(record: dict) -> str:
    """One job as Markdown."""
    failures = [f"\n\nLeft out: {name}: {why.splitlines()[0]}" for name, why in record.get("left_out", {}).items()]
    return TABLES[record["shape"]](record) + "".join(failures)


def verdict(job: str, what: str, figure: str, aim: str, met: bool) -> list[str]:
    return [job, what, figure, aim, yes(met)]


def race_summary(record: dict) -> list[list[str]]:
    """The own pair over the best peer, over the bare loop, and the checksum's cost."""
    runs, job, own = record["runs"], record["job"], own_pair(record)
    if own is None:
        return []
    ratio, aim = ratios(runs)[own], AIMS.get(job, 1.0)
    best = next((name for name, _ in fastest_first(runs) if is_foreign(name)), None)
    if best is None:
        return [[job, "rate over the best peer", "no peer came to an end", f"≥ {aim:.2f}", "not comparable"]]
    rows = [verdict(job, f"rate over the best peer ({best})", f"{ratio:.2f}", f"≥ {aim:.2f}", ratio >= aim)]
    listed = {name: samples for name, samples in runs.items() if "URLs given" not in name}
    if len(listed) < len(runs):
        ratio = ratios(listed)[own]
        rows.append(verdict(job, "the same over peers that find the files by themselves", f"{ratio:.2f}", f"≥ {aim:.2f}", ratio >= aim))
    bare = {name: middle(samples, "seconds") for name, samples in runs.items() if name.startswith("bare")}
    for what, loops in (("", bare), (" that computes a CRC32C", {name: time for name, time in bare.items() if "crc32c" in name})):
        if loops:
            share = min(loops.values()) / middle(runs[own], "seconds")
            rows.append(verdict(job, f"rate over the best bare loop{what}", f"{share:.2f}", f"≥ {BARE_AIM:.2f}", share >= BARE_AIM))
    for dear, plain in record.get("checksum_pairs", []):
        if dear.startswith("towpath cp --checksum") and {dear, plain} <= runs.keys():
            cost = overhead_percent(record, dear, plain, ["seconds"])
            rows.append(verdict(job, "time that `--checksum` costs", f"{cost:+.0f} %", f"≤ {CHECKSUM_AIM_PERCENT} %", cost <= CHECKSUM_AIM_PERCENT))
    return rows


def requests_summary(record: dict) -> list[list[str]]:
    """The range over all cases of a kind."""
    rows = []
    own = [(row, ratio) for row, ratio in request_ratios(record) if row["server"] == "towpath"]
    for kind in dict.fromkeys(row["kind"] for row, _ in own):
        found, aim = [ratio for row, ratio in own if row["kind"] == kind], REQUEST_AIMS.get(kind, 1.0)
        figure = f"{min(found):.2f}–{max(found):.2f}"
        rows.append(verdict(record["job"], f"{REQUESTS[kind]} per server CPU s over XRootD 6.2", figure, f"≥ {aim:.2f}", min(found) >= aim))
    return rows


def first_byte_summary(record: dict) -> list[list[str]]:
    rows = []
    own = own_pair(record)
    for what, key, aim in zip(("cold", "warm"), ("seconds", "warm_s"), ROUND_TRIP_AIMS, strict=True):
        trips = round_trips(record, own, key) if own else None
        if trips is not None:
            # A tenth of a round trip is what the proxy and the clock may add.
            rows.append(verdict(record["job"], f"round trips to the first byte, {what}", f"{trips:.2f}", f"≤ {aim}", trips <= aim + 0.1))
    return rows


def memory_summary(record: dict) -> list[list[str]]:
    peak = max(sample["peak_rss_bytes"] for sample in record["samples"]["towpath"]) / MIB
    what = f"MiB resident under {record['clients']} busy clients"
    return [verdict(record["job"], what, f"{peak:.0f}", f"≤ {MEMORY_AIM_MIB}", peak <= MEMORY_AIM_MIB)]


SUMMARIES: dict[str, Callable[[dict], list[list[str]]]] = {
    "transfer": race_summary,
    "seconds": race_summary,
    "requests": requests_summary,
    "first-byte": first_byte_summary,
    "memory": memory_summary,
}


def document(results: pathlib.Path) -> str:
    """All jobs as one page."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    summary = [row for record in records for row in SUMMARIES[record["shape"]](record)]
    parts = [CAVEATS, "## All targets\n\n" + markdown(["job", "figure", "towpath", "target", "met"], summary, left=2) + "\n"]
    for record in records:
        quick = " **A quick run: smaller data, not for quoting.**" if record["quick"] else ""
        parts.append(
            f"## {record['job']}\n\n{told([record['circumstances']])}{quick}\n\n{table(record)}\n"
        )
    return "\n".join(parts)
