"""Calls that xrdcp and xrdfs never make, for interop/xrootd-captures.sh: plain reads and writes, vectors, handles."""

import sys

from XRootD import client
from XRootD.client.flags import OpenFlags

url = sys.argv[1]
with client.File() as file:
    file.open(url + "/data/small.bin")
    file.stat(True)
    file.read(100, 50)
    file.read(8990, 50)
    file.read(9000, 10)
    file.vector_read([(0, 10), (4090, 12), (8990, 10)])
    file.vector_read([(8990, 11)])
with client.File() as file:
    file.open(url + "/data/written.bin", OpenFlags.DELETE | OpenFlags.UPDATE)
    file.write(b"0123456789", 5)
    file.sync()
    file.truncate(12)
files = client.FileSystem(url)
files.ping()
files.sendinfo("hello")
files.rm("/data/written.bin")
