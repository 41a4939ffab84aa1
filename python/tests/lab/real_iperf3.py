"""A run of the real iperf3 over loopback."""

import subprocess


def run_iperf3(port: int) -> str:
    """Returns the JSON of the client: two streams, a second that is omitted and one that counts."""
    server = subprocess.Popen(
        ["iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", str(port), "--forceflush"], stdout=subprocess.PIPE
    )
    try:
        # The server writes this line when it listens.
        while b"listening" not in server.stdout.readline():
            assert server.poll() is None
        options = ["--parallel", "2", "--time", "1", "--omit", "1", "--interval", "0.25", "--json"]
        client = ["iperf3", "--client", "127.0.0.1", "--port", str(port), *options]
        return subprocess.run(client, capture_output=True, text=True, timeout=30, check=True).stdout
    finally:
        server.kill()
        server.wait()
