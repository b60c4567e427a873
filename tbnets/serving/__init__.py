"""SavedModels and LiteRT models, search, and the model zoo.

To learn the package, read the modules in this order::

    endpoints                    the functions of a SavedModel
    inputs                       checks the inputs of these functions
    photo_reader, text_readers   convert photos and texts in the graph
    export, ops, half_precision  writes a SavedModel with allowed ops
    checksums, saved_files       reads and verifies its files
    served                       calls a SavedModel
    embedding_cache, identity    embeds a folder of photos once per model
    search, formatting           ranks photos, and formats the results
    search_index, index_writer   searches and writes embeddings on disk
    search_endpoint              searches an index in the graph
    doubt                        measures which similarities are likely
    zoo, assembled               finds and completes zoo models
    litert_files, litert         describes and writes LiteRT models
    protocol, warm_up            messages and files of TensorFlow Serving
"""
