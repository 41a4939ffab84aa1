"""Prometheus and promtool against our server: the metrics, the alerts and the dashboard of packaging/, and the table of
docs/guides/monitoring.md."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from clients import content
from credentials import Authority, Issuer
from servers import HOST, POLL_S, START_DEADLINE_S, Server, free_port, start_towpath

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "packaging/prometheus/towpath.rules.yml"
DASHBOARD = ROOT / "packaging/grafana/towpath.json"
PAGE = ROOT / "docs/guides/monitoring.md"
NAME = re.compile(r"\b(?:towpath|process)_\w+")


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("Prometheus", operation, **more)


def get(url: str, **fields: str) -> str:
    """Returns the body of the response."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=10) as response:
        return response.read().decode()


def metrics(*urls: str) -> dict[str, str]:
    """Returns the types of all metrics at these addresses by name."""
    return dict(found for url in urls for found in re.findall(r"^# TYPE (\w+) (\w+)$", get(url), re.MULTILINE))


def series(found: dict[str, str]) -> set[str]:
    """Returns the names of all series of these metrics."""
    parts = {name: ("_bucket", "_sum", "_count") if kind == "histogram" else ("",) for name, kind in found.items()}
    return {name + part for name, suffixes in parts.items() for part in suffixes}


def promtool(*words, stdin: str | None = None) -> str:
    """Runs promtool and returns its output."""
    done = subprocess.run(["promtool", *words], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(base, authority: Authority, issuer: Issuer, binary, clients):
    """towpath that has used all its metrics: uploads and downloads by both protocols, a denial, a third-party copy."""
    directory = base / "monitored"
    port = free_port()
    config = f"""
[tls]
certificate = "{authority.certificate}"
key = "{authority.key}"
[metrics]
listen = ["{HOST}:{port}"]
[third_party]
anonymous = true
allow = ["*"]
ca = "{authority.file}"
[[access.anonymous]]
path = "/public"
allow = ["read", "modify"]
[[access.issuers]]
issuer = "{issuer.url}"
keys = "{issuer.keys}"
"""
    started = start_towpath(binary, directory, config=config, writable=False, tls=True)
    started.metrics = f"http://{HOST}:{port}/metrics"
    (started.root / "public").mkdir()
    (started.root / "public/file").write_bytes(content(1000))
    try:
        use(started, clients, authority)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def alto(base, binary):
    """An ALTO server with an agent; the address of its metrics."""
    directory = base / "monitored-alto"
    directory.mkdir()
    port = free_port()
    (directory / "facts.toml").write_text('[network-map.default]\nall = ["0.0.0.0/0", "::/0"]\n')
    (directory / "alto.toml").write_text(f"""
listen = ["{HOST}:0"]
metrics.listen = ["{HOST}:{port}"]
[agents.facts]
kind = "static"
file = "facts.toml"
""")
    command = [binary, "alto", "--config", "alto.toml"]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline().startswith("listening on ")
        yield f"http://{HOST}:{port}/metrics"
    finally:
        process.terminate()
        process.wait()


def use(server: Server, clients, authority: Authority) -> None:
    """Sends requests that change every metric."""
    curl = ["curl", "--silent", "--fail", "--cacert", str(authority.file)]
    subprocess.run([*curl, server.http("/public/file"), "--output", "/dev/null"], check=True, timeout=30)
    subprocess.run([*curl, server.http("/public/sent"), "--upload-file", str(server.root / "public/file")], check=True, timeout=30)
    copy = ["--request", "COPY", "--header", f"Source: {server.http('/public/file')}"]
    subprocess.run([*curl, *copy, server.http("/public/copy")], check=True, timeout=60, stdout=subprocess.DEVNULL)
    denied = subprocess.run([*curl, server.http("/private")], check=False, timeout=30)
    assert denied.returncode == 22


@pytest.fixture(scope="module")
def prometheus(base, server, alto):
    """A Prometheus that scrapes both servers and evaluates the alerts; its address."""
    directory = base / "prometheus"
    directory.mkdir()
    port = free_port()
    targets = json.dumps([urllib.parse.urlsplit(url).netloc for url in (server.metrics, alto)])
    (directory / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{RULES}"]
scrape_configs:
  - job_name: towpath
    static_configs: [{{targets: {targets}}}]
""")
    promtool("check", "config", directory / "prometheus.yml")
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={HOST}:{port}"], stdout=log, stderr=log)
    try:
        address = f"http://{HOST}:{port}"
        deadline = time.monotonic() + START_DEADLINE_S
        while not is_up(address):
            assert time.monotonic() < deadline and process.poll() is None, (directory / "log").read_text()
            time.sleep(POLL_S)
        yield address
    finally:
        process.terminate()
        process.wait()


def is_up(address: str) -> bool:
    """Returns whether Prometheus has scraped both servers."""
    try:
        return [found["value"][1] for found in query(address, 'up{job="towpath"}')] == ["1", "1"]
    except OSError:
        return False


def query(address: str, expression: str) -> list[dict]:
    """Evaluates an expression."""
    answer = json.loads(get(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
    assert answer["status"] == "success", answer
    return answer["data"]["result"] if isinstance(answer["data"]["result"], list) else []


def dashboard_expressions() -> list[str]:
    """Returns the expressions of the dashboard, with values for its variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    values = {"$job": "towpath", "$instance": ".*", "$__rate_interval": "1m"}
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in values.items():
        found = [expression.replace(name, value) for expression in found]
    assert found and not any("$" in expression for expression in found)
    return found


@pair("promtool check metrics: the metrics follow the conventions")
def test_conventions(server, alto):
    for url in (server.metrics, alto):
        assert promtool("check", "metrics", stdin=get(url)) == ""


@pair("promtool check rules, test rules: the alerts fire when they must")
def test_alerts(server, alto):
    assert "SUCCESS" in promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.with_name("towpath.test.yml"))
    tested = set(re.findall(r"alertname: (\w+)", RULES.with_name("towpath.test.yml").read_text()))
    assert tested == set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert set(NAME.findall(RULES.read_text())) <= series(metrics(server.metrics, alto))


@pair("a scrape: the target is up, and the alerts are loaded")
def test_scrape(prometheus, server):
    rules = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"][0]["rules"]
    assert len(rules) == len(re.findall(r"alert:", RULES.read_text()))
    assert query(prometheus, 'towpath_received_bytes_total{face="http", issuer="anonymous"} >= 1000')


@pair("the dashboard: every expression is valid and has data")
def test_dashboard(prometheus, server, alto):
    known = series(metrics(server.metrics, alto))
    for expression in dashboard_expressions():
        assert set(NAME.findall(expression)) <= known, expression
        query(prometheus, expression)
        # Selects the same series without rates, which need two scrapes.
        for selector in re.findall(r"\b(?:towpath|process)_\w+(?:\{[^}]*\})?", expression):
            if "outcome!=" not in selector and " == 0" not in expression:
                assert query(prometheus, selector), selector


@pair("the guide lists all metrics")
def test_guide(server, alto):
    listed = re.findall(r"^\| `((?:towpath|process)_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(metrics(server.metrics, alto).items())
    alerts = re.findall(r"^\| `(Towpath\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert alerts == re.findall(r"alert: (\w+)", RULES.read_text())
