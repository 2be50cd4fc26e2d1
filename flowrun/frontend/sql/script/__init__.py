"""Scripts: text → statements → catalog and plan.

Each module needs only those before it: `text` is the text; `statement_reader`, `statements`, `ddl_parser` and `statement_parser`
read statements; `table_options`, `settings`, `column_expressions`, `table_columns`,
`table_likeness`, `stored_tables`, `tables`, `catalogs`, `inserts`, `functions`, `listings`, `names` and `answers` say what they mean;
`script` goes through them, and `known_catalogs` tells who writes a script which catalogs it has.
"""
