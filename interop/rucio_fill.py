"""Registers storages with one common file at a Rucio server, through its official client. Needs an interpreter with
Rucio.

Standard input: `{"scope": …, "file": {name, bytes, adler32}, "storages": {RSE: {"hostname": …, "port": …, "prefix":
…}}}`.
"""

import json
import sys

from rucio.client import Client

# Rucio orders replicas in the client's own network by priority only, before all others. This test has none of them.
FROM_FAR = {
    "lan": {"read": 0, "write": 0, "delete": 0},
    "wan": {"read": 1, "write": 1, "delete": 1, "third_party_copy_read": 1, "third_party_copy_write": 1},
}


def main() -> None:
    """Adds the scope, the storages and the replicas."""
    catalog = json.load(sys.stdin)
    client = Client()
    client.add_scope("root", catalog["scope"])
    for rse, place in catalog["storages"].items():
        client.add_rse(rse, deterministic=False)
        client.add_protocol(rse, {"scheme": "https", "impl": "rucio.rse.protocols.webdav.Default", "domains": FROM_FAR, **place})
        pfn = f"https://{place['hostname']}:{place['port']}{place['prefix']}{catalog['file']['name']}"
        client.add_replicas(rse, [{"scope": catalog["scope"], "pfn": pfn, **catalog["file"]}])


main()
