"""curl against our server: HTTP/1.1 and HTTP/2, ranges, conditions, uploads, digests, the listing page and the metrics
page."""

import base64
import hashlib
import re
import zlib
from dataclasses import dataclass

import pytest

from clients import adler32, content, eventually


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("curl", operation, **more)


@dataclass
class Answer:
    """An HTTP response: the final one, and the status lines of the interim ones."""

    version: str
    status: int
    fields: dict[str, str]
    body: bytes
    interim: list[int]


@pytest.fixture
def curl(clients, here):
    """Runs curl, and returns the response with its parsed head."""
    def ask(url: str, *options, stdin: bytes = b"") -> Answer:
        done = clients.run("curl", "-sS", "--max-time", "30", "-D", here / "head", "-o", here / "body", *options, url, stdin=stdin)
        assert done.err == b""
        heads = [head for head in (here / "head").read_bytes().decode().split("\r\n\r\n") if head.strip()]
        status = [re.match(r"HTTP/(\S+) (\d+)", head) for head in heads]
        fields = dict(re.findall(r"^([\w-]+): *(.*?)\r?$", heads[-1], re.MULTILINE))
        body = (here / "body").read_bytes() if (here / "body").exists() else b""
        (here / "body").unlink(missing_ok=True)
        lower = {name.lower(): value for name, value in fields.items()}
        return Answer(status[-1][1], int(status[-1][2]), lower, body, [int(match[2]) for match in status[:-1]])

    return ask


def parts(answer: Answer) -> list[tuple[str, bytes]]:
    """Returns the parts of a multipart/byteranges response: Content-Range and body of each."""
    kind = answer.fields["content-type"]
    boundary = re.fullmatch(r'multipart/byteranges; *boundary="?([^"]+)"?', kind)[1].encode()
    found = []
    for part in answer.body.split(b"--" + boundary)[1:-1]:
        head, body = part.removeprefix(b"\r\n").split(b"\r\n\r\n", 1)
        span = re.search(rb"(?i)^content-range: *(.*?)\r?$", head, re.MULTILINE)[1].decode()
        found.append((span, body.removesuffix(b"\r\n")))
    assert answer.body.rstrip().endswith(b"--" + boundary + b"--")
    return found


@pair("GET")
def test_get(area, curl):
    data = content(9_000_123)
    area.put("file", data)
    answer = curl(area.http("file"))
    assert (answer.status, answer.body) == (200, data)
    assert answer.fields["content-length"] == str(len(data))
    assert answer.fields["accept-ranges"] == "bytes"


@pair("GET of an empty file")
def test_get_empty(area, curl):
    area.put("empty", b"")
    answer = curl(area.http("empty"))
    assert (answer.status, answer.body, answer.fields["content-length"]) == (200, b"", "0")


@pair("GET of names with blanks, percent signs, UTF-8")
def test_get_odd_names(area, curl):
    for name, quoted in (("a b", "a%20b"), ("100%", "100%25"), ("ü#?", "%C3%BC%23%3F"), ("a+b&c;d", "a+b&c;d")):
        area.put(name, name.encode())
        assert curl(area.http(quoted)).body == name.encode()


@pair("GET of a missing file: 404")
def test_get_missing(area, curl):
    assert curl(area.http("absent")).status == 404


@pair("HEAD")
def test_head(area, curl):
    area.put("file", content(12_345))
    answer = curl(area.http("file"), "--head")
    assert (answer.status, answer.fields["content-length"]) == (200, "12345")
    assert answer.fields["etag"] and answer.fields["last-modified"]


@pytest.mark.parametrize("span, first, last", [
    pytest.param("0-0", 0, 0, marks=pair("one range: a-b, a-, -n")),
    pytest.param("4095-8192", 4095, 8192, marks=pair("one range: a-b, a-, -n")),
    pytest.param("999990-", 999_990, 999_999, marks=pair("one range: a-b, a-, -n")),
    pytest.param("-17", 999_983, 999_999, marks=pair("one range: a-b, a-, -n")),
    pytest.param("999000-2000000", 999_000, 999_999, marks=pair("one range: a-b, a-, -n")),
])
def test_range(area, curl, span, first, last):
    data = content(1_000_000)
    area.put("file", data)
    answer = curl(area.http("file"), "-r", span)
    assert (answer.status, answer.body) == (206, data[first:last + 1])
    assert answer.fields["content-range"] == f"bytes {first}-{last}/1000000"


@pair("range past the end: 416")
def test_range_past_end(area, curl):
    area.put("file", content(1000))
    answer = curl(area.http("file"), "-r", "1000-1001")
    assert (answer.status, answer.fields["content-range"]) == (416, "bytes */1000")


@pair("several ranges (multipart/byteranges)")
def test_ranges(area, curl):
    data = content(1_000_000)
    area.put("file", data)
    answer = curl(area.http("file"), "-r", "0-9,500000-500099,-10")
    assert answer.status == 206
    assert parts(answer) == [("bytes 0-9/1000000", data[:10]), ("bytes 500000-500099/1000000", data[500_000:500_100]),
                             ("bytes 999990-999999/1000000", data[-10:])]


@pair("1,000 ranges in one request")
def test_thousand_ranges(area, curl):
    data = content(4_000_000)
    area.put("file", data)
    spans = [(i * 4000, i * 4000 + 15) for i in range(1000)]
    answer = curl(area.http("file"), "-H", "Range: bytes=" + ",".join(f"{a}-{b}" for a, b in spans))
    assert answer.status == 206
    assert [body for _, body in parts(answer)] == [data[a:b + 1] for a, b in spans]


@pair("If-Range: the range if unchanged, else all")
def test_if_range(area, curl):
    data = content(10_000)
    area.put("file", data)
    tag = curl(area.http("file"), "--head").fields["etag"]
    same = curl(area.http("file"), "-r", "5-9", "-H", f"If-Range: {tag}")
    assert (same.status, same.body) == (206, data[5:10])
    other = curl(area.http("file"), "-r", "5-9", "-H", 'If-Range: "another"')
    assert (other.status, other.body) == (200, data)


@pair("If-None-Match, If-Modified-Since: 304")
def test_not_modified(area, curl):
    area.put("file", content(10_000))
    fields = curl(area.http("file"), "--head").fields
    by_tag = curl(area.http("file"), "-H", f"If-None-Match: {fields['etag']}")
    assert (by_tag.status, by_tag.body) == (304, b"")
    by_time = curl(area.http("file"), "-H", f"If-Modified-Since: {fields['last-modified']}")
    assert (by_time.status, by_time.body) == (304, b"")


@pair("If-Match, If-Unmodified-Since: 412")
def test_precondition_failed(area, curl):
    data = content(10_000)
    file = area.put("file", data)
    assert curl(area.http("file"), "-H", 'If-Match: "another"').status == 412
    assert curl(area.http("file"), "-H", "If-Unmodified-Since: Sun, 13 Sep 2020 12:26:40 GMT").status == 412
    assert curl(area.http("file"), "-H", 'If-Match: "another"', "-T", "-", stdin=b"new").status == 412
    assert file.read_bytes() == data


@pair("PUT: 201 for a new file, 204 over an old one")
def test_put(area, curl, here):
    first, second = content(9_000_123, 1), content(5000, 2)
    (here / "first").write_bytes(first)
    (here / "second").write_bytes(second)
    assert curl(area.http("file"), "-T", here / "first").status == 201
    assert (area.local / "file").read_bytes() == first
    assert curl(area.http("file"), "-T", here / "second").status in (200, 204)
    assert (area.local / "file").read_bytes() == second
    assert [p.name for p in area.local.iterdir()] == ["file"], "nothing else is left there"
    assert eventually(lambda: area.left_over() == []), "no upload is still under way"


@pair("PUT with If-None-Match: * does not overwrite")
def test_put_if_absent(area, curl):
    area.put("file", b"old")
    assert curl(area.http("file"), "-H", "If-None-Match: *", "-T", "-", stdin=b"new").status == 412
    assert (area.local / "file").read_bytes() == b"old"


@pair("PUT with Expect: 100-continue")
def test_put_continue(area, curl, here):
    data = content(2_000_000)
    (here / "file").write_bytes(data)
    answer = curl(area.http("file"), "-H", "Expect: 100-continue", "--expect100-timeout", "20", "-T", here / "file")
    assert (answer.status, answer.interim) == (201, [100])
    assert (area.local / "file").read_bytes() == data


@pair("PUT, chunked")
def test_put_chunked(area, curl):
    data = content(3_000_001)
    answer = curl(area.http("file"), "-T", "-", stdin=data)
    assert (answer.status, (area.local / "file").read_bytes()) == (201, data)


@pair("PUT with a digest of the content verifies it")
def test_put_digest(area, curl):
    data = content(100_000)
    sha = base64.b64encode(hashlib.sha256(data).digest()).decode()
    good = curl(area.http("good"), "-H", f"Repr-Digest: sha-256=:{sha}:", "-T", "-", stdin=data)
    assert (good.status, (area.local / "good").read_bytes()) == (201, data)
    bad = curl(area.http("bad"), "-H", f"Repr-Digest: sha-256=:{sha}:", "-T", "-", stdin=data + b"!")
    assert 400 <= bad.status < 500
    assert not (area.local / "bad").exists()
    old = curl(area.http("old"), "-H", f"Digest: adler32={adler32(data)}", "-T", "-", stdin=data)
    assert old.status == 201
    worse = curl(area.http("worse"), "-H", "Digest: adler32=00000001", "-T", "-", stdin=data)
    assert 400 <= worse.status < 500
    assert not (area.local / "worse").exists()


@pair("an upload that breaks off leaves nothing")
def test_put_broken(area, clients, here):
    (here / "file").write_bytes(content(50_000_000))
    command = ("curl", "-sS", "--limit-rate", "5M", "--max-time", "1", "-T", here / "file", area.http("file"))
    assert b"timed out" in clients.run(*command, status=28).err
    assert not (area.local / "file").exists()
    assert eventually(lambda: list(area.local.iterdir()) == [] and area.left_over() == []), "nothing else is left there"


@pair("digests, RFC 3230 (Want-Digest)")
def test_want_digest(area, curl):
    data = content(1_000_003)
    area.put("file", data)
    head = curl(area.http("file"), "--head", "-H", "Want-Digest: adler32").fields
    assert head["digest"] == f"adler32={adler32(data)}"
    md5 = curl(area.http("file"), "-H", "Want-Digest: md5").fields
    assert md5["digest"] == "md5=" + base64.b64encode(hashlib.md5(data).digest()).decode()


@pair("digests, RFC 9530 (Want-Repr-Digest)")
def test_want_repr_digest(area, curl):
    data = content(1_000_003)
    area.put("file", data)
    answer = curl(area.http("file"), "-H", "Want-Repr-Digest: sha-256=9, adler=1")
    assert answer.fields["repr-digest"] == "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":"
    adler = curl(area.http("file"), "-H", "Want-Repr-Digest: adler=1").fields["repr-digest"]
    assert adler == "adler=:" + base64.b64encode(zlib.adler32(data).to_bytes(4, "big")).decode() + ":"


@pair("DELETE")
def test_delete(area, curl):
    area.put("file", b"x")
    assert curl(area.http("file"), "-X", "DELETE").status in (200, 204)
    assert not (area.local / "file").exists()
    assert curl(area.http("file"), "-X", "DELETE").status == 404


@pair("MKCOL: 201, 405 if it exists, 409 without parent")
def test_mkcol(area, curl):
    assert curl(area.http("dir"), "-X", "MKCOL").status == 201
    assert (area.local / "dir").is_dir()
    assert curl(area.http("dir"), "-X", "MKCOL").status == 405
    assert curl(area.http("no/dir"), "-X", "MKCOL").status == 409


@pair("MOVE, with Overwrite: F")
def test_move(area, curl):
    one, two = content(1000, 1), content(1000, 2)
    area.put("one", one)
    area.put("two", two)
    refused = curl(area.http("one"), "-X", "MOVE", "-H", f"Destination: {area.http('two')}", "-H", "Overwrite: F")
    assert (refused.status, (area.local / "two").read_bytes()) == (412, two)
    assert curl(area.http("one"), "-X", "MOVE", "-H", f"Destination: {area.http('three')}").status == 201
    assert (area.local / "three").read_bytes() == one
    assert not (area.local / "one").exists()


@pair("COPY")
def test_copy(area, curl):
    data = content(1_000_000)
    area.put("one", data)
    assert curl(area.http("one"), "-X", "COPY", "-H", f"Destination: {area.http('two')}").status == 201
    assert (area.local / "one").read_bytes() == (area.local / "two").read_bytes() == data


@pair("OPTIONS")
def test_options(area, curl):
    answer = curl(area.http(), "-X", "OPTIONS")
    assert answer.status in (200, 204)
    assert {"1", "2"} <= set(re.split(r", *", answer.fields["dav"]))
    allowed = set(re.split(r", *", answer.fields["allow"]))
    assert {"GET", "HEAD", "PUT", "DELETE", "MKCOL", "MOVE", "COPY", "OPTIONS", "PROPFIND", "PROPPATCH", "LOCK", "UNLOCK"} <= allowed


@pair("PROPFIND, depth 0 and 1; infinity is refused")
def test_propfind(area, curl):
    area.put("file", content(1234))
    (area.local / "dir").mkdir()

    def names(depth: str, name: str = "") -> tuple[int, set[str], str]:
        answer = curl(area.http(name), "-X", "PROPFIND", "-H", f"Depth: {depth}")
        text = answer.body.decode()
        return answer.status, {h.rstrip("/").rsplit("/", 1)[1] for h in re.findall(r"<D:href>(.*?)</D:href>", text)}, text

    own = area.path.rsplit("/", 1)[1]
    assert names("0")[:2] == (207, {own})
    status, found, text = names("1")
    assert (status, found) == (207, {own, "file", "dir"})
    assert "<D:getcontentlength>1234</D:getcontentlength>" in text and "<D:collection" in text
    assert names("1", "file")[:2] == (207, {"file"})
    assert names("infinity")[0] == 403


@pair("HTTP/2 over TLS: GET, range, PUT")
def test_http2(tls_area, curl, here):
    data = content(9_000_123)
    tls_area.put("file", data)
    answer = curl(tls_area.http("file"), "--http2")
    assert (answer.version, answer.status, answer.body) == ("2", 200, data)
    ranged = curl(tls_area.http("file"), "--http2", "-r", "5000-5999")
    assert (ranged.version, ranged.status, ranged.body) == ("2", 206, data[5000:6000])
    (here / "file").write_bytes(data)
    put = curl(tls_area.http("up"), "--http2", "-T", here / "file")
    assert (put.version, put.status, (tls_area.local / "up").read_bytes()) == ("2", 201, data)


@pair("HTTP/2 without TLS (prior knowledge)")
def test_http2_plain(area, curl):
    data = content(1_000_000)
    area.put("file", data)
    answer = curl(area.http("file"), "--http2-prior-knowledge")
    assert (answer.version, answer.status, answer.body) == ("2", 200, data)


@pair("HTTP/1.1 over TLS")
def test_https(tls_area, curl):
    data = content(9_000_123)
    tls_area.put("file", data)
    answer = curl(tls_area.http("file"), "--http1.1")
    assert (answer.version, answer.status, answer.body) == ("1.1", 200, data)


@pair("many requests on one connection")
def test_keep_alive(area, clients):
    data = content(50_000)
    area.put("file", data)
    done = clients.run("curl", "-sS", "--max-time", "30", "-w", "%{stderr}%{num_connects}\n", *[area.http("file")] * 20)
    assert done.out == data * 20
    assert done.err.decode().split() == ["1"] + ["0"] * 19


@pair("a page for people")
def test_listing_page(area, curl):
    area.put("<b>&file", content(1234))
    (area.local / "dir").mkdir()
    answer = curl(area.http())
    assert (answer.status, answer.fields["content-type"].split(";")[0]) == (200, "text/html")
    page = answer.body.decode()
    assert "&lt;b&gt;&amp;file" in page and "<b>&file" not in page
    assert re.search(r'href="[^"]*dir/"', page) and "%3Cb%3E" in page


@pair("/metrics and /healthz")
def test_metrics(plain_server, curl):
    health = curl(plain_server.http("/healthz"))
    assert health.status == 200
    answer = curl(plain_server.http("/metrics"))
    assert answer.status == 200
    assert re.search(rb"^towpath_connections \d+$", answer.body, re.MULTILINE)


@pair("paths may not leave the export")
def test_escape(area, curl):
    for path in ("/../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2f..%2fetc/passwd"):
        answer = curl(area.server.http(path), "--path-as-is")
        assert answer.status in (400, 403, 404) and b"root:" not in answer.body
    (area.local / "link").symlink_to("/etc/passwd")
    answer = curl(area.http("link"))
    assert answer.status in (403, 404) and b"root:" not in answer.body


@pair("anonymous clients may not write unless it is allowed: 401 with a challenge")
def test_read_only(token_area, curl):
    answer = curl(token_area.http("file"), "-T", "-", stdin=b"x")
    assert answer.status == 401
    assert answer.fields["www-authenticate"].startswith("Bearer")
    assert not (token_area.local / "file").exists()
