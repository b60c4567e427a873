"""Every reader of the package, by name, with a valid file for each."""

from tests.fuzz import array_readers, model_readers, text_readers

READERS = {
    **text_readers.READERS,
    **array_readers.READERS,
    **model_readers.READERS,
}
