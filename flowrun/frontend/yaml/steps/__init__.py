"""The steps of the document as plan nodes."""
