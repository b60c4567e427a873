"""Serves a local web application that only its own page can use.

Any web page can send requests to a local server and, by DNS rebinding, read the
responses. This server therefore rejects requests to another host or from
another page. Its headers forbid framing and foreign scripts.
"""

import contextlib
import ipaddress
import json
import os
import socket
import sys
import threading
import time
import traceback
import urllib.parse

from werkzeug.exceptions import (
    Forbidden,
    HTTPException,
    LengthRequired,
    RequestEntityTooLarge,
)
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from tbnets.errors import InputError, UserError
from tbnets.serving.protocol import HTTP_STATUS

HOST = "127.0.0.1"
PATIENCE = 30
"""Maximum time in seconds that a client may be silent."""
GRACE = 30
"""Maximum time in seconds to finish the last requests when a server stops."""
_WAKES = 0.5
"""Maximum delay in seconds for handling a signal that another thread
received."""
_SILENCE = 0.5
"""Maximum time in seconds that a silent client can delay the end of a
server."""
_POLL = 0.05
_MOST_UNREAD = 1000
"""Number of reads of up to 64 KB after which a client that still sends data is
disconnected."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LocalApp:
    """A WSGI application that accepts requests only from its own page.

    Args:
        answer: function that takes a `Request` and returns a `Response`, or
            raises an `HTTPException` or a `UserError`.
        host: address that the server listens on.
        most_bytes: maximum size of a request in bytes.
    """

    def __init__(self, answer, host=HOST, most_bytes=0):
        self._answer, self._host = answer, host
        self._most_bytes = most_bytes

    def __call__(self, environ, start_response):
        """Handles a WSGI request."""
        tell, most_bytes = sys.stderr.write, self._most_bytes
        response = respond(environ, self._checked, tell, most_bytes)
        response.headers.update(HEADERS)
        return response(environ, start_response)

    def _checked(self, request):
        """Answers a request, or raises an error if another page sent it."""
        if not is_own_name(request.host, self._host):
            raise Forbidden("Use the address of this server.")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and request.path != "/":
            raise Forbidden(
                "This server accepts requests only from its own page."
            )
        if request.method not in ("GET", "HEAD"):
            if request.headers.get("Origin") != f"http://{request.host}":
                raise Forbidden("Only the page of this server sends photos.")
            if "Transfer-Encoding" in request.headers:
                raise LengthRequired("The request must have a Content-Length.")
        return self._answer(request)


def respond(environ, answer, tell, most_bytes):
    """Returns `answer(request)`, or its error as a JSON response.

    `environ` is the WSGI environment of the request. `tell` prints the
    traceback of an unexpected error. `most_bytes` is the maximum size of the
    request.
    """
    request = Request(environ)
    request.max_content_length = most_bytes
    try:
        return answer(request)
    except RequestEntityTooLarge as error:
        status = error.code
        message = f"A request must have at most {most_bytes} bytes. Send less."
    except HTTPException as error:
        status, message = error.code, error.description
    except UserError as error:
        code = getattr(error, "code", "INVALID_ARGUMENT")
        status, message = HTTP_STATUS[code], str(error)
    except Exception:  # Errors must not end the server.
        tell(traceback.format_exc())
        status = 500
        message = "This is a bug in tbnets. See its terminal for details."
    return in_json({"error": message}, status)


def is_own_name(name, listening):
    """Returns whether the `Host` header of a request names the server."""
    # DNS rebinding needs the host name of another site, so IP addresses are
    # safe.
    try:
        name = urllib.parse.urlsplit(f"//{name}").hostname
        if name in ("localhost", HOST, listening):
            return True
        ipaddress.ip_address(name or "")
    except ValueError:
        return False
    return not is_local(listening)


def is_local(host):
    """Returns whether an address is reachable only from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def in_url(host):
    """Returns `host` as written in a URL, with an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def in_json(value, status=200):
    """Returns a response that contains a value as JSON."""
    return Response(json.dumps(value), status, mimetype="application/json")


def wait():
    """Waits until a signal ends the server."""
    # Only the main thread handles signals, so it must wake regularly.
    while True:
        time.sleep(_WAKES)


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def version_string(self):
        return "tbnets"

    error_content_type = "text/plain"
    error_message_format = "%(message)s\n"

    def log(self, type, message, *args):
        pass

    def log_request(self, code="-", size="-"):
        pass

    def handle_one_request(self):
        if self._has_request():
            super().handle_one_request()
        else:
            self.close_connection = True

    def _has_request(self):
        self.connection.settimeout(_SILENCE)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                has_request = bool(self.connection.recv(1, socket.MSG_PEEK))
            except TimeoutError:
                if self.server.is_ending or time.monotonic() > end:
                    return False
            else:
                self.connection.settimeout(PATIENCE)
                return has_request

    def run_wsgi(self):
        try:
            urllib.parse.urlsplit(self.path)
        except ValueError:  # Werkzeug cannot parse the path.
            self.send_error(400)
        else:
            super().run_wsgi()


class Server(ThreadedWSGIServer):
    """A server that serves all connected clients before it stops."""

    daemon_threads = False  # Threads that `server_close` waits for.
    is_ending = False

    def start(self):
        """Starts to serve requests in a thread."""
        self._accepting = threading.Thread(
            target=self.serve_forever, args=(_POLL,), daemon=True
        )
        self._accepting.start()

    def end(self, grace=GRACE):
        """Closes the port; waits up to `grace` seconds for open requests."""
        self.is_ending = True
        self.shutdown()
        self._accepting.join(grace)

    def shutdown_request(self, request):
        """Closes a connection after reading all data that the client sends."""
        # A connection with unread data is reset, and its client may lose the
        # response.
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            request.settimeout(_SILENCE)
            for _ in range(_MOST_UNREAD):
                if not request.recv(2**16):
                    break
        self.close_request(request)

    def server_close(self):
        """Accepts pending connections, closes the port and awaits threads."""
        # Otherwise the kernel would reset the connections.
        with contextlib.suppress(OSError):  # No client, or already closed.
            self.socket.settimeout(0)
            while True:
                self.process_request(*self.get_request())
        super().server_close()


def server_of(app, host=HOST, port=0, flag="port"):
    """Returns a `Server` for a WSGI application, without starting it.

    Port 0 stands for any free port. Raises ValueError if the port cannot be
    opened; the message contains `flag`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as opened:
            return Server(host, port, app, _Handler, fd=opened.fileno())
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else error
        raise InputError(
            flag,
            f"be a port that can be opened on {host}",
            f"{flag}={port}: {reason}",
            "Choose another port, or 0 for any free port.",
        ) from error
