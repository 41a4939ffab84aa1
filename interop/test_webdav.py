"""litmus, the WebDAV test suite, and cadaver, an old WebDAV client, against our server."""

import re

import pytest

from clients import content

SUITES = ["basic", "copymove", "props", "locks", "http"]


@pytest.mark.parametrize("suite", [pytest.param(suite, marks=pytest.mark.pair("litmus", suite)) for suite in SUITES])
def test_litmus(area, clients, here, pytestconfig, suite):
    result = clients.run("litmus", "-k", area.http(), cwd=here, status=0, TESTS=suite, deadline_s=120)
    summary = re.search(rf"summary for `{suite}': of (\d+) tests run: (\d+) passed, (\d+) failed", result.text)
    assert summary, str(result)
    run, passed, failed = map(int, summary.groups())
    warnings = result.text.count("WARNING")
    pytestconfig.table.litmus.append((suite, f"{passed} of {run} passed, {warnings} warnings"))
    assert failed == 0, "\n".join(line for line in result.lines if "FAIL" in line)


@pytest.mark.pair("cadaver", "put, ls, get, mkcol, copy, move, delete, lock, unlock")
def test_cadaver(area, clients, here):
    data = content(100_001)
    (here / "up").write_bytes(data)
    script = f"""
put {here}/up one
ls
get one {here}/down
mkcol dir
copy one dir/two
move one three
lock three
unlock three
delete three
quit
"""
    (here / ".cadaverrc").write_text("")
    result = clients.run("cadaver", area.http(), cwd=here, stdin=script.encode(), HOME=str(here))
    assert (here / "down").read_bytes() == data
    assert (area.local / "dir/two").read_bytes() == data
    assert sorted(path.name for path in area.local.iterdir()) == ["dir"]
    assert "failed" not in result.text and re.search(r"^\s*one\s+100001 ", result.text, re.MULTILINE), str(result)
    assert result.text.count("succeeded") >= 7
