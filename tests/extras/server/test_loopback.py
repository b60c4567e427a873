"""Servers that end: the signal, and their last answers."""

import signal
import socket
import threading
import time
from concurrent import futures

import pytest
from werkzeug.wrappers import Response

from tbnets.extras import loopback


def test_a_signal_ends_it_that_another_thread_gets():
    def send():
        time.sleep(0.1)  # The main thread waits by now.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not heeded.wait(20):  # By this the main thread hears of both.
            late.append(signal.pthread_kill(main, signal.SIGUSR1))

    main, late, heeded = threading.get_ident(), [], threading.Event()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            loopback.wait()
        heeded.set()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert not late


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server():
    return loopback.server_of(Response("answer"))


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def read(client):
    with client, client.makefile("rb") as file:
        return file.read()


def test_clients_in_the_queue_are_answered_before_the_end(server):
    clients = [connect(server) for _ in range(8)]
    for client in clients:
        client.sendall(REQUEST)
    server.server_close()  # Nobody has been accepted yet.
    assert all(read(client).endswith(b"answer") for client in clients)
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_a_client_that_has_connected_may_still_ask(server, monkeypatch):
    monkeypatch.setattr(loopback, "_SILENCE", 60)
    client = connect(server)
    server.start()
    with futures.ThreadPoolExecutor() as pool:
        ending = pool.submit(server.end)
        with pytest.raises(futures.TimeoutError):
            ending.result(0.2)
        client.sendall(REQUEST)
        assert read(client).endswith(b"answer")
        ending.result()


def test_a_client_that_never_asks_does_not_hold_the_end(server, monkeypatch):
    monkeypatch.setattr(loopback, "_SILENCE", 0.01)
    monkeypatch.setattr(loopback, "PATIENCE", 999)
    client = connect(server)
    server.start()
    server.end(grace=999)
    assert read(client) == b""


def test_a_refused_request_is_read_to_its_end(server):
    server.start()
    client = connect(server)
    client.sendall(b"POST http://[x/ HTTP/1.1\r\n\r\n" + bytes(10**7))
    assert b" 400 " in read(client)
    server.end()
