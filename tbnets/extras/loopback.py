"""Serves a web application on this machine, for `tbnets demo` and `serve`.

Any web page can send requests to a local server and, by DNS rebinding, read the
responses. This server therefore rejects requests to another host or from
another page. Its headers forbid framing and foreign scripts.
"""

import ipaddress
import json
import socket
import threading
import time
import traceback
import urllib.parse

# Werkzeug comes with TensorBoard. It parses requests, limits their size, and
# calls an application without a socket in tests.
from werkzeug.exceptions import Forbidden, HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from tbnets.errors import InputError, UserError
from tbnets.serving.protocol import HTTP_STATUS

HOST = "127.0.0.1"
GRACE = 30
"""Maximum time in seconds to finish the last requests when a server stops."""
_SILENCE = 30
"""Maximum time in seconds that a client may be silent."""
_POLL = 0.05
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
    """A WSGI application that rejects requests from other web pages.

    Args:
        answer: function that takes a `Request` and returns a `Response`, or
            raises an `HTTPException` or a `UserError`. An error becomes a
            response `{"error": ...}`.
        host: address that the server listens on.
        most_bytes: maximum size of a request in bytes.
    """

    def __init__(self, answer, host=HOST, most_bytes=0):
        self._answer, self._host = answer, host
        self._most_bytes = most_bytes
        self.running = set()

    def __call__(self, environ, start_response):
        """Handles a WSGI request."""
        request = Request(environ)
        self.running.add(request)
        try:
            response = self._respond(request)
            response.headers.update(HEADERS)
            yield from response(environ, start_response)
        finally:
            self.running.discard(request)

    def _respond(self, request):
        request.max_content_length = self._most_bytes
        try:
            check_is_own(request, self._host)
            return self._answer(request)
        except HTTPException as error:
            status, message = error.code, error.description
        except UserError as error:
            code = getattr(error, "code", "INVALID_ARGUMENT")
            status, message = HTTP_STATUS[code], str(error)
        except Exception:  # Errors must not end the server.
            traceback.print_exc()
            status = 500
            message = "This is a bug in tbnets. See its terminal for details."
        return in_json({"error": message}, status)


def check_is_own(request, host):
    """Raises an error if a request is for another host or from another page.

    `host` is the address that the server listens on. Browsers add the headers
    `Origin` and `Sec-Fetch-Site`; other programs may leave them out.
    """
    if not is_own_name(request.host, host):
        raise Forbidden("Use the address of this server.")
    site = request.headers.get("Sec-Fetch-Site", "none")
    is_foreign = site not in ("same-origin", "none") and request.path != "/"
    own = f"http://{request.host}"
    if is_foreign or request.headers.get("Origin", own) != own:
        raise Forbidden("This server rejects requests from other pages.")


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
        time.sleep(_POLL)


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE

    def log(self, *_):
        pass

    log_request = log

    def run_wsgi(self):
        try:
            urllib.parse.urlsplit(self.path)
        except ValueError:  # Werkzeug cannot parse the path.
            self.send_error(400)
        else:
            super().run_wsgi()


class Server(ThreadedWSGIServer):
    """A server that finishes its running requests before it stops."""

    def start(self):
        """Starts to serve requests in a thread."""
        threading.Thread(
            target=self.serve_forever, args=(_POLL,), daemon=True
        ).start()

    def end(self, grace=GRACE):
        """Closes the port; waits up to `grace` seconds for open requests."""
        self.shutdown()
        end = time.monotonic() + grace
        while self.app.running and time.monotonic() < end:
            time.sleep(_POLL)


def server_of(app, host=HOST, port=0, flag="port"):
    """Returns a `Server` for a `LocalApp`, without starting it.

    Port 0 stands for any free port. Raises ValueError if the port cannot be
    opened; the message contains `flag`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as opened:
            return Server(host, port, app, _Handler, fd=opened.fileno())
    except OSError as error:
        expected = f"be a free port of {host}, or 0 for any"
        received = f"{flag}={port}: {error.strerror}"
        raise InputError(flag, expected, received) from error
