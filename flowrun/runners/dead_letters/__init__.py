"""Dead letters after a run: read where they were written, and replayed once each (docs/adr/043-dead-letters.md)."""
