"""Locks folders, so that only one process writes to a folder at a time.

The locks are advisory: they affect only processes that request them. If the
operating system or file system does not support locks, every request succeeds.
"""

import contextlib
import os
import platform
import threading
import time
import weakref

from tbnets.errors import ExistingFileError
from tbnets.files import try_lock

WAIT_SECONDS = 0.5


class FolderInUse(ExistingFileError):
    """Another process holds the lock on a folder."""

    def __init__(self, folder, argument, holder):
        super().__init__(
            f"`{argument}` must be a folder that no other process writes. "
            f"Received: {argument}={folder}, which is being written by "
            f"process {holder}. Wait until that process ends, end it, or "
            "choose another folder."
        )
        self.holder = holder


class FolderLock:
    """An exclusive lock on a folder, held by one process.

    If the process already holds the lock, `take` returns the existing lock. The
    lock is released when the process ends or the last reference to this object
    is deleted. The file `name` in the folder contains the process ID and is not
    removed. `argument` is the name of the argument in error messages.
    """

    _locks = weakref.WeakValueDictionary()
    _guard = threading.Lock()

    def __init__(self, folder, name, argument):
        path = os.path.join(folder, name)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        if try_lock(self._descriptor) is False:
            holder = os.pread(self._descriptor, 90, 0)
            holder = holder.decode("ascii", "replace").strip() or "(unknown)"
            self._close()
            raise FolderInUse(folder, argument, holder)
        os.ftruncate(self._descriptor, 0)
        holder = f"{os.getpid()} of {platform.node()}\n"
        os.pwrite(self._descriptor, holder.encode("ascii", "replace"), 0)
        self._locks[os.path.realpath(folder), name] = self

    @classmethod
    def take(cls, folder, name, argument):
        """Locks a folder, or returns this process's existing lock."""
        with cls._guard:
            lock = cls._locks.get((os.path.realpath(folder), name))
            return lock or cls(folder, name, argument)

    @classmethod
    def wait(cls, folder, name, tell):
        """Waits until no other process holds the lock, and acquires the lock.

        If another process holds the lock, first calls `tell` with a description
        of this process.
        """
        try:
            return cls.take(folder, name, "folder")
        except FolderInUse as error:
            tell(error.holder)
        while True:
            time.sleep(WAIT_SECONDS)
            with contextlib.suppress(FolderInUse):
                return cls.take(folder, name, "folder")

    @classmethod
    def forget(cls):
        """Closes the lock descriptors that a forked child inherits."""
        # Otherwise a child that outlives its parent would keep the locks.
        for lock in list(cls._locks.values()):
            lock._close()
        cls._locks.clear()
        cls._guard = threading.Lock()


with contextlib.suppress(AttributeError):  # Windows cannot fork.
    os.register_at_fork(after_in_child=FolderLock.forget)
