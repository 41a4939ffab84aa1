"""Stores or removes the digests that a server keeps with its files, as after an upload through towpath.

Digests are kept in extended attributes (`user.XrdCks.crc32c`), which both towpath and XRootD read.
"""

from __future__ import annotations

import os
import pathlib
import time

from contenders import Machine
from harness import CHECK_LIMIT_S, Server, run_client

ALGORITHMS = ("crc32c", "adler32")

SETTLED_S = 60
"""Age given to the files first, in seconds: the server stores no computed digest of a recently modified file."""


def make_known(machine: Machine, server: Server, root: pathlib.Path, names: list[str]) -> None:
    """Makes the server of `root` compute and store the digests of files."""
    settled = time.time() - SETTLED_S
    for name in names:
        os.utime(root / name, (settled, settled))
    for algorithm in ALGORITHMS:
        run_client(machine.towpath("sum", "-a", algorithm, *map(server.root, names)), limit_s=CHECK_LIMIT_S)


class KeptDigests:
    """Stored digests of one served file. They can be removed and restored without reading the file again."""

    def __init__(self, machine: Machine, server: Server, file: pathlib.Path) -> None:
        self.file = file
        make_known(machine, server, file.parent, [file.name])
        self.kept = {name: os.getxattr(file, name) for name in self._attributes()}
        if not self.kept:
            raise RuntimeError(f"no digest of {file} was kept: does the file system have extended attributes?")

    def _attributes(self) -> list[str]:
        return [name for name in os.listxattr(self.file) if name.startswith("user.")]

    def know(self) -> None:
        for name, value in self.kept.items():
            os.setxattr(self.file, name, value)

    def forget(self) -> None:
        for name in self._attributes():
            os.removexattr(self.file, name)
