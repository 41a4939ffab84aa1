"""Integration of ALTO with Rucio: orders replicas and sets distances between storages by the network costs of an ALTO server.

Rucio stays unmodified; major versions 38 to 41 are supported. There are three entry points:

- `python -m towpath.rucio metalink` writes the replicas of files as a Metalink in download order.
- `python -m towpath.rucio distances` keeps the distances between RSEs up to date.
- `towpath.rucio.wsgi:application` is Rucio's REST server with the additional sorter `alto`.

docs/guides/rucio.md describes how to set them up.

Modules: `judgement` (ranks of replicas), `official` (Rucio's client), `metalink`, `distances`, `sorter` (the sorter, independent of
Rucio), `rebinding` (installs the sorter in Rucio's server), `wsgi`. Rucio is imported on first use, so that all functions except
those of the server work with only Rucio's client installed.
"""
