"""What an editor asks of a text: `analysis` (what is wrong, what there is), `sql_words` and `yaml_words` (what may come next),
`meaning` (what a word is, and where it was declared). Nothing here knows a protocol.
"""
