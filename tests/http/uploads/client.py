"""Sends uploads one after the other, and prints a line for each: the status and the body, or the error.

python3 client.py http.client|urllib HOST:PORT COUNT BYTES
"""

import http.client
import sys
import urllib.error
import urllib.request


def by_http_client(address, body):
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("POST", "/", body, {"Content-Type": "application/octet-stream"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def by_urllib(address, body):
    request = urllib.request.Request(f"http://{address}/", body, {"Content-Type": "application/octet-stream"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.status, refused.read()


_, client, address, count, size = sys.argv
send = {"http.client": by_http_client, "urllib": by_urllib}[client]
# Without the proxies of the environment.
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
for _ in range(int(count)):
    try:
        status, answer = send(address, bytes(int(size)))
        print(status, answer.decode())
    except (OSError, http.client.HTTPException) as error:
        print("lost", repr(error))
