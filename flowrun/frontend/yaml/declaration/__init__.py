"""The declaration of the document: every key with its kind, default and meaning, and what is generated from it."""
