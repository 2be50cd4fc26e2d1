"""A job that is over because `flowrun apply` has stopped it, and has not gone on."""

from __future__ import annotations

from flowrun.errors import StateError
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.why.finding import Finding, Severity
from flowrun.state.storage.state_path import StatePath


def unfinished_upgrade(job_folder: StatePath) -> tuple[Finding, ...]:
    """What the record of the last upgrade of a job that is over says, if that upgrade is not finished: one finding, or none.

    Args:
        job_folder: of the job, where its checkpoints and versions are.
    """
    try:
        upgrade = VersionHistory(job_folder).upgrade()
    except StateError as error:
        title = "how far the last upgrade is cannot be read"
        return (Finding("upgrade_unknown", Severity.RISKS, title, f"{error.message}.", remedy=error.hint),)
    if upgrade is None or not upgrade.phase.is_open:
        return ()
    return (
        Finding(
            "upgrade_unfinished",
            Severity.BLOCKS,
            f"an upgrade to version {upgrade.new} is not finished: {upgrade.phase.value}",
            f"`flowrun apply` stops version {upgrade.old} for it. It is still at work, or was interrupted.",
            figures={"old": upgrade.old, "new": upgrade.new, "began_ms": upgrade.began_ms},
            remedy="if that command does not run any more, flowrun apply FILE --continue finishes what it began; "
            "flowrun history shows the versions",
        ),
    )
