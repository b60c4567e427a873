"""Models behind TensorFlow Serving's two protocols, in this process.

::

    with StandIn(Models({"own": "runs/own"}), port=0, rest_port=0) as server:
        print(server.port, server.rest_port)

It is for trying and for tests. In production TensorFlow Serving does this.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from werkzeug.wrappers import Response
from werkzeug.wsgi import ClosingIterator

from tbnets.extras.demo.loopback import GRACE, HOST, server_of
from tbnets.extras.server.grpc_service import GrpcServer
from tbnets.extras.server.models import MOST_REQUESTS
from tbnets.extras.server.rest_service import RestService


class StandIn:
    """Loads models, listens, and ends cleanly; a context.

    Args:
        models: `Models`, not started.
        host: address to listen at.
        port: of gRPC; 0 for any that is free, None for no gRPC.
        rest_port: of REST; 0 for any that is free, None for no REST.
        tell: function of a line: the traceback of what must not happen.

    Attributes:
        models: `Models`.
        port: as given, or the one that was free.
        rest_port: the same.

    Raises:
        ImportError: gRPC, and the extra `serving` is not installed.
        ValueError: a model does not load, a port can not be opened.
    """

    def __init__(
        self, models, host=HOST, port=None, rest_port=None, tell=print
    ):
        self.models = models
        self.port, self.rest_port = port, rest_port
        self._grpc = self._rest = None
        models.start()
        try:
            if rest_port is not None:
                self._rest = _Rest(RestService(models, tell), host, rest_port)
                self.rest_port = self._rest.port
            if port is not None:
                self._grpc = GrpcServer(models, host, port, tell)
                self.port = self._grpc.port
        except BaseException:
            self.close()
            raise

    def close(self, grace=GRACE):
        """Takes no more requests, and ends when those in work are answered.

        Args:
            grace: seconds after which they are cut off.
        """
        closing = [one for one in (self._rest, self._grpc) if one]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.close(grace), closing))
        self.models.close()

    def __enter__(self):
        """Returns itself."""
        return self

    def __exit__(self, *_):
        """Closes it."""
        self.close()


class _Rest:
    """A WSGI app that listens, has a bound of requests, and is drained.

    Args:
        app: of WSGI.
        host: see `loopback.server_of`.
        port: see `loopback.server_of`.
    """

    def __init__(self, app, host, port):
        self._app = app
        self._lock = threading.Lock()
        self._in_work = 0
        self._server = server_of(self._answer, host, port, "rest_api_port")
        self.port = self._server.port
        self.close = self._server.end
        self._server.start()

    def _answer(self, environ, start_response):
        """Answers a request, unless too many are in work: unread."""
        with self._lock:
            is_busy = self._in_work >= MOST_REQUESTS
            self._in_work += not is_busy
        if is_busy:
            body = '{"error": "Too many requests at once. Ask again later."}'
            headers = {"Connection": "close"}
            busy = Response(body, 503, headers, mimetype="application/json")
            return busy(environ, start_response)
        try:
            answer = self._app(environ, start_response)
        except BaseException:
            self._leave()
            raise
        return ClosingIterator(answer, self._leave)

    def _leave(self):
        with self._lock:
            self._in_work -= 1
