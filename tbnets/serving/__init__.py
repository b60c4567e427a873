"""SavedModels and LiteRT models, search, and the model zoo.

To learn the package, read the modules in this order::

    endpoints                    the functions of a SavedModel
    inputs                       checks and reads their inputs and photos
    export                       writes a SavedModel
    checksums, saved_files       reads and verifies its files and ops
    served                       calls a SavedModel
    embedding_cache              embeds a folder of photos once per model
    search                       ranks photos, and formats the results
    doubt                        measures which similarities are likely
    search_index, index_writer   searches and writes embeddings on disk
    zoo, assembled               finds and completes zoo models
    litert                       writes LiteRT models
    protocol                     messages and files of TensorFlow Serving
"""
