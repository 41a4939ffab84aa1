"""`towpath cache` with `columns = true` between ROOT or uproot and a real origin: values, bytes, and requests to the origin."""

import json
import os
import shutil
import time

import pytest

from test_cache import (  # noqa: F401
    HERE,
    NGINX,
    NO_WATERMARK,
    OLD_S,
    OURS_ROOT,
    XROOTD,
    access_log,
    accesses,
    content,
    large_tree,
    local_query,
    own_site,
    query,
)

USEFUL_BYTES = 9_450_000
"""Bytes of the baskets of both branches of the large tree."""
ENDS_BYTES = (64 << 10) + (512 << 10)
"""Bytes that are requested when the large file is opened."""

ORIGINS = pytest.mark.parametrize("origin", [XROOTD, NGINX, OURS_ROOT], ids=["xrootd", "nginx", "towpath"])


@pytest.fixture
def counted(clients, binary):
    """Returns requests to the origin of a cache and bytes fetched from it, during an action."""
    def counters(site) -> tuple[int, int]:
        stats = json.loads(clients.run(binary, "cache", "stats", "--dir", site.cache.root, "--json").text)
        origins = stats["origins"]
        return sum(origin["requests"] for origin in origins), sum(origin["fetched_bytes"] for origin in origins)

    def of(site, action) -> tuple[int, int]:
        before = counters(site)
        action()
        after = counters(site)
        return after[0] - before[0], after[1] - before[1]

    return of


@ORIGINS
@pytest.mark.parametrize("program, most_first, most_second", [
    # program, requests for the first and the second file; with those for the file after it
    pytest.param("ROOT without TTreeCache", 15, 13,
                 marks=pytest.mark.pair("ROOT 6.40", "no TTreeCache, through a site cache that fetches columns ahead: at most 15 requests")),
    pytest.param("ROOT", 13, 13,
                 marks=pytest.mark.pair("ROOT 6.40", "TTreeCache 10 MB, through a site cache that fetches columns ahead")),
    pytest.param("uproot XRootDSource", 15, 15,
                 marks=pytest.mark.pair("uproot", "XRootDSource, through a site cache that fetches columns ahead")),
], ids=["ROOT-off", "ROOT", "uproot"])
def test_columns(own_site, data, query, local_query, counted, origin, program, most_first, most_second):  # noqa: F811
    site = own_site(origin, settings="columns = true\n")
    expected = local_query[program.split()[0]]

    def read(salt: str) -> None:
        assert query(program, site.cache.url(large_tree(site, data, salt))) == expected

    requests, fetched = counted(site, lambda: read("columns_1"))
    again, fetched_again = counted(site, lambda: read("columns_2"))
    print(f"{program}: {requests} requests, {fetched} bytes; the second file: {again} requests, {fetched_again} bytes")
    assert requests <= most_first and again <= most_second
    # The ends are those of this file and of the next one.
    assert max(fetched, fetched_again) <= 1.01 * (USEFUL_BYTES + 2 * ENDS_BYTES)


@ORIGINS
def test_the_next_file_is_opened_ahead(own_site, clients, data, query, local_query, here, counted, origin):  # noqa: F811
    log = here / "access.log"
    site = own_site(origin, settings=f"columns = true\n[space]\n{NO_WATERMARK}{access_log(log)}")
    for number in range(1, 5):
        large_tree(site, data, f"next_{number}")

    def read(number: int) -> None:
        assert query("uproot XRootDSource", site.url(f"next_{number}.root")) == local_query["uproot"]

    def settled(action) -> int:
        """Returns the bytes fetched from the origin until nothing more is."""
        total = counted(site, action)[1]
        while more := counted(site, lambda: time.sleep(0.3))[1]:
            total += more
        return total

    first = settled(lambda: read(1))
    assert USEFUL_BYTES + 1.5 * ENDS_BYTES <= first <= 1.01 * (USEFUL_BYTES + 2 * ENDS_BYTES), "the ends of the next one too"
    # A change of the next one is seen by its first reader, although XRootD shows a file that is open to each who opens it.
    other = content(300_000, 5)
    site.put("next_2.root", other, OLD_S + 5)

    def read_changed() -> None:
        assert clients.run("curl", "-sS", "--fail", site.http("next_2.root")).out == other

    # This reader goes through the dataset.
    assert settled(read_changed) >= len(other) + ENDS_BYTES, "the ends of the next one"
    (site.area.local / "next_2.root").unlink()
    assert clients.run("curl", "-sS", "-o", here / "none", "-w", "%{http_code}", site.http("next_2.root")).text == "404"
    assert USEFUL_BYTES - ENDS_BYTES <= settled(lambda: read(3)) <= 1.01 * USEFUL_BYTES + ENDS_BYTES, "with those of the next one"
    last = settled(lambda: read(4))
    assert USEFUL_BYTES - ENDS_BYTES <= last <= 1.01 * USEFUL_BYTES, "its ends were there"
    # Only accesses of readers are recorded.
    names = [record["path"].rpartition("/")[2] for record in accesses(log, 4)]
    assert names == [f"next_{number}.root" for number in (1, 2, 3, 4)]


READ_CLUSTERS = """
import sys, uproot
with uproot.open({sys.argv[1]: None}, handler=uproot.source.xrootd.XRootDSource) as file:
    events = file["events"]
    for start in range(0, events.num_entries, 1000):
        part = events.arrays(["number", "array"], entry_start=start, entry_stop=start + 1000)
        print(sum(part["number"].tolist()), sum(map(sum, part["array"].tolist())))
"""
"""Reads two fields of an RNTuple cluster by cluster, and prints sums of their values."""


@pytest.mark.pair("uproot", "RNTuple of ROOT, cluster by cluster, through a site cache that fetches columns ahead")
def test_ntuple(own_site, base, clients, python, counted):  # noqa: F811
    directory = base / "layouts"
    if not directory.exists():
        clients.run(python, HERE / "root_layouts.py", directory, deadline_s=300)
    site = own_site(OURS_ROOT, settings="columns = true\n")
    read = {}
    for name in ("direct_1", "columns_1", "columns_2"):
        target = site.area.local / f"{name}.root"
        shutil.copyfile(directory / "ntuple-none.root", target)
        os.utime(target, (OLD_S, OLD_S))
    direct = clients.run(python, "-c", READ_CLUSTERS, site.area.url("direct_1.root")).text
    for name in ("columns_1", "columns_2"):
        read[name] = counted(site, lambda name=name: clients.run(python, "-c", READ_CLUSTERS, site.url(f"{name}.root")).text == direct or pytest.fail(name))
    print(read)
    assert read["columns_2"][0] < read["columns_1"][0]
