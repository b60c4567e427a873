"""The hierarchical LSTM over constituency trees."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.checked_numbers import checked_number
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.tree_levels import WEIGHTS, tree_states
from tbnets.text.packed_trees import PackedTrees


@keras.saving.register_keras_serializable(package="tbnets")
class TreeLSTM(ConfiguredLayer):
    r"""Computes the state of every node of constituency trees.

    With N(j) the children of node j that are noun phrases, M(j) the others:

        \hat h_j = sum_{k in N(j)} h_k,  \bar h_j = sum_{l in M(j)} h_l    (2)
        \hat f_jk = sigma(\hat U_f h_k + b_f)                              (3)
        \bar f_jl = sigma(\bar U_f h_l + b_f)                              (4)
        i_j = sigma(W_i x_j + \hat U_i \hat h_j + \bar U_i \bar h_j + b_i) (5)
        o_j = sigma(W_o x_j + \hat U_o \hat h_j + \bar U_o \bar h_j + b_o) (6)
        u_j = tanh(W_u x_j + \hat U_u \hat h_j + \bar U_u \bar h_j + b_u)
        c_j = i_j u_j + sum_k \hat f_jk c_k + sum_l \bar f_jl c_l          (7)
        h_j = o_j tanh(c_j)                                                (8)

    Only words have an x, and words have no children, so that W_f of the
    paper, which is read where both meet, is no weight of the layer.

    XLA does not compile the layer, as the sizes of its steps are data; see
    docs/trees.md.

    Args:
        units: size of a state. Tai et al. 2015: 150.
        tied: whether noun phrases and other children share their matrices;
            the layer is then the child-sum Tree-LSTM.

    A call takes

    - `inputs`: `[num_words, dim]` vectors of the words of all trees, in the
      order of `trees.word_ids`;
    - `trees`: `PackedTrees`, from `text.packed_trees.pack_trees`.

    Returns from a call: `[num_nodes, units]`, h of each node, in the order
    of the packed trees: `tf.gather(states, trees.roots)` are the sentences,
    `tf.boolean_mask(states, trees.is_noun_phrase > 0)` the noun phrases, and
    `trees.trees` and `trees.spans` tell which caption and words a node is.

    Example:
        trees = tbnets.pack_trees(rows)  # rows: of TreeRows
        vectors = tf.gather(table, trees.word_ids)
        states = tbnets.TreeLSTM(512)(vectors, trees)

    Source: Niu et al. 2017, Eq. 2-8; tied: Tai et al. 2015, Eq. 2-8.
    Departures: none; b_f begins with 1, as in the LSTM of Keras, which the
    papers do not tell.
    """

    def __init__(self, units: int, tied: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = checked_number("units", units, 1, whole=True)
        self.tied = tied

    def build(
        self, inputs_shape: Sequence[int | None], trees_shape: Any = None
    ) -> None:
        """Creates the matrices; gates stand side by side as i, o, u."""
        units = self.units
        self.kernel = self.add_weight(
            name="kernel",
            shape=(inputs_shape[-1], 3 * units),
            initializer="glorot_uniform",
        )
        kinds = ("children",) if self.tied else ("noun", "other")
        for part, width in (("gates", 3), ("forget", 1)):
            shape = units, width * units
            made = [
                self.add_weight(
                    name=f"{kind}_{part}", shape=shape, initializer="orthogonal"
                )
                for kind in kinds
            ]
            setattr(self, f"noun_{part}", made[0])
            setattr(self, f"other_{part}", made[-1])
        self.bias = self.add_weight(
            name="bias", shape=(3 * units,), initializer="zeros"
        )
        self.forget_bias = self.add_weight(
            name="forget_bias", shape=(units,), initializer="ones"
        )
        self.built = True

    def call(self, inputs: Array, trees: PackedTrees) -> tf.Tensor:
        """Returns the state of every node."""

        def cast(values):
            return tf.cast(values, self.compute_dtype)

        projected = tf.matmul(cast(inputs), cast(self.kernel))
        weights = [cast(getattr(self, name)) for name in WEIGHTS]
        return tree_states(projected, weights, PackedTrees(*trees))
