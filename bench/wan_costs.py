"""Overheads of towpath relative to itself: of a copy that is killed and resumed, and of a digest of the whole file."""

from __future__ import annotations

from report import CHECKSUM_AIM_PERCENT, is_foreign, markdown, yes
from wan_figures import digits, failures, figure, heading, is_cut, marks, middle, seconds
from wan_lab import PAYLOAD_SHARE
from wan_resume import KILLED, KILLS, ONE_BYTE

RESUME_AIM = 1.05
"""Allowed multiple of the undisturbed copy's time. In addition, each kill allows the time of one start, measured as a
copy of one byte."""
HEADER = ["job", "path", "contender", "n", "s (minimum–maximum)", "compared with, s", "cost", "target", "met"]


def resume_table(record: dict) -> str:
    """Formats each copy undisturbed and killed, and the bytes carried by the link for it."""
    parts = []
    for cell in record["cells"]:
        rows = []
        for name, samples in cell["runs"].items():
            if name + KILLED not in cell["runs"]:
                continue
            broken = cell["runs"][name + KILLED]
            carried = middle(broken, lambda sample: sample["emulation"]["passed_wire_bytes"]) * PAYLOAD_SHARE / record["bytes"]
            ratio = "" if is_cut(samples) else f"{middle(broken, seconds) / middle(samples, seconds):.2f}"
            rows.append([name, str(len(broken)), figure(cell, name, seconds), figure(cell, name + KILLED, seconds), ratio, f"{carried:.2f}"])
        header = [f"{cell['path']['rtt_ms']:g} ms", "n", "undisturbed, s", "killed three times, s", "ratio", "carried, relative to the file"]
        parts.append(markdown(header, rows))
    path = record["cells"][0]["path"]
    what = f"{record['bytes'] / 1e6:,.0f} MB, {path['rate']}, {path['congestion'].upper()}; killed each time halfway through the remaining bytes, and restarted immediately."
    return "\n\n".join(part for part in (what, *parts, failures(record["cells"])) if part)


def costs(record: dict) -> list[list[str]]:
    """Returns the rows of a job; empty if it has no such figures."""
    found = []
    for cell in record["cells"]:
        found += [checksum_row(record, cell, dear, plain) for dear, plain in record.get("checksum_pairs", []) if {dear, plain} <= cell["runs"].keys()]
        own = [name for name in cell["runs"] if not is_foreign(name)]
        found += [resume_row(record, cell, name) for name in own if {name + KILLED, name + ONE_BYTE} <= cell["runs"].keys()]
    return found


def checksum_row(record: dict, cell: dict, dear: str, plain: str) -> list[str]:
    samples = {name: cell["runs"][name] for name in (dear, plain)}
    percent = 100 * (middle(samples[dear], seconds) / middle(samples[plain], seconds) - 1)
    target = "" if is_foreign(dear) else f"≤ {CHECKSUM_AIM_PERCENT} %"
    met = yes(percent <= CHECKSUM_AIM_PERCENT and holds(cell, dear, plain)) if target else ""
    return row(record, cell, dear, (dear, plain), figure(cell, plain, seconds), f"{percent:+.1f} %", target, met)


def resume_row(record: dict, cell: dict, name: str) -> list[str]:
    broken, plain, start = (middle(cell["runs"][name + suffix], seconds) for suffix in (KILLED, "", ONE_BYTE))
    allowed = RESUME_AIM * plain + KILLS * start
    met = yes(broken <= allowed and holds(cell, name, name + KILLED, name + ONE_BYTE)) if counts(cell) else ""
    with_marks = f"{digits(plain)}{marks(cell, name)}, a start {digits(start)}"
    target = f"≤ {digits(allowed)} s" if counts(cell) else ""
    return row(record, cell, name + KILLED, (name, name + KILLED), with_marks, f"{broken - plain:+.1f} s", target, met)


def row(record: dict, cell: dict, dear: str, both: tuple[str, str], plain: str, cost: str, target: str, met: str) -> list[str]:
    count = min(len(cell["runs"][name]) for name in both)
    return [record["job"], heading(cell["path"], record["cells"]), dear, str(count), figure(cell, dear, seconds), plain, cost, target, met]


def counts(cell: dict) -> bool:
    """Returns whether the targets apply to the cell. They do not with BBR as the hosts' default."""
    return cell["path"]["congestion"] == "cubic"


def holds(cell: dict, *names: str) -> bool:
    """Returns whether these contenders finished every time."""
    return not any(name in cell["left_out"] or is_cut(cell["runs"][name]) for name in names)
