"""Tells a Rucio server, by its official client, of storages that all have one file; run by an interpreter that has Rucio.

Standard input: `{"scope": …, "file": {name, bytes, adler32}, "storages": {RSE: {"hostname": …, "port": …, "prefix": …}}}`.
"""

import json
import sys

from rucio.client import Client

# Rucio puts replicas in the client's own network first, by priority alone; there are none here.
FROM_FAR = {
    "lan": {"read": 0, "write": 0, "delete": 0},
    "wan": {"read": 1, "write": 1, "delete": 1, "third_party_copy_read": 1, "third_party_copy_write": 1},
}


def main() -> None:
    """Adds the scope, the storages and the replicas."""
    told = json.load(sys.stdin)
    client = Client()
    client.add_scope("root", told["scope"])
    for rse, place in told["storages"].items():
        client.add_rse(rse, deterministic=False)
        client.add_protocol(rse, {"scheme": "https", "impl": "rucio.rse.protocols.webdav.Default", "domains": FROM_FAR, **place})
        pfn = f"https://{place['hostname']}:{place['port']}{place['prefix']}{told['file']['name']}"
        client.add_replicas(rse, [{"scope": told["scope"], "pfn": pfn, **told["file"]}])


main()
