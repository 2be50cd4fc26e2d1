"""Has a process import and build what each of its children would otherwise import and build for itself."""

from __future__ import annotations

from pathlib import Path

from flowrun.operators.implementations import import_operators
from flowrun.runners.compile import compile_sent
from flowrun.runners.session.messages import DispatcherGateway, JobManagerGateway, JobsGateway
from flowrun.runtime.cluster.session_messages import SessionResourcesGateway, TaskManagerGateway
from flowrun.runtime.cluster_messages import JobFilesGateway, JobObserverGateway, ResourceManagerGateway, WorkerGateway
from flowrun.runtime.messages import JobMasterGateway, TaskExecutorGateway
from flowrun.runtime.rpc.methods import prepare_protocol
from flowrun.state.checkpoints import PipelineText

_PROTOCOLS = (
    DispatcherGateway, JobFilesGateway, JobManagerGateway, JobMasterGateway, JobObserverGateway, JobsGateway, ResourceManagerGateway,
    SessionResourcesGateway, TaskExecutorGateway, TaskManagerGateway, WorkerGateway,
)  # fmt: skip
_SQL = """
CREATE TABLE source (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE sink (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'blackhole');
INSERT INTO sink SELECT k, COUNT(*) FROM source GROUP BY k;
"""
_YAML = """
name: warm-up
sources:
  source: {connector: datagen, schema: {k: BIGINT}, number-of-rows: 1}
steps:
  counted: {from: source, key_by: [k], aggregate: ["COUNT(*) AS n"]}
sinks:
  sink: {from: counted, connector: blackhole}
"""


def warm_up() -> None:
    """Compile a small pipeline of each kind, and build the coders of all messages. Starts no thread."""
    folder = str(Path.cwd())
    for name, text in (("warm-up.sql", _SQL), ("warm-up.yaml", _YAML)):
        compiled = compile_sent(PipelineText(name, text, folder, working_directory=folder), {}, Path(folder))
        import_operators(operator.factory for vertex in compiled.job_graph.vertices for operator in vertex.operators)
    for protocol in _PROTOCOLS:
        prepare_protocol(protocol)
