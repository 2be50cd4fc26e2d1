"""Brings an upgrade of a job on a cluster to its end: the dispatcher runs the versions, this command has the upgrade in hand."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from flowrun.cli.cluster_arguments import ClusterOptions
from flowrun.cli.console import say
from flowrun.cli.supervising import begin_trial, ended_with
from flowrun.core.clock import SystemClock
from flowrun.errors import FlowrunError
from flowrun.runners.session.client import ClusterClient
from flowrun.runners.session.messages import JobSubmission
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.making import modules_of_version
from flowrun.runners.versions.records import Phase, PipelineVersion, Upgrade, first_line
from flowrun.runners.versions.trial import begin_going_back, end_going_back
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_from_value
from flowrun.state.storage.names import job_slug

_LOOK_MS = 200


def finish_on_cluster(cluster: ClusterOptions, history: VersionHistory, variables: Mapping[str, str]) -> Upgrade:
    """Bring an upgrade whose old version was stopped, or lost, to its end; gives it as it is then.

    Args:
        cluster: that the job runs on.
        history: of the pipeline.
        variables: values by name; those that are not kept are taken from there.

    Raises:
        StateError: the record of it cannot be read or written.
        ClusterError: the cluster cannot be reached; the upgrade can be gone on with later.
    """
    with cluster.client() as client:
        return _Steps(client, history, variables).run()


class _Steps:
    """One step after the other, from whatever phase the upgrade is in."""

    def __init__(self, client: ClusterClient, history: VersionHistory, variables: Mapping[str, str]) -> None:
        self._client = client
        self._history = history
        self._variables = variables

    def run(self) -> Upgrade:
        while True:
            upgrade = self._history.upgrade()
            assert upgrade is not None
            match upgrade.phase:
                case Phase.STOPPING:
                    self._begin(upgrade)
                case Phase.TRIAL:
                    self._try_new(upgrade)
                case Phase.GOING_BACK | Phase.FAILED:
                    return self._go_back(upgrade)
                case _:
                    return upgrade

    def _begin(self, upgrade: Upgrade) -> None:
        savepoint = ended_with(self._history, upgrade)
        if savepoint is None:  # the trial, which does not begin, is over
            begin_trial(self._history, upgrade, "")
            begin_going_back(self._history, upgrade, "the version before was lost before it had stopped")
            return
        begin_trial(self._history, upgrade, savepoint)
        say(f"version {upgrade.old} has stopped with savepoint {savepoint}")

    def _try_new(self, upgrade: Upgrade) -> None:
        running = self._running()
        try:
            job_id = running or self._submit(upgrade, upgrade.new, self._history.version(upgrade.new))
        except FlowrunError as error:
            if (present := self._history.upgrade()) is not None and present.phase is Phase.TRIAL:
                begin_going_back(self._history, upgrade, f"it was not taken: {error.message}")
            return
        say(f"version {upgrade.new} is on trial")
        ended = self._wait(upgrade, job_id, Phase.TRIAL)
        if ended is not None:
            begin_going_back(self._history, upgrade, ended)

    def _go_back(self, upgrade: Upgrade) -> Upgrade:
        if upgrade.phase is Phase.FAILED:
            upgrade = self._history.write_upgrade(replace(upgrade, phase=Phase.GOING_BACK, hint=None))
        say(f"version {upgrade.new} is not healthy: {first_line(upgrade.reason)}; going back to version {upgrade.old}")
        try:
            job_id = self._running() or self._submit(upgrade, upgrade.old, self._history.version(upgrade.old))
        except FlowrunError as error:
            return end_going_back(self._history, upgrade, error.message)
        ended = self._wait(upgrade, job_id, Phase.GOING_BACK)
        if ended is not None:
            end_going_back(self._history, upgrade, ended)
        found = self._history.upgrade()
        assert found is not None
        return found

    def _running(self) -> str | None:
        """The job of the pipeline's folder that runs, if one does: whoever had the upgrade in hand before has submitted it."""
        name = self._history.job_folder.name
        for job in self._client.list_jobs():
            if not JobState(job.state).is_terminal and job.name and job_slug(job.name) == name:
                return job.job_id
        return None

    def _submit(self, upgrade: Upgrade, number: int, version: PipelineVersion) -> str:
        files = modules_of_version(version)
        secrets = {n: self._variables[n] for n in version.text.withheld if n in self._variables}
        name = str((version.plan or {}).get("name") or self._history.job_folder.name)
        submission = JobSubmission(
            name,
            JobText(version.text, secrets, files.files),
            version.fingerprint,
            upgrade.savepoint or self._history.job_folder.uri,
            allow_non_restored=upgrade.allow_non_restored and number == upgrade.new,
            upgrade=upgrade.upgrade_id,
        )
        return self._client.submit(submission, files)

    def _wait(self, upgrade: Upgrade, job_id: str, phase: Phase) -> str | None:
        """Wait until the upgrade is in another phase; or the job is over, which is given in words."""
        job, pause = self._client.job(job_id), threading.Condition()
        while True:
            progress = job.watch()
            present = self._history.upgrade()
            if present is None or present.phase is not phase or present.upgrade_id != upgrade.upgrade_id:
                return None
            if progress.is_over:
                return (
                    f"it {progress.status.state.value}"
                    if progress.failure is None
                    else str(error_from_value(progress.failure))
                )
            with pause:
                SystemClock().wait(pause, _LOOK_MS)
