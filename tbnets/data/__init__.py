"""Reads captions, photos, phrases and features, and draws batches of them.

To learn the package, read the modules in this order::

    sources, open                the files of a run, and its splits
    captions, splits             images with captions, and their splits
    caption_formats              finds the reader of a captions file
    caption_json, caption_tables, caption_archives   the readers
    layouts                      the names of columns
    caption_columns              finds the columns, for all readers
    photos, archives             find and read the files of photos
    images, pictures             decode photos in a graph and with Pillow
    store/                       features on disk
    batches                      draws and reads batches
    phrases                      phrases with boxes
    entities, phrase_tables      the readers of phrases
    phrase_pairs, localization/  batches of phrases and regions
    findings                     looks for weaknesses of a data set
    scenes/                      renders a data set
"""
