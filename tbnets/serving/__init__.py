"""SavedModels and LiteRT models, search, and the model zoo.

To learn the package, read the modules in this order::

    endpoints, inputs            the functions of a SavedModel
    export, ops                  writes a SavedModel with allowed ops
    checksums, saved_files       reads and verifies its files
    served                       calls a SavedModel
    search, photo_search         ranks photos for sentences
    photo_index                  caches the embeddings of a folder
    search_index, index_writer   stores embeddings for search
    confidence, calibration      computes and fits confidences
    zoo, assembled               finds and completes zoo models
    litert_files, litert         describes and writes LiteRT models
    protocol, deployment         files for TensorFlow Serving
"""
