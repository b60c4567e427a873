"""Reads captions, photos, phrases and features, and draws batches of them.

To learn the package, read the modules in this order::

    sources, open                the files of a run, and its splits
    captions, splits             images with captions, and their splits
    layouts                      the columns of public data sets
    caption_formats              recognises and reads the formats of captions
    caption_archives             reads captions in archives
    caption_files                makes records of images, for all readers
    photos, archives             find and read the files of photos
    images, pictures             decode photos in a graph and with Pillow
    store/                       features on disk
    batches                      draws and reads batches
    phrases                      phrases with boxes
    entities, phrase_tables      the readers of phrases
    phrase_pairs                 pairs of phrases and regions
    candidate_mining, phrase_examples  candidate boxes and batches of them
    scenes/                      renders a data set
"""
