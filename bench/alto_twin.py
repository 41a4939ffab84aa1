"""A synthetic LHCONE of the size of the real one: a registry of sites and a dump of routing tables, identical in each
run.

127 sites in 40 countries have 170 data centres with 600 storages. Each data centre has one IPv4 and one IPv6 prefix.
Each site has a router that announces its routes to a collector; they lead through the network of its country and that
of its region to the other sites. The router of the first site also has the routes to the rest of the Internet, over ten
thousand AS paths, so that there are a million routes in total.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import pathlib
import random
import struct
from collections.abc import Iterator

SITES, COUNTRIES, REGIONS, DATA_CENTRES, STORAGES = 127, 40, 4, 170, 600
ROUTES = 1_000_000
WAYS = 10_000
"""Number of different AS paths to the rest of the Internet."""
IPV6_SHARE = 0.2
FIRST_AS = 4_200_000_000
"""First number of the range for private use (RFC 6996)."""
FIRST_IPV4, FIRST_IPV6 = ipaddress.IPv4Address("1.0.0.0"), ipaddress.IPv6Address("2a00::")
"""First addresses of the rest of the Internet."""
TIME_S = 1_700_000_000
"""Time of all announcements, in seconds since 1970."""

Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True)
class DataCentre:
    """A data centre with storages."""

    site: int
    ipv4: ipaddress.IPv4Network
    ipv6: ipaddress.IPv6Network


def country_of(site: int) -> int:
    return site % COUNTRIES


def region_of(country: int) -> int:
    return country % REGIONS


def as_of_site(site: int) -> int:
    return FIRST_AS + 10_000 + site


def as_of_country(country: int) -> int:
    return FIRST_AS + 1_000 + country


def as_of_region(region: int) -> int:
    return FIRST_AS + 100 + region


def data_centres() -> list[DataCentre]:
    def ipv4(number: int) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network((int(ipaddress.IPv4Address("128.0.0.0")) + (number << 10), 22))

    def ipv6(number: int) -> ipaddress.IPv6Network:
        return ipaddress.IPv6Network((int(ipaddress.IPv6Address("2001:1458::")) + (number << 80), 48))

    return [DataCentre(number % SITES, ipv4(number), ipv6(number)) for number in range(DATA_CENTRES)]


def storages() -> list[str]:
    """Returns the IPv4 addresses of all storages."""
    places = data_centres()
    return [str(places[number % DATA_CENTRES].ipv4[10 + number // DATA_CENTRES]) for number in range(STORAGES)]


def as_path(source: int, target: int) -> list[int]:
    """Returns the AS path from the router of one site to another site; each site has its own AS."""
    between = [as_of_country(country_of(source)), as_of_region(region_of(country_of(source)))]
    onwards = [as_of_region(region_of(country_of(target))), as_of_country(country_of(target))]
    hops = [as_of_site(source), *between, *onwards, as_of_site(target)]
    # A path crosses each network once: sites of one country meet in the country's network, countries of one region in the region's.
    if country_of(source) == country_of(target):
        hops = [hops[0], between[0], hops[-1]]
    return list(dict.fromkeys(hops)) if source != target else [as_of_site(source)]


def registry() -> dict:
    """Returns the sites in the format of WLCG's registry (CRIC)."""
    places = data_centres()
    chance = random.Random("places of sites")
    sites = {}
    for site in range(SITES):
        here = [place for place in places if place.site == site]
        networks = {"ipv4": [str(place.ipv4) for place in here], "ipv6": [str(place.ipv6) for place in here]}
        sites[f"SITE-{site:03}"] = {
            "country": f"Country {country_of(site)}",
            "latitude": round(chance.uniform(-45, 65), 4),
            "longitude": round(chance.uniform(-180, 180), 4),
            "netroutes": {f"SITE-{site:03}-LHCONE": {"asn": as_of_site(site), "networks": networks, "lhcone_bandwidth_limit": 100}},
        }
    return sites


def record(kind: int, subtype: int, body: bytes) -> bytes:
    """Returns an MRT record (RFC 6396 §2)."""
    return struct.pack("!IHHI", TIME_S, kind, subtype, len(body)) + body


def router_address(site: int) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address("192.0.2.0") + site


def peer_index_table() -> bytes:
    """Returns the table of all routers by number (RFC 6396 §4.3.1)."""
    ipv4_with_wide_as = 2
    peers = [struct.pack("!BIII", ipv4_with_wide_as, int(router_address(site)), int(router_address(site)), as_of_site(site)) for site in range(SITES)]
    return record(13, 1, struct.pack("!IHH", 0, 0, len(peers)) + b"".join(peers))


def attributes(path: list[int], next_hop: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """Returns origin, AS path and next hop in the encoding of table entries (RFC 4271 §5, RFC 6396 §4.3.4)."""
    hops = struct.pack(f"!BB{len(path)}I", 2, len(path), *path)
    origin = bytes([0x40, 1, 1, 0])
    to = next_hop.packed
    onwards = bytes([0x40, 3, 4]) + to if len(to) == 4 else bytes([0x80, 14, 1 + len(to), len(to)]) + to
    return origin + bytes([0x40, 2, len(hops)]) + hops + onwards


def table_entry(number: int, prefix: Prefix, entries: list[tuple[int, bytes]]) -> bytes:
    """Returns the entries of peers, by their numbers, for one prefix (RFC 6396 §4.3.2)."""
    octets = prefix.network_address.packed[: (prefix.prefixlen + 7) // 8]
    routes = b"".join(struct.pack("!HIH", peer, TIME_S, len(attrs)) + attrs for peer, attrs in entries)
    body = struct.pack("!IB", number, prefix.prefixlen) + octets + struct.pack("!H", len(entries)) + routes
    return record(13, 2 if prefix.version == 4 else 4, body)


def to_data_centres(prefix: Prefix, target: int) -> list[tuple[int, bytes]]:
    """Returns the routes of all routers to a prefix of the site `target`."""
    entries = []
    for site in range(SITES):
        gateway = router_address(site) if site == target else ipaddress.IPv4Address("198.51.100.0") + country_of(site)
        next_hop = gateway if prefix.version == 4 else ipaddress.IPv6Address("2001:db8::") + int(gateway)
        entries.append((site, attributes(as_path(site, target), next_hop)))
    return entries


def routes_to_data_centres() -> int:
    return 2 * DATA_CENTRES * SITES


def rest_as_ipv4(count: int) -> int:
    """Returns how many of `count` prefixes of the rest of the Internet are IPv4."""
    return count - int(count * IPV6_SHARE)


def last_ipv4(routes: int) -> ipaddress.IPv4Address:
    """Returns an address of the last IPv4 prefix in a dump of `routes` routes."""
    return FIRST_IPV4 + ((rest_as_ipv4(routes - routes_to_data_centres()) - 1) << 8) + 1


def rest_of_the_internet(count: int) -> Iterator[tuple[Prefix, bytes]]:
    """Yields `count` prefixes, each with a route of the first router."""
    chance = random.Random("ways")
    ipv4_ways, ipv6_ways = [], []
    for way in range(WAYS):
        path = [as_of_site(0), as_of_country(0), *(chance.randrange(1, 60_000) for _ in range(chance.randrange(2, 5)))]
        ipv4_ways.append(attributes(path, ipaddress.IPv4Address("198.51.100.128") + way % 64))
        ipv6_ways.append(attributes(path, ipaddress.IPv6Address("2001:db8::1:0") + way % 64))
    ipv4 = rest_as_ipv4(count)
    for number in range(ipv4):
        yield ipaddress.IPv4Network((int(FIRST_IPV4) + (number << 8), 24)), ipv4_ways[number % WAYS]
    for number in range(count - ipv4):
        yield ipaddress.IPv6Network((int(FIRST_IPV6) + (number << 84), 44)), ipv6_ways[number % WAYS]


def dump(path: pathlib.Path, routes: int = ROUTES) -> None:
    """Writes the tables of all routers, `routes` routes in total, in the format of a collector (TABLE_DUMP_V2)."""
    with path.open("wb") as file:
        file.write(peer_index_table())
        number = 0
        for place in data_centres():
            for prefix in (place.ipv4, place.ipv6):
                file.write(table_entry(number, prefix, to_data_centres(prefix, place.site)))
                number += 1
        for prefix, attrs in rest_of_the_internet(routes - routes_to_data_centres()):
            file.write(table_entry(number, prefix, [(0, attrs)]))
            number += 1


def write(directory: pathlib.Path, routes: int = ROUTES) -> None:
    """Writes `sites.json` and `routes.mrt`."""
    (directory / "sites.json").write_text(json.dumps(registry()))
    dump(directory / "routes.mrt", routes)
