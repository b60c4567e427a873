"""Locks that go with the process that holds them, however it ends.

They are of the kind that all processes keep who ask for them, and none else.
Over NFS they hold where the server knows them; where the system or the file
system knows none, nobody is kept out.
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
    """Another process holds the lock of a folder.

    Args:
        folder: the folder.
        argument: what names it.
        holder: number and machine of the process.
    """

    def __init__(self, folder, argument, holder):
        super().__init__(
            f"`{argument}` must be a folder that one process at a time "
            f"writes. Received: {argument}={folder}, which is being "
            f"written by process {holder}. Wait until that ends, end it, or "
            "name another folder."
        )
        self.holder = holder


class FolderLock:
    """What one process at a time holds of a folder.

    The lock ends with the process, or when nobody refers to it any more. A
    process that holds it already gets the same one again. It is on a file in
    the folder, which tells the number of the process and stays.

    Args:
        folder: the folder, which must exist.
        name: of the file.
        argument: what names the folder, for the error.

    Raises:
        FileExistsError: another process holds it; tells which.
    """

    _held = weakref.WeakValueDictionary()
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

    @classmethod
    def take(cls, folder, name, argument, is_alone=False):
        """Returns the lock of a folder, held by this process.

        Args:
            folder: as above, and so are the next two.
            name: of the file.
            argument: what names the folder.
            is_alone: whether who holds it in this process keeps others out.
        """
        place = (os.path.realpath(folder), name)
        with cls._guard:
            lock = cls._held.get(place)
            if lock is None or is_alone:
                lock = cls._held[place] = cls(folder, name, argument)
        return lock

    @classmethod
    def wait(cls, folder, name, tell):
        """Returns the lock of a folder as soon as nobody else holds it.

        Args:
            folder: the folder.
            name: of the file.
            tell: called once with who holds it, if somebody does.
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
        """Closes what a forked child has of its parent's locks.

        The parent keeps them; a child that outlives it must not.
        """
        for lock in list(cls._held.values()):
            lock._close()
        cls._held.clear()
        cls._guard = threading.Lock()


with contextlib.suppress(AttributeError):  # Not on every system.
    os.register_at_fork(after_in_child=FolderLock.forget)
