"""Lets clients meet refusals of tollgate, and prints when they retried. Run by `run.sh`.

Each client sends three requests, of which the third is refused with `Retry-After: 3`. A bucket of two tokens that gains one
in three seconds is full six seconds later, so a client that waits three seconds obeys `Retry-After`, one that waits six obeys
a field that counts down to a full quota, and one that waits less follows a back-off of its own.

A proxy between client and server notes each request. It can also take `Retry-After` away, which tollgate always sends:
what a client does then shows which of the other fields it reads.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "target/clients"
PAGE = ROOT / "src/clients.md"

RULE = "token-bucket 1/3s burst=2"
RETRY_AFTER, FULL_AFTER = 3, 6
# The formats of `tollgate::respond::Headers`.
FORMATS = ["draft", "draft-07", "draft-06", "legacy", "legacy-delta"]
# Two clients at a time, so that their processes start without delay on two cores.
AT_ONCE = 2
PATIENCE = 60

# Name, and how it is set up.
PYTHON = [
    ("requests", "`HTTPAdapter(max_retries=Retry(3, status_forcelist=[429]))`"),
    ("urllib3", "`Retry(3, status_forcelist=[429])`"),
    ("httpx", "`HTTPTransport(retries=3)`"),
    ("httpx-retries", "`RetryTransport(retry=Retry(total=3))`"),
    ("aiohttp", "default"),
    ("aiohttp-retry", "`ExponentialRetry(attempts=4, statuses={429})`"),
    ("openai", "`max_retries=3`"),
]
NODE = [
    ("fetch", "default"),
    ("undici", "`RetryAgent`"),
    ("got", "default"),
    ("ky", "default"),
    ("axios", "default"),
    ("axios-retry", "default"),
    ("retry-axios", "default"),
    ("superagent", "`.retry(3)`"),
    ("ofetch", "default"),
    ("openai", "`maxRetries: 3`"),
    ("plugin-throttling", "`onRateLimit` returns `true`"),
]
RUST = [("reqwest", "default"), ("reqwest-retry", "`RetryTransientMiddleware`")]
COMMANDS = [
    ("curl", "`--retry 3`", ["curl", "-s", "--retry", "3", "-H"]),
    ("wget", "`--retry-on-http-error=429 --tries=4`", ["wget", "-q", "-O-", "--retry-on-http-error=429", "--tries=4", "--header"]),
]
POLICY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


class Server:
    """An example of the crate, on a free port."""

    def __init__(self, example, *args):
        program = ROOT / "target/debug/examples" / example
        command = [program, "--listen", "127.0.0.1:0", "--rule", RULE, *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.address = line.strip().removeprefix("listening on http://")
        if self.address == line.strip():
            raise SystemExit(f"measure.py: {example} does not listen")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Proxy:
    """Forwards `/FORMAT/WHAT/…` to the server of that format, and notes what it saw of each key.

    WHAT is `all`, or `fields` to take `Retry-After` away.
    """

    def __init__(self, servers):
        # By key: the time of the request, that of the answer, its status, and its `Retry-After`.
        self.seen = {}
        seen, lock = self.seen, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                asked = time.monotonic()
                _, name, what, rest = self.path.split("/", 3)
                key = self.headers["x-api-key"]
                server = HTTPConnection(servers[name].address)
                server.request("GET", f"/{rest}", headers={"x-api-key": key})
                answer = server.getresponse()
                body = answer.read()
                server.close()
                wait = answer.headers["retry-after"]
                if what == "fields":
                    del answer.headers["retry-after"]
                with lock:
                    seen.setdefault(key, []).append((asked, time.monotonic(), answer.status, wait))
                self.send_response_only(answer.status)
                for field in answer.headers.items():
                    self.send_header(*field)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                # A client that ends resets its connections.
                if not isinstance(sys.exc_info()[1], ConnectionError):
                    super().handle_error(*_)

        self.listener = Listener(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.listener.server_port}"


def run(command, runs):
    """Runs a program of clients, and returns what it prints."""
    done = subprocess.run(command, input=json.dumps(runs), capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"measure.py: {command} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def python(name):
    return [sys.executable, ROOT / "tools/clients/clients.py", name]


def node(name):
    return ["node", INSTALLED / "clients.mjs", name]


def node_version(package):
    return json.loads((INSTALLED / "node_modules" / package / "package.json").read_text())["version"]


def command_version(name):
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\d+(\.\d+)+", said)[0]


def cargo_version(package):
    lock = (ROOT / "Cargo.lock").read_text()
    return re.search(rf'name = "{package}"\nversion = "([^"]+)"', lock)[1]


def run_command(command, runs):
    """Starts a command three times for each run, each time when the one before has ended."""

    def attempt(url_and_key):
        url, key = url_and_key
        for _ in range(3):
            subprocess.run([*command, f"x-api-key: {key}", url], capture_output=True, timeout=PATIENCE)

    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(attempt, runs))


def scenarios():
    """Format, and what passes the proxy."""
    yield "none", "all"
    for what in ["all", "fields"]:
        for name in FORMATS:
            yield name, what


def wait(seen):
    """Returns the seconds until the first retry, and `True` if it was admitted; `None` if there was no retry."""
    refused = next(index for index, request in enumerate(seen) if request[2] == 429)
    if refused != 2 or seen[refused][3] != str(RETRY_AFTER):
        raise SystemExit(f"measure.py: expected the third of the requests to be refused for {RETRY_AFTER} s: {seen}")
    if len(seen) == refused + 1:
        return None
    retry = seen[refused + 1]
    return retry[0] - seen[refused][1], retry[2] != 429


def cell(waited):
    if waited is None:
        return "–"
    seconds, admitted = waited
    return f"{seconds:.1f}" if admitted else f"{seconds:.1f} ✗"


def obeys(waited, seconds):
    # A second of jitter, and a second that some clients add. Never earlier.
    return waited is not None and waited[1] and seconds - 0.1 <= waited[0] < seconds + 2.5


def summary(waits):
    """Says in words what the waits show."""
    alone = waits["none", "all"]
    if alone is None:
        retry_after = "no retry"
    elif obeys(alone, RETRY_AFTER):
        retry_after = "obeyed"
    else:
        retry_after = "ignored"
    read = [name for name in FORMATS if obeys(waits[name, "fields"], FULL_AFTER)]
    misread = []
    for name in FORMATS:
        both, fields = waits[name, "all"], waits[name, "fields"]
        # With both, the wait should be the one without fields; with fields alone, that of a full quota or its own back-off.
        if differ(both, alone) and not obeys(both, FULL_AFTER):
            misread.append(name)
        elif obeys(alone, RETRY_AFTER) is False and differ(fields, alone) and not obeys(fields, FULL_AFTER):
            misread.append(name)
    return retry_after, ", ".join(read) or "none", ", ".join(misread) or "none"


def differ(one, other):
    if one is None or other is None:
        return one is not other
    return abs(one[0] - other[0]) > 1.2


def http_clients():
    """Yields a group, the client's name, its set-up, its version, and a function that runs it."""
    for name, set_up in PYTHON:
        yield "python", name, set_up, version(name), partial(run, python(name))
    for name, set_up in NODE:
        package = "@octokit/plugin-throttling" if name == "plugin-throttling" else name
        its = command_version("node") if name == "fetch" else node_version(package)
        yield "node", name, set_up, its, partial(run, node(name))
    for name, set_up in RUST:
        yield "rust", name, set_up, cargo_version(name), partial(run, [ROOT / "target/debug/clients", name])
    for name, set_up, command in COMMANDS:
        yield "command", name, set_up, command_version(name), partial(run_command, command)


def measure_http(proxy):
    def measure(client):
        group, name, set_up, its, start = client
        runs = {
            (fields, what): (f"{proxy.url}/{fields}/{what}/", f"{group}/{name}/{fields}/{what}")
            for fields, what in scenarios()
        }
        start(list(runs.values()))
        print(f"measured {name} {its}", file=sys.stderr)
        return label(group, name), its, set_up, {scenario: wait(proxy.seen[key]) for scenario, (_, key) in runs.items()}

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(measure, http_clients()))


def measure_parser(proxy):
    runs = [(f"{proxy.url}/{name}/all/", f"parser/{name}") for name in FORMATS]
    return zip(FORMATS, run(node("ratelimit-header-parser"), runs))


def measure_grpc():
    for name, command, its in [
        ("grpcio", python("grpcio"), version("grpcio")),
        ("@grpc/grpc-js", node("@grpc/grpc-js"), node_version("@grpc/grpc-js")),
    ]:
        servers = [Server("tonic"), Server("tonic")]
        try:
            yield name, its, run(command, [(servers[0].address, None), (servers[1].address, POLICY)])
        finally:
            for server in servers:
                server.stop()


def label(group, name):
    labels = {
        "fetch": "`fetch` of Node.js",
        "openai": f"`openai` for {group.title().replace('Node', 'Node.js')}",
        "plugin-throttling": "`@octokit/plugin-throttling`",
    }
    return labels.get(name, f"`{name}`")


def tables(http, parser, grpc):
    yield "| client | version | set up by | `Retry-After` | reads the fields | misreads the fields |"
    yield "|---|---|---|---|---|---|"
    for name, its, set_up, waits in http:
        yield f"| {name} | {its} | {set_up} | {' | '.join(summary(waits))} |"
    yield ""
    yield "Seconds from the refusal to the first retry. ✗ marks a retry that was refused again, – no retry:"
    yield ""
    yield "| client | `Retry-After` alone | " + " | ".join(f"and {name}" for name in FORMATS) + " | " + " | ".join(
        f"{name} alone" for name in FORMATS
    ) + " |"
    yield "|---|" + "---|" * 11
    for name, its, _, waits in http:
        yield f"| {name} {its} | " + " | ".join(cell(waits[scenario]) for scenario in scenarios()) + " |"
    yield ""
    its = node_version("ratelimit-header-parser")
    yield f"| `ratelimit-header-parser` {its} | limit | remaining | seconds to the reset | |"
    yield "|---|---|---|---|---|"
    for name, read in parser:
        if read is None:
            yield f"| {name} | – | – | – | not recognized |"
            continue
        # JSON has no NaN.
        shown = ["NaN" if number is None else f"{number:.0f}" for number in read]
        right = shown[:2] == ["2", "0"] and read[2] is not None and abs(read[2] - FULL_AFTER) < 1.5
        yield f"| {name} | {' | '.join(shown)} | {'read' if right else 'misread'} |"
    yield ""
    yield "| client | version | without a retry policy | with one that has `RESOURCE_EXHAUSTED` |"
    yield "|---|---|---|---|"
    for name, its, ((code, seconds), (retried, waited)) in grpc:
        yield f"| `{name}` | {its} | `{code}` after {seconds:.1f} s | `{retried}` after {waited:.1f} s |"


def write(lines):
    begin, end = "<!-- tools/clients/run.sh --write -->\n", "<!-- end -->\n"
    before, rest = PAGE.read_text().split(begin)
    after = rest.split(end)[1]
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after)


def main():
    servers = {
        name: Server("quickstart", "--key", "header x-api-key", "--headers", name) for name in ["none", *FORMATS]
    }
    try:
        proxy = Proxy(servers)
        http = measure_http(proxy)
        lines = list(tables(http, measure_parser(proxy), measure_grpc()))
    finally:
        for server in servers.values():
            server.stop()
    if sys.argv[1:] == ["--write"]:
        write(lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    # Nothing leaves the loopback.
    os.environ["no_proxy"] = "127.0.0.1"
    main()
