"""What an editor asks of a text: `documents` (what the text is), `analysis` (what is wrong, what there is), `sql_text` (where a place
is in it), `sql_words` and `yaml_words` (what may come next), `meaning` (what a word is, and where it was declared). Nothing here knows
a protocol.
"""
