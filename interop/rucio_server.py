"""Runs Rucio's own server on a free loopback port: `rucio_server.py MODULE:NAME`. Needs an interpreter with Rucio.

MODULE:NAME is the application (PEP 3333). RUCIO_CONFIG names the configuration; the SQLite database is created if
missing. Prints the address on which it listens, in the format of towpath's servers.
"""

import importlib
import os
import sys

from rucio.db.sqla import models
from rucio.db.sqla.session import get_engine
from rucio.db.sqla.util import create_base_vo, create_root_account
from werkzeug.serving import make_server

HOST = "127.0.0.1"


def main() -> None:
    """Serves until it is killed."""
    engine = get_engine()
    if not os.path.exists(engine.url.database):
        models.register_models(engine)
        create_base_vo()
        create_root_account()
    module, _, name = sys.argv[1].partition(":")
    application = getattr(importlib.import_module(module), name)
    server = make_server(HOST, 0, application, threaded=True)
    print(f"listening on {HOST}:{server.server_port}", flush=True)
    # Rucio logs to standard output; no test reads more than the first line.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server.serve_forever()


main()
