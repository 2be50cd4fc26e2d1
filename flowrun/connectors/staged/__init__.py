"""Exactly-once sinks for systems whose transactions cannot be resumed by another process (ADR 32).

Rows wait in files beside the checkpoint (`StagedWriter`). When it is complete, `StagedCommitter` writes them in one transaction, which
also records which commit it was. A connector brings the transaction (`TransactionalTarget`).
"""
