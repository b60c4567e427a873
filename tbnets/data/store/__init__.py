"""Stores features on disk, and finds them by id.

To learn the package, read the modules in this order::

    opening           opens features in any format
    features          the interface to features, and .npy files
    reader, manifest  a store that is open for reading, and its files
    npy               checks and reads the files of arrays
    writer            writes a store
    locks             one writer per folder
"""
