"""What this process computes on: how many cores, and whether on them alone."""

import os


def usable_cores():
    """Returns how many cores the process may use, at least 1.

    A container or `taskset` may allow it fewer than the machine has.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1


def no_accelerator():
    """Tells whether TensorFlow has CPUs alone. It starts its devices."""
    import tensorflow as tf  # Most of those who ask for cores do without.

    devices = tf.config.list_physical_devices()
    return all(device.device_type == "CPU" for device in devices)
