"""`_metadata.json`: what makes a folder a checkpoint; reading and writing it with the files that only it names."""

from __future__ import annotations

from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.storage.documents import Document, document_at, named_paths, rendered
from flowrun.state.storage.metadata_json import from_document, write_document
from flowrun.state.storage.names import METADATA_FILE, VIEWS_FILE, checkpoint_number
from flowrun.state.storage.other_checkpoints import offering_another, offering_before
from flowrun.state.storage.parquet_read import DamagedFileError
from flowrun.state.storage.state_path import StatePath, resolve
from flowrun.state.storage.views import views_script


def read_metadata(path: str) -> CheckpointMetadata:
    """The metadata of the checkpoint or savepoint in folder (or metadata file) `path`, a local path or URI.

    Raises:
        StateError: it is missing, truncated, altered, or of a format that this flowrun cannot read.
    """
    return metadata_in(folder_of(resolve(path)))


def folder_of(location: StatePath) -> StatePath:
    """The folder of a checkpoint that is named by its folder or its metadata file."""
    return location.parent if location.name == METADATA_FILE else location


def root_of(folder: StatePath, document: Document) -> StatePath:
    """Where the paths of a checkpoint's files start: its job's folder, or the savepoint itself."""
    return folder if document["kind"] == CheckpointKind.SAVEPOINT.value else folder.parent


def metadata_in(folder: StatePath) -> CheckpointMetadata:
    """The metadata of the checkpoint in `folder`.

    Raises:
        StateError: as `read_metadata`; says which complete checkpoint could be used instead.
    """
    number = checkpoint_number(folder.name)
    try:
        document = document_at(folder)
    except StateError as error:
        if number is None or error.hint is not None:
            raise
        raise StateError(error.message, hint=offering_before(folder.parent, number)) from error
    root = root_of(folder, document)
    try:
        return from_document(document, root)
    except DamagedFileError as error:
        raise StateError(error.message, hint=offering_another(root, error.path)) from error


def write_metadata(folder: StatePath, metadata: CheckpointMetadata) -> frozenset[str]:
    """Write operator state, rows in flight, the script of views and at last the metadata; gives all paths that it names.

    Raises:
        StateError: something cannot be written; none of it is left then.
    """
    prefix = "" if metadata.kind is CheckpointKind.SAVEPOINT else f"{folder.name}/"
    before = {e.name for e in folder.entries()}
    root = folder if metadata.kind is CheckpointKind.SAVEPOINT else folder.parent
    try:
        document = write_document(folder, prefix, metadata)
        (folder / VIEWS_FILE).write_atomically(views_script(document, metadata, root.uri).encode())
        folder.sync_folder()  # the names of all files that the metadata speaks of, before its own
        (folder / METADATA_FILE).write_atomically(rendered(document))
        folder.sync_folder()
        folder.parent.sync_folder()  # the name of the folder itself
    except BaseException:
        for entry in folder.entries():
            if entry.name not in before and not entry.is_folder:
                (folder / entry.name).remove_quietly()
        raise
    return named_paths(document, prefix.rstrip("/"))
