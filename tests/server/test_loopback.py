"""Waiting for the signal that ends a server."""

import signal
import threading
import time

import pytest

from tbnets.server import loopback


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
