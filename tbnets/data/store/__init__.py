"""Stores features on disk, and finds them by id.

To learn the package, read the modules in this order::

    features          the interface to features, and .npy files
    reader            opens stores and other feature files
    npy               checks and reads the files of arrays
    writer            writes a store
"""
