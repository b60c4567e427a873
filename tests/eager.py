"""Runs steps without tracing, which is faster if no graph is tested."""

import contextlib


@contextlib.contextmanager
def without_tracing():
    """Runs functions eagerly, except functions that are exported or saved.

    If saving ran eagerly, TensorFlow would write its operations to the file,
    and an export would contain a copy of the network for each call.
    """
    import tensorflow as tf

    from tbnets.serving import export

    def traced(function):
        def call(*arguments, **options):
            tf.config.run_functions_eagerly(False)
            try:
                return function(*arguments, **options)
            finally:
                tf.config.run_functions_eagerly(True)

        return call

    exports = (export, "_traced"), (export, "guarded")
    places = (tf.saved_model, "save"), *exports
    before = [getattr(*place) for place in places]
    was_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    for place, function in zip(places, before):
        setattr(*place, traced(function))
    try:
        yield
    finally:
        for place, function in zip(places, before):
            setattr(*place, function)
        tf.config.run_functions_eagerly(was_eager)
