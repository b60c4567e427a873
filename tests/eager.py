"""Steps without tracing: seconds less where no graph is at stake."""

import contextlib


@contextlib.contextmanager
def without_tracing():
    """Runs functions eagerly; what is saved as a SavedModel is a graph still.

    TensorFlow's own saving is traced, too: run eagerly, it would leave its
    operations in the file.
    """
    import tensorflow as tf

    save = tf.saved_model.save

    def traced(*arguments, **options):
        tf.config.run_functions_eagerly(False)
        try:
            return save(*arguments, **options)
        finally:
            tf.config.run_functions_eagerly(True)

    tf.config.run_functions_eagerly(True)
    tf.saved_model.save = traced
    try:
        yield
    finally:
        tf.saved_model.save = save
        tf.config.run_functions_eagerly(False)
