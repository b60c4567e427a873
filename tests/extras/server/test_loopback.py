"""Tests of the HTTP server that the demo and `tbnets serve` share."""

import signal
import socket
import threading
import time

import pytest
from werkzeug.wrappers import Response

from tbnets.extras import loopback


def test_a_signal_in_another_thread_ends_the_wait():
    def send():
        time.sleep(0.1)  # The main thread waits by now.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not ended.wait(20):
            late.append(signal.pthread_kill(main, signal.SIGUSR1))

    main, late, ended = threading.get_ident(), [], threading.Event()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    thread = threading.Thread(target=send)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            loopback.wait()
        ended.set()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert not late


@pytest.mark.parametrize("path", ["/", "http://[x/"])
def test_rejected_requests_are_read_to_their_end(path, capfd):
    app = loopback.LocalApp(lambda request: Response(request.get_data()))
    server = loopback.server_of(app)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        head = "Host: localhost\r\nContent-Length: 10000000\r\n\r\n"
        client.sendall(f"POST {path} HTTP/1.1\r\n{head}".encode())
        if path == "/":
            client.sendall(bytes(10**7))
        status = client.makefile("rb").readline().split()[1]
    server.end()
    assert status == (b"413" if path == "/" else b"400")
    assert not capfd.readouterr().err
