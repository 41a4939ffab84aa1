"""Rucio's REST server, unchanged, with the sorter `alto` beside its own: `towpath.rucio.wsgi:application` (PEP 3333)."""

from towpath.rucio.rebinding import build

application = build()
