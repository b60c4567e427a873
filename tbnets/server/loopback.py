"""A WSGI app for the user of this machine, and for no page of others.

Whatever a browser shows can send requests to this machine, and by DNS rebinding
read their answers. So a request must name the host as the user does, and come
from the app's own page; what goes out may not be framed, sniffed or scripted
by others.
"""

import ipaddress
import json
import os
import socket
import time
import traceback
import urllib.parse

from werkzeug.exceptions import Forbidden, HTTPException, LengthRequired
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from tbnets.errors import InputError, UserError

HOST = "127.0.0.1"
PATIENCE = 30
"""Seconds that a client may be silent in the middle of a request."""
_WAKES = 0.5
"""Seconds after which a signal is heeded that another thread has got."""
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
    """Answers the requests of its own page.

    Args:
        answer: function of a `werkzeug.wrappers.Request` -> `Response`, which
            may raise an `HTTPException` or a `UserError`: its words are what
            the page shows.
        host: address that the server listens at.
        most_bytes: of what a request may bring.
    """

    def __init__(self, answer, host=HOST, most_bytes=0):
        self._answer, self._host = answer, host
        self._most_bytes = most_bytes

    def __call__(self, environ, start_response):
        """Answers a request, as WSGI has it."""
        request = Request(environ)
        request.max_content_length = self._most_bytes
        try:
            self._check(request)
            response = self._answer(request)
        except HTTPException as error:
            response = in_json({"error": error.description}, error.code)
        except UserError as error:
            response = in_json({"error": str(error)}, 400)
        except Exception:
            traceback.print_exc()
            told = "This is a bug in tbnets; its terminal tells more."
            response = in_json({"error": told}, 500)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response(environ, start_response)

    def _check(self, request):
        """Refuses what no page of this server sends."""
        if not is_own_name(request.host, self._host):
            raise Forbidden("This server is asked by its address alone.")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and request.path != "/":
            raise Forbidden("This server answers its own page alone.")
        if request.method in ("GET", "HEAD"):
            return
        if request.headers.get("Origin") != f"http://{request.host}":
            raise Forbidden("This server takes photos of its own page alone.")
        if "Transfer-Encoding" in request.headers:
            raise LengthRequired("The size of a photo must be told.")


def is_own_name(name, listening):
    """Tells whether a request's header `Host` names the server.

    Who rebinds a name to this machine has a name, never an address.

    Args:
        name: the header, with or without a port.
        listening: address that the server listens at.
    """
    try:
        name = urllib.parse.urlsplit(f"//{name}").hostname
        if name in ("localhost", HOST, listening):
            return True
        ipaddress.ip_address(name or "")
    except ValueError:
        return False
    return not is_local(listening)


def is_local(host):
    """Tells whether an address is that of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def in_url(host):
    """Returns an address as it stands in a URL: of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def in_json(value, status=200):
    """Returns a response that holds a value as JSON."""
    return Response(json.dumps(value), status, mimetype="application/json")


def wait():
    """Waits for the signal that ends a server.

    Any thread may get it; the main one, which heeds it, waits here, and then
    learns of it when it wakes.
    """
    while True:
        time.sleep(_WAKES)


class _Handler(WSGIRequestHandler):
    """Reads requests without a word, and not forever."""

    timeout = PATIENCE

    def version_string(self):
        return "tbnets"

    error_content_type = "text/plain"
    error_message_format = "%(message)s\n"

    def log(self, type, message, *args):
        pass

    def log_request(self, code="-", size="-"):
        pass

    def run_wsgi(self):
        try:
            urllib.parse.urlsplit(self.path)
        except ValueError:  # Of which no request can be made for the app.
            self.send_error(400)
        else:
            super().run_wsgi()


def server_of(app, host=HOST, port=0, flag="port"):
    """Returns a server that listens, a thread a request.

    Args:
        app: of WSGI.
        host: address to listen at.
        port: to listen at; 0 for any that is free.
        flag: what users call the port.

    Returns:
        A `werkzeug.serving.BaseWSGIServer` with `port` and `serve_forever`.

    Raises:
        ValueError: the port can not be opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as opened:
            return make_server(
                *(host, port, app),
                threaded=True,
                request_handler=_Handler,
                fd=opened.fileno(),
            )
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else error
        raise InputError(
            f"`{flag}` must be one that can be opened at {host}. Received: "
            f"{flag}={port}: {reason}. Name another; 0 takes any that is free."
        ) from error
