"""`flowrun sql`: a shell for SQL. `command` runs statements, `prompt` reads them from a terminal, `completion` proposes words."""
