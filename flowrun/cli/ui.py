"""`flowrun ui`: the address of the page that shows a running job, or the jobs of a cluster."""

from __future__ import annotations

import click

from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.console import say
from flowrun.cli.running_jobs import choose, choose_among, how_to_list_ended, running_jobs
from flowrun.errors import ClusterError, PipelineError


@click.command()
@click.argument("job", required=False)
@click.option("--open", "opens", is_flag=True, help="Open it in the browser of this machine.")
@cluster_options
def ui(job: str | None, opens: bool, cluster: ClusterOptions | None) -> None:
    """Print the address of the page of a running job, or of a cluster.

    JOB is the name of the pipeline or the beginning of the job's id; it may be left out if only one job runs. The address holds the token
    of the job behind the `#`, where browsers keep it to themselves: whoever has it can stop the job.
    """
    address = _address_here(job) if cluster is None else _address_on(cluster, job)
    click.echo(address)
    if opens:
        import webbrowser

        if not webbrowser.open(address):
            say("there is no browser on this machine: open the address where there is one")


def _address_here(job: str | None) -> str:
    from flowrun.runners.registry import LOOPBACK

    with running_jobs(None) as jobs:
        if job is None and len(jobs.entries) > 1:
            names = ", ".join(sorted(f"'{entry.name}'" for entry in jobs.entries))
            raise PipelineError.of(f"{len(jobs.entries)} jobs run: {names}", "name one: flowrun ui JOB")
        entry = jobs.entries[0] if job is None and jobs.entries else choose(job or "", jobs)
        return f"{entry.page or f'http://{LOOPBACK}:{entry.port}/'}#token={entry.token}"


def _address_on(cluster: ClusterOptions, job: str | None) -> str:
    with cluster.client() as client:
        place = client.rest_place()
        if place is None:
            raise ClusterError(f"{cluster} serves no page", hint="it is being started: ask again in a moment")
        jobs = client.list_jobs()
    path = ""
    if job is not None:
        path = f"/jobs/{choose_among(job, jobs, f'on {cluster}', how_to_list_ended(cluster)).job_id}"
    if place.token is None:
        say("the token is in the file that the cluster was given with --token-file: put #token=… behind the address")
        return f"{place.url}#{path}" if path else place.url
    return f"{place.url}#token={place.token}{'&' + path if path else ''}"
