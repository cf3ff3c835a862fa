"""What `record` adds to a call: the same calls directly and through the proxy, in turns, in one run.

    python -m benchmarks.bench_proxy [--calls 10000] [--bytes 8000]

The API is a separate process on loopback that answers each POST with as many bytes; every call is recorded. Once the client keeps its
connection, as most do, and once it opens one for each call. Printed are milliseconds of wall time: the 50th and 95th percentile of both
sides, and of the difference of a call and the one beside it. Every call through the proxy must be in the file.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socketserver
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

REQUEST = json.dumps({"query": "when do releases go out", "user_id": "u1", "limit": 20}).encode()


class _Api(BaseHTTPRequestHandler):
    """Answers each POST with the same text."""

    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True
    answer = b""

    def do_POST(self) -> None:
        """Read the body and answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(size: int) -> None:
    """Print the port and answer until killed."""
    text = "Releases go out on Friday afternoon after the standup. "
    rows = [{"id": f"m{n}", "score": 1 / (n + 1), "memory": text} for n in range(max(1, size // (len(text) + 45)))]
    _Api.answer = json.dumps({"results": rows}).encode()
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Api) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def measured(direct: int, proxy: int, calls: int, keep: bool) -> dict[str, list[float]]:
    """Milliseconds of each call by side."""
    spent: dict[str, list[float]] = {"direct": [], "proxy": []}
    open_ones = {
        name: http.client.HTTPConnection("127.0.0.1", port) for name, port in zip(spent, (direct, proxy), strict=True)
    }
    for number in range(calls + 20):
        for name in ("direct", "proxy") if number % 2 else ("proxy", "direct"):
            connection = open_ones[name]
            start = time.perf_counter()
            connection.request("POST", "/search", REQUEST, {"Content-Type": "application/json"})
            connection.getresponse().read()
            if number >= 20:  # the first warm up
                spent[name].append(1e3 * (time.perf_counter() - start))
            if not keep:
                connection.close()
    return spent


def _line(name: str, values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"  {name:<12} p50 {cuts[49]:7.3f} ms   p95 {cuts[94]:7.3f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=8_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.bytes)
    api = [sys.executable, "-m", "benchmarks.bench_proxy", "--serve", "--bytes", str(given.bytes)]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(api, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        direct, out = int(server.stdout.readline()), Path(folder, "calls.jsonl")
        record = [sys.executable, "-m", "cems_workbench", "record", "--port", "0", "--out", str(out)]
        with subprocess.Popen(
            [*record, "--to", f"http://127.0.0.1:{direct}"], stderr=subprocess.PIPE, text=True
        ) as proxy:
            assert proxy.stderr is not None
            port = int(proxy.stderr.readline().split()[0].rpartition(":")[2])
            for keep in (True, False):
                spent = measured(direct, port, given.calls, keep)
                print(f"{given.calls:,} calls, {'one connection' if keep else 'a connection each'}")
                added = [b - a for a, b in zip(spent["direct"], spent["proxy"], strict=True)]
                for name, values in {**spent, "added": added}.items():
                    print(_line(name, values))
            proxy.kill()
        with out.open("rb") as file:
            kept = sum(1 for _ in file)
        print(f"{kept:,} calls recorded of {2 * (given.calls + 20):,}, {out.stat().st_size / 1e6:.0f} MB")
        server.kill()


if __name__ == "__main__":
    main()
