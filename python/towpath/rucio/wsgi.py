"""WSGI application (PEP 3333) `towpath.rucio.wsgi:application`: Rucio's REST server with the additional sorter `alto`."""

from towpath.rucio.rebinding import build

application = build()
