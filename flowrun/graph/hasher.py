"""Operator ids: 32 hex digits that stay the same from run to run, so that state finds its operator again.

An operator's id comes from, in this order: the user's own hash, the uid, the structure. The structural id is a hash of what lies
upstream (kinds of operators, input indexes, side-output tags; of sources also the columns) and of nothing else: not of names,
parallelism, chaining, functions, numbers given while building, or what other pipelines in the job look like. So a job may be
renamed, rescaled, and its statements reordered, and ids stay. (Apache Flink's `StreamGraphHasherV2` also mixes in a node's
position in the traversal and its chained outputs; both change ids when an unrelated operator or a parallelism does.)

Operators that look alike from upstream, such as two filters of one stream, are told apart by what lies downstream, and if that
is alike too by their order. Whoever wants state to survive deeper changes gives a uid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from flowrun.errors import InternalError, PipelineError
from flowrun.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

_USER_HASH = re.compile(r"[0-9a-f]{32}")


def hash_uid(uid: str) -> str:
    """The operator id of a uid.

    >>> hash_uid("orders")
    'f72d27f090e8bcdf318702643dbefd9d'
    """
    return _digest("uid", uid)


def operator_ids(graph: StreamGraph) -> Mapping[int, str]:
    """Node id → operator id, unique in the graph.

    Raises:
        PipelineError: two operators have one uid, or a user hash is not 32 hex digits.
    """
    _check_uids(graph)
    ids: dict[int, str] = {}
    downstream: dict[int, str] = {}
    for generation in _generations(graph):
        alike: dict[str, list[StreamNode]] = {}
        for node in generation:
            if node.user_hash is not None:
                ids[node.id] = node.user_hash
            elif node.uid is not None:
                ids[node.id] = hash_uid(node.uid)
            else:
                alike.setdefault(_upstream_hash(node, graph, ids), []).append(node)
        for upstream, nodes in alike.items():
            if len(nodes) == 1:
                ids[nodes[0].id] = upstream
                continue
            downstream = downstream or _downstream_hashes(graph)
            seen: dict[str, int] = {}
            for node in nodes:
                number = seen[downstream[node.id]] = seen.get(downstream[node.id], -1) + 1
                ids[node.id] = _digest("alike", upstream, downstream[node.id], str(number))
    _check_unique(graph, ids)
    return ids


def _digest(*parts: str) -> str:
    """128 bits of BLAKE2b over the parts, each with its length, so that no two lists of parts look the same."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.hexdigest()


def _generations(graph: StreamGraph) -> Iterable[list[StreamNode]]:
    """Nodes by their longest distance from a source: nodes that look alike from upstream have the same one."""
    depths: dict[int, int] = {}
    generations: list[list[StreamNode]] = []
    for node in graph.nodes:
        depth = max((depths[e.source] + 1 for e in graph.in_edges(node.id)), default=0)
        depths[node.id] = depth
        if depth == len(generations):
            generations.append([])
        generations[depth].append(node)
    return generations


def _edge_parts(edge: StreamEdge) -> tuple[str, str]:
    return str(edge.input_index), "" if edge.tag is None else f"tag {edge.tag.name}"


def _upstream_hash(node: StreamNode, graph: StreamGraph, ids: Mapping[int, str]) -> str:
    parts = ["structure", node.kind.name]
    if node.source is not None:  # only sources with the same columns may be taken for each other
        parts.append(str(node.schema))
    inputs = sorted((*_edge_parts(edge), ids[edge.source]) for edge in graph.in_edges(node.id))
    for index, tag, upstream in inputs:
        parts += (index, tag, upstream)
    return _digest(*parts)


def _downstream_hashes(graph: StreamGraph) -> dict[int, str]:
    """A hash of everything that is reached from each node, and of the node's own kind and columns."""
    hashes: dict[int, str] = {}
    for node in reversed(graph.nodes):
        parts = ["downstream", node.kind.name, node.uid or "", type(node.factory).__qualname__, str(node.schema)]
        outputs = sorted(
            (*_edge_parts(edge), edge.partitioner.label, hashes[edge.target]) for edge in graph.out_edges(node.id)
        )
        for index, tag, label, target in outputs:
            parts += (index, tag, label, target)
        hashes[node.id] = _digest(*parts)
    return hashes


def _check_uids(graph: StreamGraph) -> None:
    owners: dict[str, StreamNode] = {}
    for node in graph.nodes:
        if node.user_hash is not None and not _USER_HASH.fullmatch(node.user_hash):
            raise PipelineError.of(
                f"'{node.name}' has the user hash '{node.user_hash}'; expected 32 hex digits in lower case",
                hint="copy the operator id from the metadata of the savepoint",
            )
        if node.uid is None:
            continue
        other = owners.setdefault(node.uid, node)
        if other is not node:
            raise PipelineError.of(
                f"'{other.name}' and '{node.name}' have the same uid '{node.uid}'",
                hint="state is mapped by uid: give each operator a uid of its own",
            )


def _check_unique(graph: StreamGraph, ids: Mapping[int, str]) -> None:
    owners: dict[str, StreamNode] = {}
    for node in graph.nodes:
        other = owners.setdefault(ids[node.id], node)
        if other is node:
            continue
        if node.user_hash is not None or other.user_hash is not None:
            raise PipelineError.of(
                f"'{other.name}' and '{node.name}' have the same operator id {ids[node.id]}",
                hint="give each operator a user hash of its own",
            )
        raise InternalError(f"'{other.name}' and '{node.name}' have the same operator id {ids[node.id]}")
