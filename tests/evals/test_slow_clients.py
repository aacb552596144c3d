"""Clients that hold a server up: each loses its connection, and others are answered meanwhile."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from served_models import Client, serving, untrained
from starlette.types import Receive, Scope, Send

from serving.connections import MOST_HEADER_BYTES, BoundedProtocol, server_config

LOOPBACK = "127.0.0.1"
MOST = 20


class Hasty(BoundedProtocol):
    """The same with bounds that a test can wait for."""

    most_connections = MOST
    header_seconds, body_seconds, read_seconds = 0.5, 0.5, 0.5


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(untrained("small"), protocol=Hasty) as client:
        yield client


def connected(client: Client, sent: bytes) -> socket.socket:
    connection = socket.create_connection((LOOPBACK, client.port))
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits until the server has closed it, and closes this end too."""
    with connection:
        connection.settimeout(60)
        try:
            while connection.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    return True


BODY = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/comp", b"GET /health HTTP/1.1\r\nhost: x\r\n", BODY, BODY + b"{", BODY.replace(b"1000", b"2000000000")],
)
def test_a_request_that_does_not_end_loses_its_connection_and_nobody_waits_for_it(client, sent):
    slow = connected(client, sent)
    assert client.get("/health").status == 200
    assert is_closed(slow)


def test_a_second_request_of_a_connection_has_its_bound_too(client):
    slow = connected(client, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200 OK" in slow.recv(1 << 16)
    slow.sendall(b"GET /health HTTP/1.1\r\nho")
    assert is_closed(slow)


def test_a_header_without_end_is_cut(client):
    slow = connected(client, b"GET /health HTTP/1.1\r\nx: ")
    try:
        for _ in range(64):
            slow.sendall(b"x" * MOST_HEADER_BYTES)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert is_closed(slow)


def test_more_connections_than_allowed_are_refused_and_then_allowed_again(client):
    held = [connected(client, b"") for _ in range(MOST + 10)]
    assert all(map(is_closed, held))
    assert client.get("/health").status == 200


def test_an_answer_that_nobody_reads_does_not_hold_its_connection():
    """An endless answer to a client that reads nothing: the application learns that its client is gone."""
    ended = threading.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await asyncio.sleep(0)
        ended.set()

    config = server_config(flood, Hasty)
    config.host, config.port, config.lifespan = LOOPBACK, 0, "off"
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    with socket.create_connection((LOOPBACK, server.servers[0].sockets[0].getsockname()[1])) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert ended.wait(250)
    server.should_exit = True
    thread.join()


def test_a_client_that_leaves_in_its_body_is_no_fault(client, caplog):
    with caplog.at_level(logging.DEBUG):
        for _ in range(5):
            connected(client, BODY + b"{").close()
        assert client.get("/health").status == 200
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
