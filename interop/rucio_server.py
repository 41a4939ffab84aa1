"""Rucio's own server on a free port of loopback, run by an interpreter that has Rucio: `rucio_server.py MODULE:NAME`.

MODULE:NAME is the application (PEP 3333). The configuration is where RUCIO_CONFIG says; its SQLite database is made if there is none. Says where
it listens, as towpath's servers do.
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
    # Rucio logs there, and no test reads the rest.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server.serve_forever()


main()
