"""Rucio and ALTO: replicas, and distances between storages, by what an ALTO server knows of the ways between them.

Rucio stays as it is; versions 38 to 41 are known. `python -m towpath.rucio metalink` orders replicas for a download,
`python -m towpath.rucio distances` keeps the distances between RSEs up to date, and `towpath.rucio.wsgi:application` is
Rucio's own REST server with one sorter more. docs/guides/rucio.md shows how each is set up.

Modules: `judgement` (what is better than what), `official` (Rucio's client), `metalink`, `distances`, `sorter` (the sorter
alone), `rebinding` (puts it into Rucio's server), `wsgi`. Rucio is imported where it is needed: where only its client is
installed, all that needs no server works.
"""
