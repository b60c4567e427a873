"""A row of DGL: the child-sum tree LSTM by its messages over a graph.

DGL has no such layer. This is the cell of Tai et al. 2015 as its functions
for messages invite one to write it: a level of all trees at a time.
"""

import dgl
import torch

from benchmarks.peers_torch import tensors


def child_sum(arrays):
    """The sum of squares of all states, and gradients of words and weights."""
    edges = tensors(arrays, "children", "parents")
    num_nodes = int(arrays["num_nodes"])
    names = "words", "kernel", "gates", "forget"
    leaves = [one.requires_grad_() for one in tensors(arrays, *names)]
    words, kernel, gates, forget = leaves
    units = len(gates)
    graph = dgl.graph(tuple(edges), num_nodes=num_nodes)
    forget_bias = torch.ones(units, requires_grad=True)
    bias = torch.zeros(3 * units, requires_grad=True)
    leaves += [forget_bias, bias]

    def send(edges):
        return {"state": edges.src["state"], "cell": edges.src["cell"]}

    def gather(nodes):
        states, cells = nodes.mailbox["state"], nodes.mailbox["cell"]
        kept = torch.sigmoid(states @ forget + forget_bias) * cells
        return {"gates": states.sum(1) @ gates, "cell": kept.sum(1)}

    def update(nodes):
        let, out, new = (nodes.data["gates"] + bias).chunk(3, 1)
        cell = torch.sigmoid(let) * torch.tanh(new) + nodes.data["cell"]
        return {"cell": cell, "state": torch.sigmoid(out) * torch.tanh(cell)}

    def step():
        for one in leaves:
            one.grad = None
        rest = torch.zeros(num_nodes - len(words), 3 * units)
        with graph.local_scope():
            graph.ndata["gates"] = torch.cat([words @ kernel, rest])
            graph.ndata["state"] = torch.zeros(num_nodes, units)
            graph.ndata["cell"] = torch.zeros(num_nodes, units)
            dgl.prop_nodes_topo(graph, send, gather, apply_node_func=update)
            total = graph.ndata["state"].square().sum()
        total.backward()
        return total.item()

    return step
