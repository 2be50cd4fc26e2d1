"""The `kafka` and `upsert-kafka` connectors, on confluent-kafka."""

from flowrun.connectors.kafka.connector import KAFKA, UPSERT_KAFKA

__all__ = ["KAFKA", "UPSERT_KAFKA"]
