"""The page of the emulated paths: is the emulator what it says, then a table a job, and all targets first."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Sequence

from harness import median_and_spread
from report import is_foreign, markdown
from wan_lab import PAYLOAD_SHARE
from wan_resume import KILLED

CAVEATS = """# Emulated paths

Made by `make bench-wan` (see [how](../../README.md)); every sample is in the JSON files beside this page. Read these before the tables:

- One machine: the emulator, servers and clients share its cores. Real kernel TCP between two network namespaces, MTU 1500, a drop-tail queue of one
  bandwidth-delay product (at least 1 MiB); `towpath wan` carries the packets ([how](../../../docs/rfcs/0002-wan-emulator.md)). Rates are of files' bytes over the whole
  time of the command, start, handshakes, slow start and end included. 1 Gbit/s carries at most 941.5 Mbit/s of payload.
- Connections may buffer up to 512 MiB (`--buf`), as on a host that is set up for transfers. What a connection learned is not kept for the next one; what towpath remembers of a path
  ([how](../../../docs/mover.md#how-many-connections-tunerrs-spreadrs-of-the-client)) is, from the second repetition over a path on. As root, towpath asks for BBR at both ends where the round trip is 10 ms or more.
- towpath brings a file to the disk (fsync) before it shows it; its peers do not.
- **`*` was cut off** at the job's limit: its rate is what it had received until then (for one file by what the link carried, for trees by the files that were
  whole; for seconds, the time that all would take at that rate). **`!`**: the machine, not the link, had a part in it: packets that it lost, or handed over late by more than
  0.1 ms and 2 % of the round trip on average. `–` failed; the JSON file says how.
- Contenders took turns over each path, and what they brought was compared with the source each time. towpath, first in each table, has no option but `-r`; its peers have those that suit the job,
  and curl and aria2c the list of URLs too. Over XRootD both towpath and xrdcp check what comes; curl, aria2c, rclone and globus-url-copy check nothing. globus-url-copy's pipelining (`-pp`) helps
  only between two servers, which these transfers are not.
- Sources' digests are known to towpath's server beforehand, as after an upload. nginx stands for HTTP servers, and has no listing that a WebDAV client could use.
- The `ratio` is of towpath's better protocol (named beside its rate) over the best peer, and where there is loss also over the best one without options. What bounds a job is said below its table.
"""

AIMS: dict[str, Callable[[dict], float | None]] = {
    "leaf": lambda path: 1.0,
    "small-down": lambda path: 1.0,
    "small-up": lambda path: 1.0,
    "mixed-down": lambda path: 1.0,
    "100ge": lambda path: 1.0,
    "fast": lambda path: 1.15 if path["rtt_ms"] >= 200 else 1.0,
}
"""What is asked of the ratio to the best of all peers over a path, by how jobs' names begin."""

PLAIN_AIMS: dict[str, Callable[[dict], float | None]] = {
    "loss": lambda path: 10.0 if path["rtt_ms"] >= 90 else None,
    "light": lambda path: 2.0 if math.isclose(path["loss"], 1e-4) else None,
}
"""The same of the ratio to the best peer that was given no option: where there is loss, that is one stream."""

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
    "light": "CUBIC's mean window under loss p is 1.05 × (RTT / p)^¾ segments in each connection: 690 Mbit/s at 10⁻⁵, 123 at 10⁻⁴, 22 at 10⁻³; the link carries 941.",
    "small": "Bytes take 0.85 s at the link's rate, the window's opening over 100 ms about 1 s more; the rest is round trips that nothing hides.",
    "mixed": "Bound by the payload rate and, while the files are small, by round trips.",
    "100ge": "Bound by the payload rate; small files by round trips, and the whole by its largest file.",
    "resume": "Bound by the payload rate, a start of the command for each kill, and reading back what is there.",
    "checksum": "Bound by the payload rate, and at its end by the disk.",
    "fast": "Bound by 4,707 Mbit/s of payload, slow start, and processor time: two cores carry the emulator, the server and the client.",
}


def beginning(job: str, table: dict) -> object:
    """The entry whose name the job's begins with, the longest first."""
    found = sorted((name for name in table if job.startswith(name)), key=len)
    return table[found[-1]] if found else None


def emulation_share(sample: dict, path: dict) -> bool:
    """Whether the machine had a part in the sample."""
    emulation = sample["emulation"]
    return emulation["machine_lost"] > 0 or emulation["late_us"] > max(100, 20 * path["rtt_ms"])


def mbit(sample: dict) -> float:
    return sample["bytes"] * 8 / sample["seconds"] / 1e6


def figure(record: dict, path: dict, samples: list[dict]) -> str:
    """One cell: rate or seconds, with marks."""
    seconds = record["shape"] == "seconds"
    values = [record["bytes"] * 8 / 1e6 / max(mbit(sample), 1e-9) if seconds else mbit(sample) for sample in samples]
    median, least, most = median_and_spread(values)
    marks = cut_mark(samples) + ("!" if any(emulation_share(sample, path) for sample in samples) else "")
    spread = f" ({digits(least)}–{digits(most)})" if len(samples) > 1 else ""
    return f"{digits(median)}{marks}{spread}"


def cut_mark(samples: list[dict]) -> str:
    return "*" if any(sample["cut"] for sample in samples) else ""


def digits(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def heading(path: dict, cells: Sequence[dict]) -> str:
    """What tells a path from the others of its table."""
    parts = {"rtt_ms": f"{path['rtt_ms']:g} ms", "loss": f"loss {path['loss']:g}"}
    telling = [text for key, text in parts.items() if len({cell["path"][key] for cell in cells}) > 1]
    return ", ".join(telling) or parts["rtt_ms"]


def median_mbit(samples: list[dict]) -> float:
    return statistics.median(map(mbit, samples))


def is_plain_peer(name: str) -> bool:
    """A peer that was given no option."""
    return is_foreign(name) and not any(mark in client_of(name) for mark in (" -", ","))


def client_of(name: str) -> str:
    """The contender's name without its server."""
    return name.split(" <-")[0].split(" ->")[0]


def best(runs: dict[str, list[dict]], of: Callable[[str], bool]) -> tuple[str, float] | None:
    """The fastest of some contenders."""
    rates = {name: median_mbit(samples) for name, samples in runs.items() if of(name)}
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def names_of(record: dict) -> list[str]:
    """All contenders, in the order of their rows."""
    return list(dict.fromkeys(name for cell in record["cells"] for name in (*cell["runs"], *cell["left_out"])))


def transfer_table(record: dict) -> str:
    """Rates or seconds by path, then processor seconds."""
    cells = record["cells"]
    heads = [heading(cell["path"], cells) for cell in cells]
    order = sorted(names_of(record), key=lambda name: is_foreign(name))
    rows, cpu_rows = [], []
    for name in order:
        figures, cpu = [], []
        for cell in cells:
            samples = cell["runs"].get(name)
            figures.append(figure(record, cell["path"], samples) if samples else "–")
            cpu.append(cpu_figure(samples) if samples else "–")
        rows.append([name, *figures])
        cpu_rows.append([name, *cpu])
    emulator = [digits(max((sample["emulation"]["cpu_s"] / sample["seconds"] for samples in cell["runs"].values() for sample in samples), default=0)) for cell in cells]
    cpu_rows.append(["emulator at most, processors", *emulator])
    unit = "s" if record["shape"] == "seconds" else "Mbit/s"
    files = f"{record['files']:,} files, " if "files" in record else ""
    path = cells[0]["path"]
    what = f"{files}{record['bytes'] / 1e6:,.0f} MB, {path['rate']}, {path['congestion'].upper()}, at most {record['limit_s']:.0f} s."
    parts = [what, markdown([unit, *heads], rows), "Processor seconds per GB, server + client:", markdown(["contender", *heads], cpu_rows)]
    return "\n\n".join(parts)


def cpu_figure(samples: list[dict]) -> str:
    """Of the server and of the client, per GB that arrived."""
    sides = [statistics.median(sample[key] / max(sample["bytes"] / 1e9, 1e-3) for sample in samples) for key in ("server_cpu_s", "client_cpu_s")]
    return " + ".join(f"{side:.2f}" for side in sides)


def transfer_summary(record: dict) -> list[list[str]]:
    """For each path the ratio to the best peer, and where that is asked for to the best one without options."""
    rows = []
    for cell in record["cells"]:
        rows += ratio_row(record, cell, is_foreign, AIMS)
        if beginning(record["job"], PLAIN_AIMS):
            rows += ratio_row(record, cell, is_plain_peer, PLAIN_AIMS)
    return rows


def ratio_row(record: dict, cell: dict, peers: Callable[[str], bool], aims: dict) -> list[list[str]]:
    """None if either side failed. Nothing is asked with BBR as the default."""
    own, peer = best(cell["runs"], lambda name: not is_foreign(name)), best(cell["runs"], peers)
    if own is None or peer is None:
        return []
    path, counts = cell["path"], cell["path"]["congestion"] == "cubic"
    aim_of, floor_of = beginning(record["job"], aims), beginning(record["job"], FLOORS)
    aim = aim_of(path) if callable(aim_of) and counts else None
    floor = floor_of(path, record) if callable(floor_of) and counts else None
    ratio = own[1] / max(peer[1], 1e-9)
    met = "" if aim is None and floor is None else yes(ratio >= (aim or 0) and own[1] >= (floor or 0))
    count = min(len(cell["runs"][name]) for name in (own[0], peer[0]))
    names = (("HTTP" if "HTTP" in own[0] else "xroot"), client_of(peer[0]))
    figures = [f"{digits(rate)}{cut_mark(cell['runs'][name])} ({shown})" for (name, rate), shown in zip((own, peer), names, strict=True)]
    figures = [str(count), *figures, f"{ratio:.2f}"]
    asked = [f"≥ {aim:.2f}" if aim else "", f"≥ {digits(floor)}" if floor else ""]
    return [[record["job"], heading(path, record["cells"]), *figures, *asked, met]]


def yes(met: bool) -> str:
    return "yes" if met else "no"


def ping_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        median, _, _ = median_and_spread(row["ping_ms"])
        excess, allowed = median - row["rtt_ms"], max(0.1, 0.02 * row["rtt_ms"])
        tenth = sorted(row["ping_ms"])[len(row["ping_ms"]) * 9 // 10]
        cells = [f"{row['rtt_ms']:g}", f"{median:.3f}", f"{min(row['ping_ms']):.3f}", f"{tenth:.3f}", f"{excess:+.3f}", f"{allowed:.1f}"]
        rows.append([*cells, yes(abs(excess) <= allowed)])
    header = ["asked, ms", "ping, median", "least", "nine tenths below", "off by", "allowed", "met"]
    return "40 echo requests over an idle path of 1 Gbit/s, one each 0.1 s.\n\n" + markdown(header, rows)


def payload_mbit(rate: str | None) -> float | None:
    """What a rate as `1Gbit` leaves for payload."""
    if rate is None:
        return None
    return float(rate.removesuffix("Gbit")) * 1000 * PAYLOAD_SHARE


def iperf_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        path, emulation, limit = row["path"], row["emulation"], payload_mbit(row["path"]["rate"])
        share = row["received_mbit"] / limit if limit else None
        cells = [path["rate"] or "unlimited", f"{path['rtt_ms']:g}", path["congestion"].upper(), f"{row['received_mbit']:,.1f}"]
        cells += [f"{share:.3f}" if share else "", f"{row['ramp_s']}"]
        cells += [f"{emulation['late_us']:.0f}", str(emulation["machine_lost"]), f"{emulation['cpu_s'] / (row['seconds'] + row['ramp_s']):.2f}"]
        rows.append([*cells, yes(share >= 0.97) if share and path["congestion"] == "cubic" else ""])
    header = ["link", "RTT, ms", "by", "iperf3, Mbit/s", "of the payload rate", "ramp left out, s", "late, µs", "lost by this machine", "emulator, processors", "≥ 0.97"]
    return "One connection of iperf3. BBR's rate is its own doing: it keeps little in the queue, and lets go of the path at times to measure it.\n\n" + markdown(header, rows)


def mathis_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        path, emulation = row["path"], row["emulation"]
        offered = row["received_mbit"] / row["predicted_mbit"]
        rows.append([f"{path['loss']:g}", f"{row['received_mbit']:.2f}", f"{row['predicted_mbit']:.2f}", f"{offered:.2f}", str(emulation["lost"])])
    logs = [(math.log(row["path"]["loss"]), math.log(row["received_mbit"])) for row in record["rows"] if row["path"]["loss"] <= 1e-2]
    slope = statistics.linear_regression(*zip(*logs, strict=True)).slope
    text = f"One Reno connection, 1 Gbit/s, {record['rows'][0]['path']['rtt_ms']:g} ms. The rate falls with loss to the power of −{-slope:.2f} up to 10⁻²; the formula says −0.5."
    return f"{text}\n\n" + markdown(["loss", "iperf3, Mbit/s", "MSS / RTT × √(3 / 2p)", "ratio", "segments lost"], rows)


BEFORE, AT_END = slice(10, 25), slice(-10, None)
"""Tenths of a second before the outage, and the last ones."""


def outage_table(record: dict) -> str:
    gaps = sorted(after - before for before, after in itertools.pairwise(record["replies_s"]))
    silent = sum(1 for rate in record["received_mbit"] if rate < 0.1) * record["interval_s"]
    rows = [
        ["the longest gap between echo replies: the outage, half a round trip, and the time between two requests", f"{gaps[-1]:.3f} s"],
        ["the next longest", f"{gaps[-2]:.3f} s"],
        ["a connection's silence: TCP tries again after waits that double", f"{silent:.1f} s"],
        ["its rate before and at the end, Mbit/s", ", ".join(f"{statistics.median(record['received_mbit'][part]):.1f}" for part in (BEFORE, AT_END))],
    ]
    return f"Both directions of 100 Mbit/s and 50 ms for {record['outage_s']} s.\n\n" + markdown(["what", "seen"], rows)


def resume_table(record: dict) -> str:
    """Each copy undisturbed and killed, and what the link carried for both."""
    parts = []
    for cell in record["cells"]:
        rows = []
        for name, samples in cell["runs"].items():
            broken = cell["runs"].get(name + KILLED)
            if broken is None:
                continue
            plain_s, broken_s = (statistics.median(sample["seconds"] for sample in each) for each in (samples, broken))
            carried = statistics.median(sample["emulation"]["passed_wire_bytes"] for sample in broken) * PAYLOAD_SHARE / record["bytes"]
            cut = cut_mark(samples)
            rows.append([name, f"{digits(plain_s)}{cut}", digits(broken_s), "" if cut else f"{broken_s / plain_s:.2f}", f"{carried:.2f}"])
        failed = [f"{name}: {why}" for name, why in cell["left_out"].items() if name.endswith(KILLED)]
        header = [f"{cell['path']['rtt_ms']:g} ms", "undisturbed, s", "killed three times, s", "ratio", "carried, of the file"]
        parts.append(markdown(header, rows) + "".join(f"\n- {line}" for line in failed))
    path = record["cells"][0]["path"]
    what = f"{record['bytes'] / 1e6:,.0f} MB, {path['rate']}, {path['congestion'].upper()}; each time halfway through what was left, and started again at once."
    return "\n\n".join([what, *parts])


TABLES: dict[str, Callable[[dict], str]] = {
    "rate": transfer_table,
    "seconds": transfer_table,
    "resume": resume_table,
    "ping": ping_table,
    "iperf": iperf_table,
    "mathis": mathis_table,
    "outage": outage_table,
}


def table(record: dict) -> str:
    """One job as Markdown."""
    return TABLES[record["shape"]](record)


def document(results: pathlib.Path) -> str:
    """All jobs as one page, the emulator's validation first."""
    records = [json.loads(path.read_text()) for path in results.glob("*.json")]
    records.sort(key=lambda record: (not record["job"].startswith("validate"), record["job"]))
    summary = [row for record in records if record["shape"] in ("rate", "seconds") for row in transfer_summary(record)]
    header = ["job", "path", "n", "towpath, Mbit/s", "best peer, Mbit/s", "ratio", "asked of the ratio", "of the rate", "met"]
    warning = "Jobs of quick runs, which say so below, have small files and few repetitions: they show where to look, and are not for quoting.\n\n"
    parts = [CAVEATS, "## All ratios\n\n" + (warning if any(record["quick"] for record in records) else "") + markdown(header, summary, left=2) + "\n"] if summary else [CAVEATS]
    for record in records:
        where = record["circumstances"]
        quick = " **A quick run: smaller data, not for quoting.**" if record["quick"] else ""
        bound = beginning(record["job"], BOUNDS)
        parts.append(
            f"## {record['job']}\n\n{where['towpath']}, {where['cores']} cores of {where['processor']}, kernel {where['kernel']}, {where['date']}, "
            f"load before {where['load_before']:.1f}.{quick if 'cells' in record else ''}\n\n{table(record)}\n" + (f"\n{bound}\n" if bound else "")
        )
    return "\n".join(parts)
