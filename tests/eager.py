"""Steps without tracing: seconds less where no graph is at stake."""

import contextlib


@contextlib.contextmanager
def without_tracing():
    """Runs functions eagerly; what is exported is traced as ever.

    Run eagerly, TensorFlow's saving would leave its operations in the file,
    and an export would have each network in it as often as it is asked.
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
