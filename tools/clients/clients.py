"""The Python clients: `clients.py NAME`, with a list of `[url, key]` in JSON as its input.

Each function sends three requests to a URL, of which the third is refused, and lets the client retry it. The proxy of
`measure.py` sees when and how.
"""

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

HEADER = "x-api-key"


def over_requests(url, key):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = requests.Session()
    session.headers[HEADER] = key
    session.mount("http://", HTTPAdapter(max_retries=Retry(3, status_forcelist=[429])))
    for _ in range(3):
        session.get(url)


def over_urllib3(url, key):
    import urllib3

    pool = urllib3.PoolManager(headers={HEADER: key}, retries=urllib3.Retry(3, status_forcelist=[429]))
    for _ in range(3):
        pool.request("GET", url)


def over_httpx(url, key):
    import httpx

    # These retries are for connections that fail, not for answers.
    with httpx.Client(headers={HEADER: key}, transport=httpx.HTTPTransport(retries=3)) as client:
        for _ in range(3):
            client.get(url)


def over_httpx_retries(url, key):
    import httpx
    from httpx_retries import Retry, RetryTransport

    with httpx.Client(headers={HEADER: key}, transport=RetryTransport(retry=Retry(total=3))) as client:
        for _ in range(3):
            client.get(url)


def over_aiohttp(url, key):
    import aiohttp

    async def run():
        async with aiohttp.ClientSession(headers={HEADER: key}) as client:
            for _ in range(3):
                async with client.get(url) as answer:
                    await answer.read()

    asyncio.run(run())


def over_aiohttp_retry(url, key):
    from aiohttp_retry import ExponentialRetry, RetryClient

    async def run():
        retry = ExponentialRetry(attempts=4, statuses={429})
        async with RetryClient(headers={HEADER: key}, retry_options=retry) as client:
            for _ in range(3):
                async with client.get(url) as answer:
                    await answer.read()

    asyncio.run(run())


def over_openai(url, key):
    import openai

    client = openai.OpenAI(api_key="none", base_url=url, max_retries=3, default_headers={HEADER: key})
    for _ in range(3):
        try:
            client.models.list()
        except openai.NotFoundError:
            pass  # Admitted: the server has no such route.


def over_grpcio(target, policy):
    """Returns the status of the third call, and the seconds that it took."""
    import grpc

    options = [("grpc.service_config", json.dumps(policy))] if policy else []
    with grpc.insecure_channel(target, options) as channel:
        say_hello = channel.unary_unary("/greeter.Greeter/SayHello")
        for _ in range(2):
            say_hello(b"")
        start = time.monotonic()
        try:
            say_hello(b"")
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        return [code, time.monotonic() - start]


CLIENTS = {
    "requests": over_requests,
    "urllib3": over_urllib3,
    "httpx": over_httpx,
    "httpx-retries": over_httpx_retries,
    "aiohttp": over_aiohttp,
    "aiohttp-retry": over_aiohttp_retry,
    "openai": over_openai,
    "grpcio": over_grpcio,
}


def main():
    client, runs = CLIENTS[sys.argv[1]], json.load(sys.stdin)

    def attempt(run):
        try:
            return client(*run)
        except Exception as error:  # It gave up: what it did until then was seen.
            return repr(error)

    with ThreadPoolExecutor(max(1, len(runs))) as threads:
        print(json.dumps(list(threads.map(attempt, runs))))


if __name__ == "__main__":
    main()
