"""The systemd unit, with the programs of systemd that need no running systemd: its rating, its syntax, its user and
directories; and the server with the unit's system calls and capabilities only."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from clients import adler32, content, tree
from servers import hand_over, start_towpath

PACKAGING = Path(__file__).resolve().parent.parent / "packaging"
UNIT = PACKAGING / "towpath-serve.service"
SHARED_GROUP = 4711
"""A group of the confined server, besides its own."""

MAX_EXPOSURE = 30
"""Maximum exposure level, in tenths."""


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("systemd", operation, **more)


def run(*words, status: int = 0) -> str:
    """Runs a program of systemd and returns its output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pair("analyze security: the exposure of the unit is at most 3.0")
def test_exposure():
    run("systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", "--no-pager", UNIT)


@pair("analyze verify: the unit has no errors")
def test_syntax(binary, tmp_path):
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/towpath", str(binary)))
    assert run("systemd-analyze", "verify", "--man=no", unit) == ""


@pair("sysusers, tmpfiles: they make the user and the directories of the unit")
def test_user_and_directories(tmp_path):
    unit = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    (tmp_path / "etc").mkdir()
    run("systemd-sysusers", f"--root={tmp_path}", PACKAGING / "sysusers.d/towpath.conf")
    users = [line.split(":")[0] for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    groups = [line.split(":")[0] for line in (tmp_path / "etc/group").read_text().splitlines()]
    assert unit["User"] in users and unit["Group"] in groups
    run("systemd-tmpfiles", f"--root={tmp_path}", "--create", PACKAGING / "tmpfiles.d/towpath.conf")
    owner = (tmp_path / "etc/passwd").read_text().split("towpath:x:")[1].split(":")[0]
    assert (tmp_path / "srv/data").stat().st_uid == int(owner)
    assert (tmp_path / "etc/towpath").stat().st_mode & 0o777 == 0o750
    config = unit["ExecStart"].rsplit(" ", 1)[-1]
    assert (tmp_path / config.lstrip("/")).parent.is_dir() and unit["ReadWritePaths"] == "/srv"


def allowed_calls() -> list[str]:
    """Returns the system calls that the unit's filters allow."""
    allowed: set[str] = set(members("@default"))
    for words in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        calls = {call for word in words.lstrip("~").split() for call in members(word)}
        allowed = allowed - calls if words.startswith("~") else allowed | calls
    return sorted(allowed | set(members("@default")))


def members(name: str) -> list[str]:
    """Returns the calls of a set of systemd, or the call of this name."""
    if not name.startswith("@"):
        return [name]
    lines = run("systemd-analyze", "syscall-filter", "--no-pager", name).splitlines()
    words = [line.strip() for line in lines[1:] if line.startswith("    ") and not line.strip().startswith("#")]
    return [call for word in words for call in members(word)]


WRAPPER = """#!{python} -P
import ctypes, os, sys
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(KILL_PROCESS)))
for call in {calls}:
    number = library.seccomp_syscall_resolve_name(call.encode())
    if number >= 0:
        library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0)
if os.geteuid() == 0:
    for capability in range(64):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
    os.setgroups([{shared_group}])
    os.setgid({group})
    os.setuid({user})
assert library.seccomp_load(context) == 0
os.execv({binary!r}, sys.argv)
"""
"""Drops all capabilities and root, and ends the program at the first system call that the unit does not allow."""


@pytest.fixture(scope="module")
def confined_server(base, binary):
    """towpath with the unit's system calls and capabilities."""
    directory = base / "confined"
    (directory / "export").mkdir(parents=True)
    hand_over(directory)
    owner = (directory / "export").stat()
    # The user may have no access to the directory of the program.
    program = shutil.copy(binary, directory / "program")
    wrapper = directory / "towpath"
    wrapper.write_text(WRAPPER.format(python="/usr/bin/python3", calls=allowed_calls(), user=owner.st_uid, group=owner.st_gid,
                                      shared_group=SHARED_GROUP, binary=str(program)))
    wrapper.chmod(0o755)
    config = '[third_party]\nanonymous = true\nallow = ["127.0.0.1"]\n'
    server = start_towpath(wrapper, directory, config=config)
    yield server
    server.stop()


@pair("the unit's system calls suffice: uploads, downloads, names, digests, copies between servers")
def test_system_calls(confined_server, clients, tmp_path):
    server, data = confined_server, content(3_000_000)
    (tmp_path / "up/d").mkdir(parents=True)
    (tmp_path / "up/d/file").write_bytes(data)
    (tmp_path / "up/other").write_bytes(data[:1000])
    clients.run("xrdfs", server.address, "mkdir", "/tree")
    clients.run("xrdcp", "-r", "-f", tmp_path / "up", server.url("/tree/"))
    clients.run("xrdcp", "--cksum", "adler32:print", server.url("/tree/up/d/file"), tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data
    assert adler32(data) in clients.run("xrdfs", server.address, "query", "checksum", "/tree/up/d/file").text
    remote = f":webdav,url='{server.http('/')}',vendor=owncloud:"
    clients.run("rclone", "--config", "", "copy", tmp_path / "up", f"{remote}/webdav")
    clients.run("rclone", "--config", "", "moveto", f"{remote}/webdav/other", f"{remote}/webdav/moved")
    clients.run("rclone", "--config", "", "deletefile", f"{remote}/webdav/moved")
    assert tree(server.root / "webdav") == {"d/file": data}
    pull = clients.run("curl", "-sS", "-X", "COPY", "-H", f"Source: {server.http('/tree/up/d/file')}", server.http("/pulled"))
    assert "success" in pull.text
    assert (server.root / "pulled").read_bytes() == data
    (server.root / "group").mkdir()
    shutil.chown(server.root / "group", server.root.stat().st_uid, SHARED_GROUP)
    (server.root / "group").chmod(0o2775)
    clients.run("curl", "-sSf", "-T", tmp_path / "down", server.http("/group/file"))
    assert (server.root / "group/file").stat().st_gid == SHARED_GROUP
    clients.run("curl", "-sSf", server.http("/"))
    clients.run("curl", "-sSf", "-H", "Want-Digest: md5", server.http("/tree/up/d/file"), "-o", "/dev/null")
    assert server.process.poll() is None, server.log.read_text()


@pair("other system calls end the server: the previous test can fail")
def test_other_system_calls(confined_server, tmp_path):
    wrapper = shutil.copy(confined_server.root.parent / "towpath", tmp_path / "wrapper")
    text = Path(wrapper).read_text()
    Path(wrapper).write_text(re.sub(r"os\.execv\(.*\)", "ctypes.CDLL(None).mount(b'a', b'/', b'b', 0, None)", text))
    done = subprocess.run([wrapper], capture_output=True, check=False)
    assert done.returncode == -31, "ended by SIGSYS"
